"""No table and no word of one goes beyond the text of a page: measured on the boxes that the PDF is drawn from."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Json
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.model import Report
from tests.diagnose.tried_runs import CACHED, experiment, tried, waiting_run
from tests.report.conftest import GENERATED_AT
from tests.report.rich_run import rich_diagnosis, rich_run

#: Rounding in the layout, in CSS pixels (1/96 inch).
ROUNDING = 0.5

LOADER: dict[str, Json] = {"num_workers": 8, "persistent_workers": True, "prefetch_factor": 4}
SEVERAL: dict[str, Json] = {"optimizer_implementation": "foreach", "gradient_checkpointing": True, "batch_size": 16}


def beyond_the_text(report: Report) -> list[str]:
    """The words and cells of tables that end to the right of their page's text, each with its page and by how much."""
    weasyprint = pytest.importorskip("weasyprint")
    found, tables = [], 0
    for number, page in enumerate(weasyprint.HTML(string=render_html(report, "print")).render().pages, 1):
        paper: Any = page._page_box
        right = paper.content_box_x() + paper.width
        for table in (box for box in paper.descendants() if type(box).__name__ == "TableBox"):
            tables += 1
            for box in (table, *table.descendants()):
                over = box.position_x + box.width - right if isinstance(box.width, int | float) else 0.0
                if over > ROUNDING:
                    found.append(f"page {number}: {getattr(box, 'text', type(box).__name__)!r} by {over:.0f} px")
    assert tables, "a report without a table would show nothing"
    return found


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


def test_a_note_of_what_was_tried_stands_beneath_its_row() -> None:
    page = render_html(tried_report())
    rows = page[page.index('id="tried"') :].partition("</table>")[0].split("<tr")
    noted = [index for index, row in enumerate(rows) if row.startswith(' class="noted"')]
    # Of the three only the changed loader has nothing to be said besides.
    assert len(noted) == 2
    assert all(rows[index + 1].startswith(' class="beneath"') for index in noted)
    assert "no way to train" in page and rows[noted[0] + 1].count("colspan") == 1
