"""Autocorrelation, rhythm and intervals over whole cycles, on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.statistics.intervals import event_interval, ratio_interval
from perf_diagnostics.diagnose.statistics.time_series import (
    Period,
    autocorrelation,
    cycle_ratio,
    lost_ratio,
    period_of,
)


def test_a_series_is_like_itself_one_period_later():
    series = np.tile([5.0, 0.0, 0.0, 0.0], 25)
    assert autocorrelation(series, 4) == pytest.approx(0.96, abs=0.01)  # 96 of 100 values have a partner
    assert autocorrelation(series, 2) < 0
    assert autocorrelation(np.ones(10), 2) is None
    assert autocorrelation(series, 100) is None


@pytest.mark.parametrize(("steps", "offset"), [(40, 39), (20, 0), (7, 3), (2, 1)])
def test_the_period_of_losses_is_found(steps, offset):
    lost = np.zeros(160)
    lost[offset::steps] = 1.0
    period = period_of(lost)
    assert period is not None and (period.steps, period.beats[0], period.part) == (steps, offset, 1.0)


def test_a_missed_beat_and_a_little_noise_do_not_hide_the_period():
    lost = np.zeros(200)
    lost[5::20] = 1.0  # 10 beats
    lost[105] = 0.0
    lost[33] = 0.5
    period = period_of(lost)
    assert period is not None and period.steps == 20
    assert period.part == pytest.approx(9 / 9.5)


def test_steps_that_are_left_out_among_the_others_do_not_shift_the_beat():
    """Of 200 steps one is looked through, after half of the beats, and a beat lies in a warm-up of three steps."""
    lost = np.zeros(200)
    lost[5::20] = 1.0
    kept = np.flatnonzero(~np.isin(np.arange(200), [97, 144, 145, 146]))
    assert period_of(lost[kept]) is None
    period = period_of(lost[kept], kept)
    assert period is not None and (period.steps, period.part) == (20, 1.0)
    assert kept[period.beats].tolist() == [5, 25, 45, 65, 85, 105, 125, 165, 185]


@pytest.mark.parametrize("seed", range(30))
def test_random_losses_have_no_period(seed):
    rng = np.random.default_rng(seed)
    lost = np.zeros(200)
    lost[rng.choice(200, size=rng.integers(4, 30), replace=False)] = 1.0
    assert period_of(lost) is None


def test_nothing_lost_has_no_period():
    assert period_of(np.zeros(50)) is None
    assert period_of(np.array([1.0])) is None


def test_whole_cycles_give_a_share_its_true_interval():
    """Every 40 steps 4 s are lost in 160 steps of 0.1 s: 4 of 8 s, the same in each cycle."""
    lost = np.zeros(170)
    begins = np.arange(5, 170, 40)
    lost[begins] = 4.0
    wall = 0.1 + lost
    share = cycle_ratio(lost, wall, begins)
    assert share.value == pytest.approx(0.5) and share.low == pytest.approx(0.5) and share.n == 170
    batches = ratio_interval(lost, wall)
    assert batches.low is not None and batches.low < 0.4


def test_too_few_cycles_fall_back_to_the_steps():
    lost, wall = np.array([1.0, 0, 0, 1.0, 0, 0]), np.full(6, 2.0)
    assert cycle_ratio(lost, wall, np.array([0, 3])) == ratio_interval(lost, wall)


def test_losses_are_taken_by_cycles_by_events_or_by_batches():
    wall, rng = np.ones(200), np.random.default_rng(2)
    beat, rare, common = np.zeros(200), np.zeros(200), np.where(rng.random(200) < 0.5, 1.0, 0.0)
    beat[19::20] = 1.0
    rare[rng.choice(200, 8, replace=False)] = 1.0
    assert lost_ratio(beat, wall, period_of(beat)) == cycle_ratio(beat, wall, np.arange(19, 200, 20))
    assert lost_ratio(rare, wall) == event_interval(rare, wall)
    assert lost_ratio(common, wall) == ratio_interval(common, wall)


def test_a_few_long_pauses_are_counted_beside_the_many_short_ones():
    """Each of 240 steps of 1 loses 0.01 to a short pause, and three of them 8 more: 10 % and 1 %."""
    lost = np.full(240, 0.01)
    lost[[31, 117, 200]] = 8.01
    found, batches = lost_ratio(lost, np.ones(240)), ratio_interval(lost, np.ones(240))
    assert found.value == batches.value == pytest.approx(0.11)
    # Three events are 0.62 at least (Garwood): 0.1 x 0.62 / 3 of all time, and the short pauses.
    assert found.low == pytest.approx(0.01 + 0.1 * 0.6187 / 3, rel=1e-3)
    assert batches.low < 0.02 < found.low


def test_three_beats_that_agree_say_what_they_take():
    """Three of 120 steps of 1 s take 8, 8.2 and 7.8 s more: 24 of 144 s, with t(2) x 0.2 x sqrt(3) / 144 either way."""
    lost = np.zeros(120)
    lost[[20, 60, 100]] = 8.0, 8.2, 7.8
    share = lost_ratio(lost, 1 + lost, Period(40, 1.0, np.array([20, 60, 100])))
    assert share.value == pytest.approx(24 / 144)
    assert share.low == pytest.approx(24 / 144 - 4.303 * 0.2 * 3**0.5 / 144, rel=1e-3)
    assert share.high == pytest.approx(24 / 144 + 4.303 * 0.2 * 3**0.5 / 144, rel=1e-3)
