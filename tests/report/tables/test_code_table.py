"""Where in the user's own code a step's time goes, in every format; and nothing of it where no line was seen."""

from __future__ import annotations

import dataclasses
import html
import io
import json
import re
from xml.etree import ElementTree

import pptx
import pytest

from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.finding import Diagnosis, Remedy, Severity, Share, Verdict
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.drawing.palette import PRINTED
from perf_diagnostics.report.drawing.signs import share_bar
from perf_diagnostics.report.formats.github_summary import append_summary
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.json import report_json
from perf_diagnostics.report.formats.markdown import render_markdown, render_short_markdown
from perf_diagnostics.report.formats.markdown_text import md_code
from perf_diagnostics.report.formats.notebook import notebook_html
from perf_diagnostics.report.formats.pdf import render_pdf
from perf_diagnostics.report.live import live_view
from perf_diagnostics.report.model import Report, ReportTable
from perf_diagnostics.report.slides.pptx import render_pptx
from perf_diagnostics.report.summary import summary_text
from perf_diagnostics.report.tables.code_table import CODE, code_on_a_slide, code_rows
from perf_diagnostics.testing import run_of, trial_of
from tests.code_lines import CELL, ITEM, LOOPING, READ, TRAINER_CALL, WAITING, diagnosis_of, share, waiting
from tests.report.conftest import GENERATED_AT
from tests.report.formats.test_html import Page

HOSTILE_LINE = share("print(f'<b>{a | b}</b>`')", file="a|b/<i>.py", function="f.<locals>.g*h*")


def report_of(diagnosis: Diagnosis, device: str = "cpu") -> Report:
    return build_report(run_of(trial_of(device=device)), diagnosis, generated_at=GENERATED_AT)


def code_table(report: Report) -> ReportTable:
    return next(table for table in report.tables if table.key == CODE)


@pytest.fixture(scope="module")
def report() -> Report:
    return report_of(WAITING)


def test_the_lines_stand_by_phase_with_their_shares_and_intervals(report: Report) -> None:
    rows = [
        dict(zip((c.label for c in code_table(report).columns), row, strict=True)) for row in code_table(report).rows
    ]
    # Data wait has 23 + 5 % of a step, forward 26 %, backward 20 %.
    assert [(row["Phase"], row["Share of a step"]) for row in rows] == [
        ("data wait", pytest.approx(23)),
        ("data wait", pytest.approx(5)),
        ("forward", pytest.approx(26)),
        ("backward", pytest.approx(20)),
    ]
    assert (rows[0]["at least"], rows[0]["at most"]) == pytest.approx((20.5, 24.8))
    assert [row["Line"] for row in rows] == ["train.py:9", "train.py:8", "train.py:22", "train.py:43"]
    assert [row["Called from"] for row in rows] == ["train.py:41", "train.py:41", "train.py:42", ""]
    assert [row["Calls"] for row in rows] == ["", "", "torch.nn.modules.rnn.GRUCell.forward", ""]
    assert (rows[2]["Function"], rows[2]["Source"]) == ("Net.forward", "h = self.cell(z, h)")
    assert [row.length for row in code_rows(WAITING)] == pytest.approx([23 / 26, 5 / 26, 1, 20 / 26])


def test_the_note_says_what_was_looked_at_and_how_much_of_a_step_the_lines_hold(report: Report) -> None:
    assert code_table(report).note == (
        "From 360 samples of the training thread's call stack, taken at random moments: the length of each phase is "
        "measured, and the samples say which lines it was spent at. "
        "A short stretch of pure Python is seen at the operation after it. "
        "These lines hold 74.0 % of a step; smaller ones are left out."  # 23 + 5 + 26 + 20
    )
    on_device = code_table(report_of(WAITING, "cuda:0")).note
    assert "What the host waits for on the device is seen at the line that waits; a short stretch of pure" in on_device


def test_lines_of_workers_are_told_as_such() -> None:
    theirs = dataclasses.replace(READ, in_workers=True, entry=None, entry_share=None)
    told = report_of(diagnosis_of(waiting(theirs), theirs))
    assert [row[0] for row in code_table(told).rows] == ["data wait, in workers"]
    assert "the loop's wait for them stands, divided as samples of their own call stacks are." in code_table(told).note
    assert "in the loader's workers" in render_markdown(told) and "in the loader's workers" in html.unescape(
        render_html(told)
    )
    assert "workers" not in code_table(report_of(WAITING)).note


