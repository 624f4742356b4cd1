"""Median, median deviation and percentiles of step times."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.statistics.spread import spread_of
from tests.diagnose.answers import facts_of


def test_by_hand():
    # 0, 1, 2 … 100: the middle is 50, half of all lie within 25 of it.
    found = spread_of(np.arange(101.0))
    assert (found.n, found.median_s, found.mad_s) == (101, 50.0, 25.0)
    assert (found.p5_s, found.p95_s, found.p99_s) == (5.0, 95.0, 99.0)


def test_slow_steps_are_in_it():
    # 90 steps of 1 s and ten of 3 s: the mean is 1.2 s, the median and its deviation do not see them, 95 % do.
    found = spread_of([1.0] * 90 + [3.0] * 10)
    assert (found.median_s, found.mad_s, found.p5_s, found.p95_s, found.p99_s) == (1.0, 0.0, 1.0, 3.0, 3.0)


@pytest.mark.parametrize(
    ("steps", "known"), [(1, (0, 0, 0)), (19, (0, 0, 0)), (20, (1, 1, 0)), (99, (1, 1, 0)), (100, (1, 1, 1))]
)
def test_a_percentile_with_no_step_beyond_it_is_absent(steps, known):
    found = spread_of(np.ones(steps))
    assert tuple(value is not None for value in (found.p5_s, found.p95_s, found.p99_s)) == tuple(map(bool, known))
    assert (found.median_s, found.mad_s) == (1.0, 0.0)  # equal steps: measured, and 0


def test_no_step_has_no_spread():
    with pytest.raises(ValueError, match="No step"):
        spread_of([])
    with pytest.raises(NotMeasured):
        _ = facts_of(steps=0, warmup_steps=3).step_time_spread


def test_a_trials_steady_steps_only():
    found = facts_of(forward=0.2, steps=20, warmup_steps=3).step_time_spread
    assert (found.n, found.median_s) == (20, pytest.approx(0.2))
