"""The course of a trial: of many steps the slowest, the mean and the fastest of each stretch."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import StepTable, TrialResult
from perf_diagnostics.report.build import build_report
from perf_diagnostics.report.model import Chart, Report
from perf_diagnostics.testing import run_of, trial_of


def course(result: TrialResult) -> tuple[Chart, Report]:
    report = build_report(run_of(result), Diagnosis(verdict=None), generated_at="")
    return next(chart for chart in report.charts if chart.key == "course_1"), report


def alternating(steps: int, *, looked_into: int | None = None) -> TrialResult:
    """Steps of 10 and 30 ms in turn, after two of warm-up."""
    result = trial_of(forward=0.02, steps=steps)
    table = result.steps[0]
    wall = np.where(np.arange(len(table)) % 2 == 0, 10_000_000, 30_000_000).astype(np.int64)
    warmup = np.arange(len(table)) < 2
    if looked_into is not None:
        warmup[looked_into] = True
    changed = StepTable({**table.columns, "wall_ns": wall, "warmup": warmup})
    return dataclasses.replace(result, steps=(changed,))


def test_a_training_of_long_and_short_steps_is_not_drawn_as_if_all_were_long() -> None:
    chart, _ = course(alternating(902))
    assert [series.name for series in chart.series] == [
        "warm-up (not counted)", "slowest of 7", "mean", "fastest of 7",
    ]  # fmt: skip
    _, slowest, mean, fastest = (series.values for series in chart.series)
    middle = slice(5, -5)
    assert set(slowest[middle]) == {30.0} and set(fastest[middle]) == {10.0}
    assert all(17 < value < 23 for value in mean[middle] if value is not None)
    assert "20.0 ms in the mean, half of them at most" in chart.takeaway


def test_the_mean_of_stretches_is_that_of_the_steps() -> None:
    chart, _ = course(alternating(302))
    _, slowest, mean, fastest = (series.values for series in chart.series)
    pairs = [(s, m, f) for s, m, f in zip(slowest, mean, fastest, strict=True) if None not in (s, m, f)]
    assert len(pairs) >= 145
    for most, middle, least in pairs:
        assert least is not None and middle is not None and most is not None and least <= middle <= most


def test_a_short_course_draws_each_step() -> None:
    chart, _ = course(alternating(40))
    assert [series.name for series in chart.series] == ["warm-up (not counted)", "measured"]
    assert chart.x_label == "Step"
    assert chart.series[1].values[2:4] == (pytest.approx(10.0), pytest.approx(30.0))


def test_a_step_that_was_looked_into_later_is_not_called_warm_up() -> None:
    chart, report = course(alternating(40, looked_into=20))
    assert chart.series[0].name == "warm-up or looked into (not counted)"
    told = next(words for words in report.method if "warm-up" in words)
    assert told.startswith("The first 2 steps of a trial are warm-up and enter no statistic. 1 later step, slowed by")
    plain = next(words for words in course(alternating(40))[1].method if "warm-up" in words)
    assert "later" not in plain and plain.startswith("The first 2 steps of a trial are warm-up")