def test_the_note_says_why_an_interval_reaches_far_below_its_share() -> None:
    late = share(value=0.59, low=0.14, high=0.60)  # 45 points below, 1 above
    few = share(value=0.10, low=0.06, high=0.16)
    for line, explained in ((late, True), (few, False)):
        note = code_table(report_of(diagnosis_of(waiting(line), line))).note
        assert ("many samples were taken late: they may belong to code just before the line" in note) is explained


def test_without_lines_there_is_nothing_of_it() -> None:
    bare = report_of(diagnosis_of(waiting()))
    assert not any(table.key == CODE for table in bare.tables)
    page = render_html(bare)
    assert "Where in the code" not in page and 'class="seen"' not in page and ">Code</a>" not in page
    for text in (render_markdown(bare), summary_text(bare)):
        assert "Where in the code" not in text and "Seen at" not in text and "At train" not in text


def test_several_lines_of_a_finding_stand_in_a_small_table() -> None:
    near = dataclasses.replace(READ, share=ITEM.share.scaled(0.5))
    page = render_html(report_of(diagnosis_of(waiting(ITEM, near), ITEM, near)))
    table = page[page.index('<caption class="spoken">Lines of INP') :].partition("</table>")[0]
    # 23 % of a step at the first line, half of that at the second.
    assert re.findall(r'<td class="number">([^<]+)</td>', table) == ["23\u00a0%", "12\u00a0%"]
    assert table.count('<span class="place">train.py:9</span>') == 1 and "Also at" not in page
    assert '<p class="seen">Seen at' not in page


def test_a_slide_has_no_column_in_which_nothing_stands() -> None:
    alone = share("x = f(y)", callers=())
    labels = [c.label for c in code_on_a_slide(code_table(report_of(diagnosis_of(waiting(alone), alone)))).columns]
    assert labels == ["Phase", "Share of a step", "Line", "Function", "Source"]
    assert "Called from" in [c.label for c in code_on_a_slide(code_table(report_of(WAITING))).columns]


def test_the_page_says_where_under_the_verdict_and_the_finding_and_in_a_section(report: Report) -> None:
    page = render_html(report)
    (anchor,) = re.findall(r'<div id="(table-\d+)" class="table">', page)
    target = f'href="#{anchor}"'
    assert (
        f'<p class="seen">At <a class="place" {target}>train.py:9</a> in <span class="place">Data.__getitem__</span>: '
        '<code class="source">x = x * 1.01</code>, called from train.py:41.</p>'
    ) in page
    assert (
        '<p class="seen">Seen at <span class="place">train.py:9</span> in <span class="place">Data.__getitem__</span>: '
        '<code class="source">x = x * 1.01</code> <span class="quiet">(23\u00a0% of a step), called from train.py:41'
        "</span></p>"
    ) in page
    section = page[page.index("Where in the code</h2>") :]
    assert page.index('id="findings"') < page.index("Where in the code</h2>") < page.index('id="charts"')
    assert '<th scope="col" class="word">Phase</th>' in section and section.count('<th scope="row" class="line">') == 4
    assert '<span class="value">23.0\u00a0%</span> <span class="ends">20.5 to 24.8</span>' in section
    assert 'calls <span class="place">torch.nn.modules.rnn.GRUCell.forward</span>' in section
    assert ">Code</a>" in page
    assert Page(page).open == []


def test_lines_of_one_function_are_told_together_in_every_format() -> None:
    built = report_of(diagnosis_of(waiting(LOOPING, claimed=0.26), LOOPING, ITEM))
    row = dict(zip((c.label for c in code_table(built).columns), code_table(built).rows[0], strict=True))
    assert (row["Line"], row["Function"]) == ("train.py:21-24, mostly line 22", "Net.forward")
    page = render_html(built)
    told = 'train.py:21-24</a> in <span class="place">Net.forward</span>, mostly line 22: <code class="source">h = self'
    assert told in page and 'in <span class="place">Net.forward</span>, mostly line 22, called from' in page
    text = render_markdown(built)
    assert "At train.py:21-24 in Net.forward, mostly line 22: `h = self.cell(z, h)`, called from train.py:42." in text
    assert "| train.py:21-24 in Net.forward, mostly line 22, called from train.py:42; calls" in text
    assert "<code>train.py:21-24</code> in <code>Net.forward</code>, mostly line 22: <code>h = self" in notebook_html(
        built
    )


