"""A board's energy over time, cut to a shorter window: never more certain than its knots."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.records.energies import DENSE_KNOTS, MOST_KNOTS, EnergyCurve

S = 1_000_000_000


def curve(times_s: list[float], joules: list[float]) -> EnergyCurve:
    return EnergyCurve(np.round(np.array(times_s) * S).astype(np.int64), np.array(joules))


def test_from_knot_to_knot_nothing_is_guessed() -> None:
    # 100 W for a second, then 300 W for two
    assert curve([10, 11, 13], [0, 100, 700]).between(11 * S, 13 * S) == (600, 0)
    assert curve([10, 11, 13], [0, 100, 700]).between(10 * S, 13 * S) == (700, 0)


def test_between_two_knots_all_may_have_been_used_at_once() -> None:
    # A quarter of the way through 600 J: 150 J by even use, and all 600 J if they came before: 450 J off at most.
    joules, off_by = curve([10, 11, 13], [0, 100, 700]).between(11 * S, 11 * S + S // 2)
    assert (joules, off_by) == (150, 450)


def test_both_cut_ends_count_for_the_uncertainty() -> None:
    joules, off_by = curve([0, 2, 4], [0, 200, 1000]).between(S, 3 * S)
    assert joules == 100 + 400
    assert off_by == 100 + 400  # half way through 200 J and through 800 J


def test_what_lies_outside_the_window_is_not_made_up() -> None:
    assert curve([10, 12], [0, 200]).between(5 * S, 20 * S) == (200, 0)


def test_a_board_that_used_nothing_used_nothing() -> None:
    assert curve([10, 12], [0, 0]).between(11 * S, 12 * S) == (0, 0)


def test_a_long_curve_is_thinned_but_for_its_ends() -> None:
    times = np.arange(10_000, dtype=np.int64) * S
    whole = EnergyCurve(times, np.cumsum(np.arange(10_000.0)) - 0.0)
    thin = whole.thinned()
    assert 300 < len(thin.times_ns) <= MOST_KNOTS
    assert thin.times_ns[:DENSE_KNOTS].tolist() == times[:DENSE_KNOTS].tolist()
    assert thin.times_ns[-DENSE_KNOTS:].tolist() == times[-DENSE_KNOTS:].tolist()
    start, end = 5 * S + S // 3, 9_990 * S + S // 3
    assert thin.between(start, end) == pytest.approx(whole.between(start, end))
    inside = thin.between(5_000 * S, 9_999 * S)
    assert abs(inside[0] - whole.between(5_000 * S, 9_999 * S)[0]) <= inside[1]  # its bound holds


def test_a_short_curve_stays_as_it_is() -> None:
    short = curve([0, 1], [0, 5])
    assert short.thinned() is short
