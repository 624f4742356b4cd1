"""The report as slides: native charts and tables with the report's values, inside their slides, in stable bytes."""

from __future__ import annotations

import dataclasses
import io
import math
import re
import shutil
import subprocess
import sys
import zipfile
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import pptx
import pytest

from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Remedy, Severity
from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.report.gains import saving
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.slides import finding_slides, paged_slides, table_slides
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.report.slides.slide_layout import BODY, Box, Grid, Line, cut, height_in, paged
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.words import cell


@pytest.fixture(scope="module")
def written(report) -> bytes:
    return render_pptx(report)


@pytest.fixture(scope="module")
def deck(written):
    return pptx.Presentation(io.BytesIO(written))


def texts(slide) -> str:
    """What stands on a slide, with plain spaces where a number is tied to its unit."""
    return "\n".join(shape.text_frame.text for shape in slide.shapes if shape.has_text_frame).replace("\xa0", " ")


def tables(deck, title: str) -> list[list[list[str]]]:
    found = []
    for slide in deck.slides:
        if slide.shapes.title.text_frame.text.startswith(title):
            found += [[[c.text for c in row.cells] for row in s.table.rows] for s in slide.shapes if s.has_table]
    return found


def test_slides_are_wide_and_nothing_sticks_out(deck):
    assert round(deck.slide_width / deck.slide_height, 3) == round(16 / 9, 3)
    for slide in deck.slides:
        for shape in slide.shapes:
            assert shape.left >= 0
            assert shape.top >= 0
            assert shape.left + shape.width <= deck.slide_width, slide.shapes.title.text_frame.text
            assert shape.top + shape.height <= deck.slide_height, slide.shapes.title.text_frame.text


def test_no_placeholder_is_empty_and_every_slide_has_a_title(deck):
    for slide in deck.slides:
        assert slide.shapes.title.text_frame.text
        assert all(placeholder.text_frame.text for placeholder in slide.placeholders)


def test_the_first_slide_holds_the_verdict_and_the_key_figures(deck, report):
    shown = texts(deck.slides[0])
    assert report.title in shown
    assert report.headline in shown
    assert "OPT001" in shown
    # Of two configurations the first one's stand there: the second row is for what to change and what it wins.
    for figure in report.key_figures:
        assert (figure.label in shown) == (not figure.label.endswith(", cpu")), figure
    assert "13 of 16" in shown
    assert report.changes[0].says in shown and saving(report.changes[0].gain).replace("a fix", "A fix", 1) in shown
    assert report.headline in deck.slides[0].notes_slide.notes_text_frame.text


def test_of_a_long_advice_the_setting_behind_it_stays(report):
    long = dataclasses.replace(report.changes[0], says="Batch samples of similar length together. " * 9, code="x=1")
    presentation = pptx.Presentation(io.BytesIO(render_pptx(dataclasses.replace(report, changes=(long,)))))
    (line,) = [
        line for line in texts(presentation.slides[0]).split("\n") if line.startswith("Batch samples of similar")
    ]
    assert line.endswith("…  [x=1]") and len(line) <= 220


def test_charts_are_native_with_the_reports_values_and_gaps_stay_gaps(deck, report):
    drawn = [shape.chart for slide in deck.slides for shape in slide.shapes if shape.has_chart]
    assert len(drawn) == len(report.charts)
    for native, chart in zip(drawn, report.charts, strict=True):
        plot = native.plots[0]
        # Of many categories every nth is labelled; the workbook behind the chart has them all.
        nth = max(1, math.ceil(len(chart.categories) / 16))
        labels = [name if i % nth == 0 else " " for i, name in enumerate(chart.categories)]
        assert [category.label for category in plot.categories] == labels
        assert [series.name for series in plot.series] == [series.name for series in chart.series]
        for series, expected in zip(plot.series, chart.series, strict=True):
            assert series.values == expected.values
    lost = next(c for c in drawn if "256" in tuple(c.plots[0].categories))
    assert lost.plots[0].series[0].values[-1] is None
    assert lost._chartSpace.chart.find("{*}dispBlanksAs").get("val") == "gap"


