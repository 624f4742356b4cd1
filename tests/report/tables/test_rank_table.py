"""What the table of ranks says about waits for collectives, and that it is silent where there are none."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import Phase
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.model import ReportTable
from perf_diagnostics.testing import run_of
from tests.diagnose.rules.rank_trials import of_ranks
from tests.report.conftest import GENERATED_AT


def table(*waits_ms: float) -> ReportTable:
    """Of ranks that wait for so long in forward's collectives in each step."""
    ranks = [{f"collective_{Phase.FORWARD}_ns": ms * 1e6, f"collective_{Phase.OTHER}_ns": 0} for ms in waits_ms]
    run = run_of(of_ranks(*ranks))
    (found,) = [
        each
        for each in build_report(run, Diagnosis(verdict=None), generated_at=GENERATED_AT).tables
        if each.key == "ranks_1"
    ]
    return found


def test_each_rank_says_what_it_waits_in_collectives() -> None:
    found = table(25.0, 1.0)
    at = [column.label for column in found.columns].index("In collectives")
    assert [row[at] for row in found.rows] == [pytest.approx(25.0), pytest.approx(1.0)]
    assert "who waits there for longer than another rank waits for that one" in found.note


def test_without_any_there_is_no_column_and_no_word_of_it() -> None:
    found = table(0.0, 0.0)
    assert "In collectives" not in [column.label for column in found.columns]
    assert "collectives" not in found.note
