"""Names that want to be code: in every format they are text, whatever record they come in by."""

from __future__ import annotations

import io
import json
import re
import zipfile
from xml.etree import ElementTree

import pptx
import pytest

from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.formats.pdf import render_pdf
from perf_diagnostics.report.formats.plots import PICTURES, render_picture
from perf_diagnostics.report.formats.renderer import RENDERERS, write_report
from perf_diagnostics.report.slides.pptx import render_pptx
from tests.report.conftest import HOSTILE
from tests.report.formats.test_html import Page

#: Elements and attributes a report is made of; a hostile name must not add to them.
ALLOWED_ATTRIBUTES = re.compile(
    r"^(id|class|lang|charset|content|name|http-equiv|rel|href|type|hidden|role|tabindex|scope|title|open|"
    r"aria-[a-z]+|data-value|xmlns|viewbox|width|height|font-size|font-weight|fill|stroke|stroke-[a-z]+|text-anchor|"
    r"opacity|d|x|y|cx|cy|r|rx)$"
)


@pytest.fixture(scope="module")
def baseline(hostile_reports) -> dict[str, int]:
    """How often each element stands in the report of a harmless twin."""
    page = Page(render_html(hostile_reports["../../etc/passwd"]))
    return {tag: len(page.all(tag)) for tag, _ in page.elements}


@pytest.mark.parametrize("name", HOSTILE)
def test_in_html_they_add_no_element_and_no_attribute(name, hostile_reports, baseline):
    html = render_html(hostile_reports[name])
    page = Page(html)
    assert page.open == []
    assert {tag: len(page.all(tag)) for tag, _ in page.elements} == baseline
    for tag, attributes in page.elements:
        for attribute in attributes:
            assert ALLOWED_ATTRIBUTES.match(attribute), (tag, attribute)
    assert "49" not in "".join(text for tag, text in page.texts if tag == "h1")  # {{7*7}} was not worked out
    assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\u202a-\u202e\u2066-\u2069]", html)
    assert len(html) < 300_000


@pytest.mark.parametrize("name", HOSTILE)
def test_in_markdown_they_make_no_markup(name, hostile_reports):
    text = render_markdown(hostile_reports[name])
    assert "<script" not in text
    assert "<img" not in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202e]", text)
    # What is left without source text that holds no sign of markup.
    assert not re.search(r"(?<!\\)`", re.sub(r"(?<!\\)`[^`<>&|\n]+`", "", text))
    tables = [table.splitlines() for table in re.findall(r"(?m)(?:^\|.*\n)+", text)]
    assert len(tables) > 3
    for table in tables:
        columns = [len(re.findall(r"(?<!\\)\|", line)) for line in table]
        assert set(columns) == {columns[0]}, table
    assert re.findall(r"^# .*", text, flags=re.M)[1:] == []  # one title, none smuggled in


@pytest.mark.parametrize("name", HOSTILE)
def test_in_json_they_are_strings(name, hostile_reports):
    data = json.loads(RENDERERS["json"].render(hostile_reports[name]))
    assert data["diagnosis"]["verdict"]["family"] == "INP"


@pytest.mark.parametrize("name", HOSTILE)
def test_in_slides_they_are_text_and_no_part_is_broken(name, hostile_reports):
    written = render_pptx(hostile_reports[name])
    deck = pptx.Presentation(io.BytesIO(written))
    for slide in deck.slides:
        for shape in slide.shapes:
            assert shape.left + shape.width <= deck.slide_width
            assert shape.top + shape.height <= deck.slide_height
    with zipfile.ZipFile(io.BytesIO(written)) as package:
        for part in package.namelist():
            assert ".." not in part
            if part.endswith((".xml", ".rels")):
                ElementTree.fromstring(package.read(part))
            if part.endswith(".xlsx"):
                with zipfile.ZipFile(io.BytesIO(package.read(part))) as workbook:
                    assert b"<f>" not in workbook.read("xl/worksheets/sheet1.xml")


@pytest.mark.parametrize("name", ["<script>alert(1)</script>", "x" * 5000])
def test_in_pdf_they_are_text(name, hostile_reports):
    pypdf = pytest.importorskip("pypdf")
    document = pypdf.PdfReader(io.BytesIO(render_pdf(hostile_reports[name])))
    assert "/JavaScript" not in str(document.trailer["/Root"])
    shown = "".join(document.pages[0].extract_text().split())
    assert name[:20].split("\x07")[0].replace(" ", "") in shown
    for page in document.pages:
        assert "/Annots" not in page or all("/URI" not in str(a.get_object()) for a in page["/Annots"])


@pytest.mark.parametrize("name", HOSTILE)
def test_in_pictures_they_are_drawn_without_a_formula_or_an_error(name, hostile_reports):
    assert render_picture(hostile_reports[name], next(iter(PICTURES)))[:4] == b"\x89PNG"


def test_no_path_comes_from_a_name(tmp_path, hostile_reports):
    folder = tmp_path / "inside"
    for report in hostile_reports.values():
        write_report(report, folder, ("md", "json"))
    assert {p.name for p in folder.iterdir()} == {"performance_report.md", "report.json"}
    assert {p.name for p in tmp_path.iterdir()} == {"inside"}