def cells(package: bytes, index: int = 0) -> dict[str, str]:
    """The cells of the first sheet of a chart's workbook: what they hold, as text; "" for a cell without a value."""
    spread = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(io.BytesIO(package)) as deck:
        book = sorted(name for name in deck.namelist() if name.endswith(".xlsx"))[index]
        with zipfile.ZipFile(io.BytesIO(deck.read(book))) as workbook:
            sheet = ElementTree.fromstring(workbook.read("xl/worksheets/sheet1.xml"))
            strings = ElementTree.fromstring(workbook.read("xl/sharedStrings.xml"))
            assert not any("worksheets/_rels" in name for name in workbook.namelist())  # no links
    shared = ["".join(item.itertext()) for item in strings.iter(f"{spread}si")]
    assert not list(sheet.iter(f"{spread}f"))  # no formulas
    held = {}
    for cell_ in sheet.iter(f"{spread}c"):
        value = cell_.findtext(f"{spread}v", "")
        held[cell_.get("r", "")] = shared[int(value)] if cell_.get("t") == "s" else value
    return held


def test_the_workbook_behind_a_chart_holds_its_data(written, report):
    with zipfile.ZipFile(io.BytesIO(written)) as package:
        assert sum(name.endswith(".xlsx") for name in package.namelist()) == len(report.charts)
    held = cells(written)
    chart = report.charts[0]
    assert held["B1"] == chart.series[0].name
    assert held["A2"] == chart.categories[0]
    assert float(held["B2"]) == chart.series[0].values[0]


def test_of_150_steps_every_tenth_is_labelled_and_the_workbook_names_them_all():
    steps = tuple(str(i + 1) for i in range(150))
    chart = Chart(
        key="k", kind=ChartKind.LINE, title="t", x_label="Step", y_label="ms", categories=steps,
        series=(ChartSeries("a", (1.0,) * 150), ChartSeries("b", (2.0,) * 150)),
    )  # fmt: skip
    deck = Deck("t", None)
    deck.chart(deck.slide("t"), BODY, chart)
    package = deck.to_bytes()
    (native,) = [s.chart for s in pptx.Presentation(io.BytesIO(package)).slides[0].shapes if s.has_chart]
    axis = native.category_axis._element
    assert axis.find("{*}tickLblSkip").get("val") == axis.find("{*}tickMarkSkip").get("val") == "10"
    for series in native._chartSpace.iter("{*}ser"):
        shown = [point.find("{*}v").text for point in series.find("{*}cat").iter("{*}pt")]
        assert [text for text in shown if text.strip()] == [str(i) for i in range(1, 151, 10)] and len(shown) == 150
    assert [cells(package)[f"A{i + 2}"] for i in range(150)] == list(steps)


def test_whiskers_are_error_bars_of_the_intervals_length(deck, report):
    chart = next(c for c in report.charts if c.key == "throughput_1")
    native = next(s.chart for slide in deck.slides for s in slide.shapes if s.has_chart)
    values = [
        float(v.text) for v in native._chartSpace.iter("{*}v") if v.getparent().getparent().tag.endswith("numLit")
    ]
    up = [high - value for high, value in zip(chart.series[0].high, chart.series[0].values, strict=True)]
    assert values[:5] == pytest.approx(up)


def test_all_trials_are_in_native_tables(deck, report):
    trials = next(table for table in report.tables if table.key == "trials")
    left, right = tables(deck, "All trials")
    rows = [a + b[2:] for a, b in zip(left[1:], right[1:], strict=True)]  # the first two columns stand on both slides
    assert rows == [[cell(v, c) for v, c in zip(row, trials.columns, strict=True)] for row in trials.rows]


def test_findings_have_a_slide_with_evidence_in_the_table_and_the_notes(deck, report):
    for finding in report.diagnosis.findings:
        if finding.severity is Severity.INFO:
            continue
        slide = next(s for s in deck.slides if s.shapes.title.text_frame.text.startswith(finding.code))
        assert finding.summary in texts(slide)
        assert str(finding.severity) in slide.shapes.title.text_frame.text
        notes = slide.notes_slide.notes_text_frame.text
        assert all(item.metric in notes for item in finding.evidence)
    assert "[optimizer_implementation='fused']" in "\n".join(texts(s) for s in deck.slides)


def test_findings_that_ask_for_nothing_share_slides(deck, report):
    infos = [finding for finding in report.diagnosis.findings if finding.severity is Severity.INFO]
    shown = "\n".join(
        texts(s) for s in deck.slides if s.shapes.title.text_frame.text.startswith("Further observations")
    )
    assert infos and all(f.code in shown and f.summary in shown for f in infos)
    assert not any(s.shapes.title.text_frame.text.startswith(f.code) for f in infos for s in deck.slides)