def test_what_else_there_is_to_know_stands_after_the_answer_in_every_format() -> None:
    found = dataclasses.replace(waiting(ITEM), severity=Severity.INFO)
    saving = Verdict(found.code, found.name, found.family, f"A saving: {found.summary}", fault=False, note="And so on.")
    built = report_of(dataclasses.replace(diagnosis_of(found, ITEM, CELL), verdict=saving))
    page = render_html(built)
    assert page.index("A saving: ") < page.index('<p class="seen">At ') < page.index('<p class="note">And so on.</p>')
    assert "No fault, but worth trying first <span" in page and 'class="verdict info"' in page
    text = render_markdown(built)
    assert text.index("A saving: ") < text.index("At train.py:9") < text.index("And so on.")
    cell = notebook_html(built)
    assert cell.index("A saving: ") < cell.index("<p>At <code>") < cell.index('<p class="quiet">And so on.</p>')
    assert "x = x * 1.01`, called from train.py:41. [INP001 input-bound] And so on." in " ".join(
        summary_text(built).split()
    )
    first = pptx.Presentation(io.BytesIO(render_pptx(built))).slides[0]
    shown = "\n".join(shape.text_frame.text for shape in first.shapes if shape.has_text_frame)
    assert "No fault, but worth trying first INP001 input-bound" in shown
    assert shown.index("A saving: ") < shown.index("At train.py:9") < shown.index("And so on.")


def test_without_a_verdict_the_suspicions_line_is_told_in_every_format() -> None:
    told = dataclasses.replace(WAITING, verdict=None, no_verdict_because="suspected: slow data", suspected="INP001")
    told = dataclasses.replace(told, would_decide="To decide it, look.")
    built = report_of(told)
    assert built.diagnosis.findings[0].code == "INP001"
    page = render_html(built)
    assert page.index("uspected: slow data") < page.index('<p class="seen">At ')
    for text in (render_markdown(built), summary_text(built)):
        places = [
            " ".join(text.split()).index(part) for part in ("suspected: slow", "At train.py:9 in", "To decide it")
        ]
        assert places == sorted(places)
    assert "To decide it, look." in notebook_html(built) and '<p class="note">To decide it, look.</p>' in page


def test_source_text_is_text_in_every_format() -> None:
    built = report_of(diagnosis_of(waiting(HOSTILE_LINE), HOSTILE_LINE))
    for page in (render_html(built), notebook_html(built)):
        assert "<code" in page and "print(f&#39;&lt;b&gt;{a | b}&lt;/b&gt;`&#39;)" in page
        assert "<b>" not in page and "<i>" not in page
    text = render_markdown(built)
    assert r"At a\|b/&lt;i&gt;.py:9 in f.g\*h\*: <code>print(f'&lt;b&gt;{a \| b}&lt;/b&gt;\`')</code>, called" in text
    assert r"in f.g\*h\*: <code>print(f'&lt;b&gt;{a \| b}&lt;/b&gt;\`')</code> (23 % of a step)" in text
    assert "<b>" not in text and "<i>" not in text


def test_a_bar_is_as_long_as_its_share() -> None:
    def width(length: float) -> float:
        root = ElementTree.fromstring(share_bar("data_wait", length, PRINTED))
        (bar,) = root.iter("{http://www.w3.org/2000/svg}rect")
        assert bar.get("fill") == PRINTED.mark("data_wait")
        return float(bar.get("width", ""))

    assert (width(1), width(0.5)) == (120, 60)
    assert width(0.001) == 1.5  # still to be seen


def test_markdown_has_the_sentences_and_the_table_with_bars(report: Report, tmp_path) -> None:
    text = render_markdown(report)
    for told in (text, render_short_markdown(report)):
        assert (
            "each step.**\n\nAt train.py:9 in Data.\\_\\_getitem\\_\\_: `x = x * 1.01`, called from train.py:41.\n"
            in told
        )
    assert (
        "Seen at train.py:9 in Data.\\_\\_getitem\\_\\_: `x = x * 1.01` (23 % of a step), called from train.py:41.\n"
    ) in text
    _, table = text.split("## Where in the code\n\n")
    assert table.splitlines()[:6] == [
        "| Phase | Share of a step | | Line | Source |",
        "| --- | ---: | --- | --- | --- |",
        # 12 cells for 26 %: 10.6, 2.3, 12 and 9.2
        "| data wait | 23.0 % (20.5 to 24.8) | ███████████ | train.py:9 in Data.\\_\\_getitem\\_\\_, called from "
        "train.py:41 | `x = x * 1.01` |",
        "| data wait | 5.0 % (3.0 to 8.0) | ██ | train.py:8 in Data.\\_\\_getitem\\_\\_, called from train.py:41 | "
        "`with open(path) as file:` |",
        "| forward | 26.0 % (25.0 to 27.0) | ████████████ | train.py:22 in Net.forward, called from train.py:42; calls "
        "torch.nn.modules.rnn.GRUCell.forward | `h = self.cell(z, h)` |",
        "| backward | 20.0 % (19.0 to 20.0) | █████████ | train.py:43 in main | `loss.backward()` |",
    ]
    append_summary(tmp_path / "summary.md", text)
    assert "At train.py:9 in Data.\\_\\_getitem\\_\\_: `x = x * 1.01`, called" in (tmp_path / "summary.md").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x[a] = '*_*'", "`x[a] = '*_*'`"),  # nothing in a code span is markup
        ("a | b", r"<code>a \| b</code>"),
        ("a < b & c", "<code>a &lt; b &amp; c</code>"),
        ("'`'", r"<code>'\`'</code>"),
    ],
)
def test_source_text_in_markdown(text: str, shown: str) -> None:
    assert md_code(text) == shown


