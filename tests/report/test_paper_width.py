"""No table and no word goes beyond the text of a page: measured on the boxes that the PDF is drawn from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.records import Json
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.words import WORD_LIMIT
from tests.diagnose.tried_runs import CACHED, experiment, tried, waiting_run
from tests.report.conftest import GENERATED_AT
from tests.report.rich_run import rich_diagnosis, rich_run

#: Rounding in the layout, in CSS pixels (1/96 inch).
ROUNDING = 0.5

LOADER: dict[str, Json] = {"num_workers": 8, "persistent_workers": True, "prefetch_factor": 4}
SEVERAL: dict[str, Json] = {"optimizer_implementation": "foreach", "gradient_checkpointing": True, "batch_size": 16}


def beyond_the_text(report: Report) -> list[str]:
    """The words, and cells of tables, that end to the right of their page's text, each with its page and how far."""
    weasyprint = pytest.importorskip("weasyprint")
    found, tables = [], 0
    for number, page in enumerate(weasyprint.HTML(string=render_html(report, "print")).render().pages, 1):
        paper: Any = page._page_box
        right = paper.content_box_x() + paper.width
        below = paper.content_box_y() + paper.height  # the page's number stands there
        for box in paper.descendants():
            kind = type(box).__name__
            tables += kind == "TableBox"
            looked_at = kind in ("TextBox", "TableBox", "TableCellBox") and isinstance(box.width, int | float)
            if looked_at and box.position_y < below and (over := box.position_x + box.width - right) > ROUNDING:
                found.append(f"page {number}: {getattr(box, 'text', kind)!r} by {over:.0f} px")
    assert tables, "a report without a table would show nothing"
    return found


def with_long_words(*fields: str) -> Report:
    """A report whose first evidence has such words, in one of these fields each, in a warning and in an info."""
    run = waiting_run()
    diagnosis = diagnose(run)
    found = diagnosis.findings[0]
    long = tuple(dataclasses.replace(found.evidence[0], **{field: "w" * WORD_LIMIT}) for field in fields)
    evidence = (*long, *found.evidence)
    twice = tuple(dataclasses.replace(found, severity=severity, evidence=evidence) for severity in Severity)
    return build_report(run, dataclasses.replace(diagnosis, findings=twice), generated_at=GENERATED_AT)


def tried_report() -> Report:
    """Long changes, of which one is asked for by several findings, with notes and intervals."""
    halved, run = (0.50, 0.505, 0.495, 0.50, 0.50), waiting_run()
    wide = experiment(LOADER, number=1)
    about = wide.about[0]
    wide = dataclasses.replace(wide, about=tuple(dataclasses.replace(about, code=f"INP00{n}") for n in (1, 2, 3, 7)))
    experiments = tried((wide, halved), (experiment(SEVERAL, number=2), (2.0,) * 5), (experiment(CACHED), halved))
    return build_report(run, diagnose(run, experiments=experiments), generated_at=GENERATED_AT)


@pytest.mark.slow
def test_what_was_tried_stays_within_the_text() -> None:
    report = tried_report()
    (table,) = (table for table in report.tables if table.key == "tried")
    assert len(table.rows) == 3 and any("INP001, INP002, INP003, INP007" in row for row in table.rows)
    assert beyond_the_text(report) == []


@pytest.mark.slow
def test_every_table_of_a_rich_run_stays_within_the_text() -> None:
    run = rich_run()
    assert beyond_the_text(build_report(run, rich_diagnosis(run), generated_at=GENERATED_AT)) == []


@pytest.mark.slow
def test_every_table_of_a_sweep_stays_within_the_text(report: Report) -> None:
    assert beyond_the_text(report) == []


@pytest.mark.slow
def test_words_of_evidence_as_long_as_a_report_keeps_are_broken() -> None:
    assert beyond_the_text(with_long_words("metric", "unit", "source")) == []


@pytest.mark.slow
def test_a_long_name_of_what_a_finding_is_about_is_broken() -> None:
    run = waiting_run()
    diagnosis = diagnose(run)
    found = tuple(dataclasses.replace(one, scope="w" * WORD_LIMIT) for one in diagnosis.findings)
    report = build_report(run, dataclasses.replace(diagnosis, findings=found), generated_at=GENERATED_AT)
    assert beyond_the_text(report) == []


def test_a_note_of_what_was_tried_stands_beneath_its_row() -> None:
    page = render_html(tried_report())
    rows = page[page.index('id="tried"') :].partition("</table>")[0].split("<tr")
    noted = [index for index, row in enumerate(rows) if row.startswith(' class="noted"')]
    # Of the three only the changed loader has nothing to be said besides.
    assert len(noted) == 2
    assert all(rows[index + 1].startswith(' class="beneath"') for index in noted)
    assert "no way to train" in page and rows[noted[0] + 1].count("colspan") == 1