def test_an_observation_ends_with_a_whole_advice_and_the_rest_stands_in_the_notes(report):
    one, other = (Remedy(says=f"{word} {'and so on ' * 12}to the end.", change={}) for word in ("First", "Second"))
    found = Finding(
        code="AAA001", name="a-name", family=Family.INPUT, severity=Severity.INFO, scope="cpu",
        summary="It waits. " * 20, evidence=(), remedies=(one, other), confidence=0.5,
    )  # fmt: skip
    told = dataclasses.replace(report, diagnosis=Diagnosis(verdict=None, findings=(found,)))
    slides = pptx.Presentation(io.BytesIO(render_pptx(told))).slides
    slide = next(s for s in slides if s.shapes.title.text_frame.text.startswith("Further observations"))
    assert one.says in texts(slide) and "Second" not in texts(slide)
    assert f"Try: {other.says}" in slide.notes_slide.notes_text_frame.text


def test_a_number_is_not_torn_from_its_unit(deck):
    shown = "\n".join(shape.text_frame.text for slide in deck.slides for shape in slide.shapes if shape.has_text_frame)
    assert re.search(r"\d\xa0%", shown) and not re.search(r"\d %", shown)


def test_charts_tables_and_decoration_have_a_text_for_readers_who_cannot_see_them(deck):
    for slide in deck.slides:
        for shape in slide.shapes:
            if not shape.has_text_frame or (shape.shape_type is not None and "AUTO_SHAPE" in str(shape.shape_type)):
                described = next(e for e in shape._element.iter() if e.tag.endswith("}cNvPr")).get("descr")
                assert described, shape.name


def test_equal_reports_make_equal_bytes_at_any_time(written, report, monkeypatch):
    import time

    real = time.localtime
    monkeypatch.setattr(time, "localtime", lambda *a: real(*a) if a else real(1_000_000_000))
    assert render_pptx(report) == written
    with zipfile.ZipFile(io.BytesIO(written)) as package:
        assert {entry.date_time for entry in package.infolist()} == {(1980, 1, 1, 0, 0, 0)}
    assert pptx.Presentation(io.BytesIO(written)).core_properties.created == datetime(2026, 11, 21, 9, 30)


def test_a_report_without_a_trial(empty_report):
    deck = pptx.Presentation(io.BytesIO(render_pptx(empty_report)))
    assert "No verdict" in texts(deck.slides[0])
    assert not any(shape.has_chart for slide in deck.slides for shape in slide.shapes)


def test_long_text_is_spread_over_slides_and_none_is_lost():
    words = [f"w{i}" for i in range(1500)]
    pages = paged([Line(" ".join(words), 16), Line("end", 16)], BODY)
    assert len(pages) > 1
    assert " ".join(line.text for page in pages for line in page).split() == [*words, "end"]
    for page in pages:
        assert sum(height_in(line, BODY.width) for line in page) <= BODY.height + 1e-9


def test_a_heading_stays_with_what_follows():
    filler = [Line("x", 16) for _ in range(int(BODY.height / height_in(Line("x", 16), BODY.width)) - 1)]
    pages = paged([*filler, Line("Heading", 16, bold=True), Line("below", 16)], BODY)
    assert [line.text for line in pages[1]] == ["Heading", "below"]


def test_names_that_look_like_formulas_stay_text():
    deck = Deck("t", None)
    slide = deck.slide("t")
    chart = Chart(
        key="k", kind=ChartKind.BAR, title="t", x_label="", y_label="", categories=("=1+1", "@x"),
        series=(ChartSeries("=cmd|'/c calc'!A1", (1.0, None)), ChartSeries("https://example.org", (0.0, 2.0))),
    )  # fmt: skip
    deck.chart(slide, BODY, chart)
    held = cells(deck.to_bytes())
    assert held["A2"] == "=1+1"
    assert held["B1"] == "=cmd|'/c calc'!A1"
    assert held["C1"] == "https://example.org"
    assert held["B3"] == ""  # the value that is None
    assert held["C2"] == "0"  # the measured zero


def test_a_table_never_grows_beyond_its_box():
    grid = Grid([("a" * 80, "ms")] * 12, [["x" * 200] * 12] * 3, [True] * 12, "t")
    assert sum(grid.widths(12.0)) <= 12.0 + 1e-9
    deck = Deck("t", None)
    slide = deck.slide("t")
    deck.table(slide, Box(0.5, 1.5, 12.0, 5.0), grid)
    shown = next(s for s in slide.shapes if s.has_table).table
    assert shown.cell(1, 0).text.endswith("…")


def test_a_table_is_set_smaller_before_a_text_is_cut():
    # 30 + 2 x 38 letters of 12 pt at 0.6 of it, and 12 pt beside each: (106 x 7.2 + 36) / 72 = 11.1 in.
    grid = Grid([("a", "")] * 3, [["x" * 30, "y" * 38, "z" * 38]], [False] * 3, "t")
    assert grid.fitted(12.0) is grid
    smaller = grid.fitted(11.0)
    assert (grid.size, smaller.size) == (12.0, 10.5)
    for text, width in zip(grid.rows[0], smaller.widths(11.0), strict=True):
        assert cut(text, width, smaller.size) == text
    assert cut("y" * 38, grid.widths(11.0)[1], grid.size) != "y" * 38


