"""The course of step times: outliers beside a change of level, a drift, a rhythm; and which change describes it."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.statistics.stability import (
    change_of,
    course,
    line_through,
    outliers_among,
    start_beyond_rest,
)

STEPS = 240
SCATTER = 1 + 0.03 * np.random.default_rng(4).standard_normal(STEPS)
LINE = np.linspace(0, 1, STEPS)
COURSES = {
    "level": np.ones(STEPS),
    "up at half": np.repeat([1.0, 1.4], STEPS // 2),
    "down at a third": np.repeat([1.6, 1.0, 1.0], STEPS // 3),
    "drift": 1 + 0.8 * LINE,
    "grows tenfold": 1 + 9 * LINE,
}
STRUCK = np.arange(11, STEPS, 40)


@pytest.mark.parametrize("went", COURSES)
def test_stalls_are_outliers_whatever_course_the_steps_take_and_nothing_else_is(went):
    usual = COURSES[went] * SCATTER
    stalled = usual.copy()
    stalled[STRUCK] += 8.0
    assert np.flatnonzero(outliers_among(stalled)).tolist() == STRUCK.tolist()
    assert not outliers_among(usual).any()


def test_a_burst_of_long_steps_is_one_of_outliers():
    times = SCATTER.copy()
    times[100:130] *= 2
    assert np.flatnonzero(outliers_among(times)).tolist() == list(range(100, 130))


def test_the_course_is_a_level_or_what_is_known_of_it():
    assert course([3.0, 1.0, 2.0]).tolist() == [2.0] * 3
    assert course([np.nan, 1.0, 3.0, 2.0]).tolist() == [2.0] * 4
    assert course([np.nan, np.nan]).tolist() == [0.0, 0.0]
    assert course([]).size == 0


@pytest.mark.parametrize("ends_at", [3.0, 0.2])
def test_the_course_follows_a_slope_to_both_ends(ends_at):
    line = np.linspace(1, ends_at, STEPS)
    assert course(line) == pytest.approx(line, rel=1e-6)
    assert np.abs(course(line * SCATTER) / line - 1)[[0, 1, -2, -1]].max() < 0.05


def test_a_change_of_level_is_told_with_its_step():
    change = change_of(np.where(np.arange(STEPS) < 90, 4.3, 5.5) * SCATTER)
    assert change is not None and change.at is not None
    assert abs(change.at - 90) <= 3
    assert (change.before, change.after, change.rise) == pytest.approx((4.3, 5.5, 0.28), rel=0.04)


@pytest.mark.parametrize("rise", [0.8, -0.4, 9.0])
def test_a_drift_is_told_with_what_each_step_adds(rise):
    change = change_of((2 + 2 * rise * LINE) * SCATTER)
    assert change is not None and change.at is None
    assert change.per_value == pytest.approx(2 * rise / (STEPS - 1), rel=0.1)
    assert (change.before, change.after) == pytest.approx((2, 2 + 2 * rise), rel=0.15)


def test_what_neither_describes_is_not_described():
    there_and_back = 1 + 0.5 * np.sin(2 * np.pi * LINE * 3)
    assert change_of(there_and_back * SCATTER) is None
    assert change_of(np.ones(STEPS)) is None
    assert change_of([1.0, 2.0] * 9) is None


def test_a_change_says_how_much_of_the_course_it_describes():
    sure, half = change_of((1 + 0.5 * LINE) * SCATTER), change_of(np.repeat([1.0, 1.5, 1.0, 1.5], STEPS // 4) * SCATTER)
    assert sure is not None and sure.explains > 0.9
    assert half is None or half.explains < 0.75


def test_the_start_is_held_against_the_last_half_and_its_scatter():
    # Three of ten blocks at 1.4, the last five at 1.0.
    slow = start_beyond_rest(np.repeat([1.4, 1.0], (72, 168)) * SCATTER)
    assert slow.value == pytest.approx(0.4, abs=0.02) and slow.low is not None and slow.low > 0.3
    # The same, but every second block of the rest is as long: their scatter is 0.2.
    bursts = start_beyond_rest(np.repeat([1.4, 1.4, 1.4, 1.0, 1.0, 1.4, 1.0, 1.4, 1.0, 1.4], 24) * SCATTER)
    assert bursts.low is not None and bursts.low < 0


def test_a_line_leaves_out_what_lies_far_off_it():
    x = np.tile(np.arange(1.0, 9.0), 20)
    y = 3 + x + np.random.default_rng(0).normal(0, 0.05, x.size)
    wild = np.zeros(x.size, dtype=bool)
    wild[5::11] = True
    line = line_through(x, y + 40 * wild)
    assert line is not None
    assert np.array_equal(line.far, wild)
    assert line.explains > 0.99
    assert line.scatter == pytest.approx(0.05 / 7.5, rel=0.5)


def test_a_line_keeps_all_where_many_lie_far_off():
    x = np.tile(np.arange(1.0, 9.0), 20)
    wild = np.arange(x.size) % 3 == 0
    line = line_through(x, 3 + x + 40 * wild)
    assert line is not None
    assert not line.far.any()
    assert line.explains < 0.1


def test_there_is_no_line_where_either_does_not_vary():
    assert line_through(np.ones(20), np.arange(20.0)) is None
    assert line_through(np.arange(20.0), np.ones(20)) is None


def test_a_line_below_zero_has_no_scatter():
    line = line_through(np.arange(20.0), np.arange(20.0) - 5)
    assert line is not None
    assert line.explains == pytest.approx(1.0)
    assert np.isnan(line.scatter)