def test_the_json_has_the_lines_in_full(report: Report) -> None:
    told = json.loads(report_json(report))["diagnosis"]
    assert told["looks"] == 360 and len(told["lines"]) == 4
    first = told["findings"][0]["lines"][0]
    place = {"file": "train.py", "line": 9, "function": "Data.__getitem__", "text": "x = x * 1.01", "kinds": []}
    assert first["place"] == place
    assert [caller["line"] for caller in first["callers"]] == [51, 41]
    assert (first["share"]["value"], first["share"]["low"], first["phase"]) == (0.23, 0.205, "data_wait")


def slides_of(report: Report) -> list[str]:
    deck = pptx.Presentation(io.BytesIO(render_pptx(report)))
    told = ["\n".join(s.text_frame.text for s in slide.shapes if s.has_text_frame) for slide in deck.slides]
    return [text.replace("\xa0", " ") for text in told]


def test_slides_have_the_place_the_verdicts_lines_and_a_native_table(report: Report) -> None:
    deck = pptx.Presentation(io.BytesIO(render_pptx(report)))
    first, *_ = told = slides_of(report)
    assert "At train.py:9 in Data.__getitem__: `x = x * 1.01`, called from train.py:41." in first
    (finding,) = (text for text in told if text.startswith("INP001"))
    assert "Seen at train.py:9 in Data.__getitem__: `x = x * 1.01` (23 % of a step)" in finding
    (slide,) = (s for s in deck.slides if s.shapes.title.text_frame.text == "Where in the code")
    (table,) = (s.table for s in slide.shapes if s.has_table)
    rows = [[cell.text for cell in row.cells] for row in table.rows]
    assert rows[0] == ["Phase", "Share of a step\n%", "Line", "Function", "Source", "Called from"]
    assert rows[3] == [
        "forward",
        "26.0 (25.0 to 27.0)",
        "train.py:22",
        "Net.forward",
        "h = self.cell(z, h)",
        "train.py:42",
    ]
    fonts = [cell.text_frame.paragraphs[0].runs[0].font.name for cell in table.rows[1].cells]
    assert fonts == [None, None, None, None, "Courier New", None]
    notes = slide.notes_slide.notes_text_frame.text
    assert "train.py:22 calls torch.nn.modules.rnn.GRUCell.forward." in notes


def test_lines_are_left_out_of_a_slide_that_is_full() -> None:
    finding = waiting(ITEM)
    told = "Seen at train.py:9"
    for count, shown in ((16, True), (17, False)):  # 17 take a slide by themselves
        full = dataclasses.replace(finding, remedies=tuple(Remedy("Do this. " * 10) for _ in range(count)))
        slides = [text for text in slides_of(report_of(diagnosis_of(full, ITEM))) if text.startswith("INP001")]
        assert (told in slides[0]) is shown and len(slides) == 1
    other = dataclasses.replace(
        waiting(CELL), code="HST006", severity=Severity.CRITICAL, recoverable=Share(0.1, 0, 0.2)
    )
    two = dataclasses.replace(WAITING, findings=(*WAITING.findings, other))
    (slide,) = (text for text in slides_of(report_of(two)) if text.startswith("HST006"))
    assert "Seen at" not in slide  # only the verdict's finding shows them


def popping(share_of_step: float = 0.23) -> CodeShare:
    line = share("x = self.q.pop(0)", value=share_of_step, low=None, high=None)
    return dataclasses.replace(line, place=dataclasses.replace(line.place, kinds=((".q", "list"),)))