def test_in_tall_rows_a_long_text_takes_two_lines_before_it_is_cut():
    # 7 in hold 96 letters of 10.5 pt at 0.6 of it beside the margins: (7 x 72 - 8) / (10.5 x 0.6) = 78.7.
    where = " ".join(f"batch-{i:02}" for i in range(12))  # 107 letters
    assert cut(where, 7.0, 10.5, 2) == where and cut(where, 7.0, 10.5).endswith("…")
    words = " ".join("word" for _ in range(40))  # 199 letters; a line holds 15 words, 74 letters
    assert cut(words, 7.0, 10.5, 2) == " ".join(["word"] * 30) + "…"
    grid = Grid([("Code", ""), ("Where", "")], [["A", "short"], ["B", "x " * 120]], [False] * 2, "t", tall=True)
    low, high = grid.row_heights(7.0)
    assert (low, high) == pytest.approx((12 * 1.95 / 72, 12 * (1.95 + 1.3) / 72))
    assert dataclasses.replace(grid, tall=False).row_heights(7.0) == pytest.approx([low, low])


def test_a_table_is_spread_evenly_and_no_part_is_higher_than_its_box():
    rows = [[f"r{i}", "x " * (120 if i % 3 == 0 else 2)] for i in range(31)]
    grid = Grid([("Code", ""), ("Where", "")], rows, [False] * 2, "t", tall=True)
    parts = grid.paged(7.0, 4.0)
    assert [row for part in parts for row in part.rows] == rows
    heights = [part.head_height_in + sum(part.row_heights(7.0)) for part in parts]
    # 11 rows of 0.54 in and 20 of 0.325 in under heads of 0.325 in: 12.5 in, 3.675 a part.
    assert len(parts) == 4 and max(heights) <= 4.0 and min(heights) > 2.5


def test_the_last_slide_of_a_text_does_not_hold_a_rest():
    line = Line("x", 12, space_after=4)
    full = int(BODY.height / height_in(line, BODY.width))
    assert [len(page) for page in paged_slides._pages([line] * (full + 1))] == [full + 1]  # set a little smaller
    pages = paged_slides._pages([line] * (2 * full - 2))
    assert [len(page) for page in pages] == [full - 1, full - 1] and pages[0][0].size == 12  # no slide is saved
    assert paged_slides._pages([line]) == [[line]]


def test_a_finding_that_nearly_fits_stays_on_one_slide():
    lines = [Line("x" * 100, 18) for _ in range(8)]
    whole = sum(height_in(line, BODY.width) for line in lines)
    assert len(paged(lines, Box(0, 0, BODY.width, whole * 0.9))) == 2
    (page,) = finding_slides._pages(lines, Box(0, 0, BODY.width, whole * 0.9))
    assert 14 < page[0].size < 18
    many = finding_slides._pages(lines, Box(0, 0, BODY.width, whole * 0.5))
    assert len(many) > 1 and many[0][0].size == 18  # on two slides there is no need to be small


def test_of_a_long_note_whole_sentences_are_shown():
    assert table_slides._beginning("One is here. Two is here.", 14) == "One is here."
    assert table_slides._beginning("One is here.", 8) == "One is…"


def test_a_missing_library_says_how_to_get_it(monkeypatch, empty_report):
    monkeypatch.setitem(sys.modules, "pptx", None)
    with pytest.raises(FormatUnavailable, match="pip install python-pptx"):
        render_pptx(empty_report)


@pytest.mark.office
@pytest.mark.skipif(shutil.which("soffice") is None, reason="LibreOffice is not installed")
def test_an_office_program_opens_it(tmp_path: Path, written, deck, report):
    pypdf = pytest.importorskip("pypdf")
    (tmp_path / "report.pptx").write_bytes(written)
    subprocess.run(
        ["soffice", "--headless", f"-env:UserInstallation=file://{tmp_path}/profile", "--convert-to", "pdf",
         "--outdir", str(tmp_path), str(tmp_path / "report.pptx")],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    pages = pypdf.PdfReader(tmp_path / "report.pdf").pages
    assert len(pages) == len(deck.slides)
    everything = " ".join(" ".join(page.extract_text() for page in pages).split())
    assert report.headline in everything
    for label in ("Batch size", "samples/s", "backward", "data wait"):
        assert label in everything
