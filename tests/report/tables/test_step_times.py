"""The table of how step times spread, and the same numbers for programs."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.report.arms import arms_of
from perf_diagnostics.report.data import data_of
from perf_diagnostics.report.tables.step_times import step_times_table
from perf_diagnostics.report.tables.tables import tables_of
from perf_diagnostics.testing import run_of, trial_of


def arms(*results):
    return arms_of(run_of(*results))


def test_a_row_a_batch_size_over_the_steps_of_all_repeats():
    # Two processes of 60 steps, 100 and 110 ms; a third size with 10 steps has no percentiles.
    found = step_times_table(
        arms(
            trial_of(batch_size=8, forward=0.100, steps=60),
            trial_of(batch_size=8, forward=0.110, steps=60, repeat=1),
            trial_of(batch_size=16, forward=0.180, steps=10),
        )
    )
    first, second = found.rows
    assert first[1:3] == (8, 120)
    assert first[3:] == tuple(pytest.approx(value) for value in (105.0, 105.0, 5.0, 100.0, 110.0, 110.0))
    assert second[1:3] == (16, 10)
    assert second[3:6] == (pytest.approx(180.0), pytest.approx(180.0), pytest.approx(0.0))
    assert second[6:] == (None, None, None)
    assert [column.unit for column in found.columns[3:]] == ["ms"] * 6


def test_only_columns_that_are_there_are_explained():
    note = step_times_table(arms(trial_of(batch_size=8, steps=10))).note
    assert note == "Of all measured steps, the slow ones included. MAD is the median distance from the median."
    more = step_times_table(arms(trial_of(batch_size=8, steps=60))).note
    assert (
        "5 % and 95 % of the steps took less time than those columns say, for which it takes 20 and 20 steps." in more
    )


def test_every_report_has_it_unless_nothing_ran():
    nothing = Diagnosis(verdict=None, findings=())
    assert "step_times" in [one.key for one in tables_of(arms(trial_of(batch_size=8, steps=60)), nothing)]
    assert "step_times" not in [one.key for one in tables_of(arms(trial_of(batch_size=8, steps=0)), nothing)]


def test_programs_get_the_same_and_null_where_nothing_was_measured():
    (known, crashed) = data_of(arms(trial_of(batch_size=8, forward=0.1, steps=60), trial_of(batch_size=16, steps=0)))[
        "trials"
    ]
    assert known["step_time_spread"]["median_s"] == pytest.approx(0.1)
    assert known["step_time_spread"]["p99_s"] is None and known["step_time_spread"]["p95_s"] == pytest.approx(0.1)
    assert crashed["step_time_spread"] is None
