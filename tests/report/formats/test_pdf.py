"""The report as PDF."""

from __future__ import annotations

import builtins
import io
import sys

import pytest

from perf_diagnostics.errors import FormatUnavailable, ReportError
from perf_diagnostics.report.formats import pdf
from perf_diagnostics.report.formats.pdf import render_pdf
from perf_diagnostics.report.words import cell

pypdf = pytest.importorskip("pypdf")


@pytest.fixture(scope="module")
def written(report) -> bytes:
    return render_pdf(report)


@pytest.fixture(scope="module")
def document(written):
    return pypdf.PdfReader(io.BytesIO(written))


@pytest.fixture(scope="module")
def text(document) -> str:
    return " ".join(" ".join(page.extract_text() for page in document.pages).replace("\xa0", " ").split())


def test_the_headline_and_every_sentence_are_in_it(text, report):
    assert report.headline in text
    for sentence in report.answer:
        assert sentence in text


def test_every_trial_is_in_it(document, report):
    trials = next(table for table in report.tables if table.key == "trials")
    page = next(p for p in document.pages if "Stopped by" in p.extract_text())
    assert float(page.mediabox.width) > float(page.mediabox.height)  # the wide table lies on its side
    shown = " ".join(page.extract_text().replace("\xa0", " ").split())
    for row in trials.rows:
        numbers = " ".join(cell(v, c) for v, c in zip(row[:-2], trials.columns[:-2], strict=True))
        assert numbers in shown


def test_chart_labels_are_text(text):
    assert "Throughput (samples/s), bars: 95 % interval" in text
    assert "Batch size" in text


def test_every_page_says_which_of_how_many_it_is_and_of_which_run(document):
    pages = len(document.pages)
    for number, page in enumerate(document.pages, start=1):
        footer = page.extract_text().replace("\xa0", " ")
        assert f"Page {number} of {pages}" in footer
        assert "distilbert-cpu-t4" in footer


def test_it_is_tagged_and_titled(document, report):
    root = document.trailer["/Root"]
    assert "/StructTreeRoot" in root
    assert root["/Lang"] == "en"
    assert document.metadata.title == f"{report.title}: {report.run_name}"


def test_nothing_completed_is_a_document_too_and_equal_reports_are_equal_files(empty_report):
    one = render_pdf(empty_report)
    assert "No trial completed." in pypdf.PdfReader(io.BytesIO(one)).pages[0].extract_text()
    assert render_pdf(empty_report) == one


def test_a_page_that_asks_for_something_is_refused():
    with pytest.raises(ReportError, match="loads nothing"):
        pdf._refuse("https://example.org/x.png")


def hide(monkeypatch, error: Exception, banner: str = "") -> None:
    """Make the import of WeasyPrint print a banner and fail."""
    real = builtins.__import__

    def failing(name, *arguments, **named):
        if name == "weasyprint":
            print(banner)
            raise error
        return real(name, *arguments, **named)

    monkeypatch.delitem(sys.modules, "weasyprint", raising=False)
    monkeypatch.setattr(builtins, "__import__", failing)


def test_a_missing_library_says_how_to_get_it(monkeypatch, empty_report):
    hide(monkeypatch, ImportError("No module named 'weasyprint'"))
    with pytest.raises(FormatUnavailable, match="pip install weasyprint"):
        render_pdf(empty_report)


def test_a_missing_native_library_says_how_to_get_it_and_prints_nothing(monkeypatch, capsys, empty_report):
    hide(monkeypatch, OSError("cannot load library 'gobject-2.0-0'\nmore"), banner="WeasyPrint could not import …")
    with pytest.raises(FormatUnavailable, match=r"gobject-2.0-0.*apt install libpango.*brew install pango.*conda"):
        render_pdf(empty_report)
    assert capsys.readouterr().out == ""