def test_why_a_line_is_known_to_be_slow_stands_beside_it_in_every_format() -> None:
    built = report_of(diagnosis_of(waiting(popping(), CELL), popping(), CELL))
    why = "taking the first of a list away moves all others up"
    instead = "make self.q a collections.deque, and use popleft()"
    rows = [dict(zip((c.label for c in code_table(built).columns), r, strict=True)) for r in code_table(built).rows]
    told = {row["Line"]: row["Known to be slow"] for row in rows}
    assert told["train.py:9"].startswith(why) and told["train.py:9"].endswith(instead) and told["train.py:22"] == ""
    assert f"train.py:9 is known to be slow: {why}" in code_on_a_slide(code_table(built)).note
    table = render_markdown(built).partition("## Where in the code")[2]
    assert table.count(f"Known to be slow: {why}") == 1
    page = render_html(built).partition('<table class="lines">')[2].partition("</table>")[0]
    assert page.count(f"Known to be slow: {why}") == 1
    document = json.loads(report_json(built))["diagnosis"]
    for lines in (document["lines"], document["findings"][0]["lines"]):
        idiom, none = (line["slow_idiom"] for line in lines)
        assert idiom["why"].startswith(why) and idiom["instead"] == instead and idiom["at"]["line"] == 9
        assert none is None


def test_a_slides_table_says_the_ends_beside_the_share(report: Report) -> None:
    bare = share(low=None, high=None)
    (row,) = code_on_a_slide(code_table(report_of(diagnosis_of(waiting(bare), bare)))).rows
    assert row[1] == "23.0"


def test_on_a_slide_the_rows_of_a_frameworks_call_say_what_they_are_about() -> None:
    table = code_on_a_slide(code_table(report_of(diagnosis_of(waiting(), *TRAINER_CALL, ITEM))))
    lines = [row[2] for row in table.rows]
    assert sorted(map(str, lines)) == [
        "hf.py:23 calls Trainer._clip_grad_norm",
        "hf.py:23 calls Trainer.training_step",
        "hf.py:23 calls Trainer.training_step",
        "train.py:9",
    ]
    assert table.note.count("hf.py:23 calls transformers.trainer.Trainer.training_step.") == 1


def test_the_terminals_summary_and_the_live_view_say_where(report: Report, monkeypatch) -> None:
    assert "At train.py:9 in Data.__getitem__: `x = x * 1.01`, called from train.py:41. [INP001" in " ".join(
        summary_text(report).split()
    )
    monkeypatch.setattr("perf_diagnostics.report.live.diagnose", lambda *_args, **_options: WAITING)
    assert live_view(run_of(trial_of())).verdict == (
        "The training waits for data 28 % of each step. At train.py:9 in Data.__getitem__: `x = x * 1.01`, called from "
        "train.py:41. [INP001]"
    )


def test_a_notebooks_cell_says_where(report: Report) -> None:
    cell = notebook_html(report)
    assert (
        "<p>At <code>train.py:9</code> in <code>Data.__getitem__</code>: <code>x = x * 1.01</code>, called from "
        "train.py:41.</p>"
    ) in cell
    assert "<p>Seen at <code>train.py:9</code> in <code>Data.__getitem__</code>: <code>x = x * 1.01</code>" in cell


def test_the_pdf_shows_the_lines(report: Report) -> None:
    pypdf = pytest.importorskip("pypdf")
    pages = pypdf.PdfReader(io.BytesIO(render_pdf(report))).pages
    shown = " ".join(" ".join(page.extract_text() for page in pages).split())
    assert "Where in the code" in shown and "h = self.cell(z, h)" in shown and "called from train.py:42" in shown


def test_a_long_verdict_on_a_slide_is_set_smaller_where_that_makes_room_for_its_line() -> None:
    def first(summary: str) -> tuple[float, str]:
        """The size of the verdict's letters, in pt, and all text of the first slide."""
        found = dataclasses.replace(waiting(ITEM), summary=summary)
        slide = pptx.Presentation(io.BytesIO(render_pptx(report_of(diagnosis_of(found, ITEM))))).slides[0]
        texts = [shape.text_frame for shape in slide.shapes if shape.has_text_frame]
        (verdict,) = (text for text in texts if summary[:18] in text.text)
        return verdict.paragraphs[1].runs[0].font.size.pt, "\n".join(text.text for text in texts)

    size, text = first("The training waits; " * 4)
    assert size == 24 and "At train.py:9" in text
    size, text = first("The training waits; " * 15)  # 300 letters: 18 pt by their number
    assert size == 15 and "At train.py:9" in text
    size, text = first("The training waits; " * 30)  # cut, and without room for more
    assert size == 15 and "At train.py:9" not in text
    size, text = first("The training waits. " + "It waits long. " * 4)
    assert size == 24 and "It waits long." in text and "At train.py:9" in text
    size, text = first("The training waits; " * 12 + "and waits. " + "It waits long. " * 20)
    assert "At train.py:9" in text and "It waits long." not in text  # the line of code is worth more
