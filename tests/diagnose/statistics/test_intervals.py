"""Intervals cover what they promise, shares come from sums, trends resist wild points."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perf_diagnostics.diagnose.statistics.intervals import (
    Interval,
    against_the_best,
    event_interval,
    mean_interval,
    median_absolute_deviation,
    pooled,
    proportion,
    quotient,
    ratio_interval,
    scatter_around_a_hill,
    squared_correlation,
    student_quantile,
    theil_sen_slope,
)


def ar1(rho: float, steps: int, series: int, *, seed: int) -> np.ndarray:
    """Independent stationary AR(1) series of mean 0, shape (series, steps)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((series, steps))
    values[:, 0] /= math.sqrt(1 - rho**2)
    for step in range(1, steps):
        values[:, step] += rho * values[:, step - 1]
    return values


@pytest.mark.parametrize(
    ("rho", "steps", "stated"),
    [
        (0.0, 200, 0.961),
        (0.6, 200, 0.957),
        (0.9, 200, 0.925),
        (0.0, 20, 0.966),
        (0.6, 20, 0.892),
        # Twenty steps of such a series hold about one independent value.
        (0.9, 20, 0.684),
    ],
)
def test_an_interval_covers_the_true_mean_as_often_as_its_docstring_says(rho, steps, stated):
    """Within three standard errors of 1,500 series: too wide an interval is as wrong as one too narrow."""
    intervals = [mean_interval(series) for series in ar1(rho, steps, 1500, seed=3)]
    covered = np.mean([i.low <= 0.0 <= i.high for i in intervals])
    assert covered == pytest.approx(stated, abs=3 * math.sqrt(stated * (1 - stated) / 1500))


def test_independent_steps_would_cover_far_less():
    """The reason for batch means: the textbook interval on the same series."""
    series = ar1(0.9, 200, 1500, seed=3)
    half = student_quantile(199) * series.std(axis=1, ddof=1) / math.sqrt(200)
    assert np.mean(np.abs(series.mean(axis=1)) <= half) < 0.5


def test_share_interval_covers_the_true_share():
    """Waiting takes 0.3 s and computing 0.7 s in the mean, each with its own autocorrelated noise."""
    waits = 0.3 + 0.02 * ar1(0.6, 200, 1000, seed=5)
    rests = 0.7 + 0.05 * ar1(0.6, 200, 1000, seed=6)
    intervals = [ratio_interval(wait, wait + rest) for wait, rest in zip(waits, rests, strict=True)]
    covered = np.mean([i.low <= 0.3 <= i.high for i in intervals])
    assert covered == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 1000))


def test_a_ratio_is_of_sums_not_a_mean_of_ratios():
    # 10 samples in 1 s, then 10 samples in 3 s: 20 samples in 4 s; the mean of the rates would be 6.67.
    assert ratio_interval([10, 10], [1.0, 3.0]).value == 5.0


def test_mean_of_a_constant_series_has_an_interval_of_no_width():
    assert mean_interval([2.0] * 50) == Interval(2.0, 2.0, 2.0, 50)


def test_two_steps_have_a_mean_but_no_interval():
    assert mean_interval([1.0, 3.0]) == Interval(2.0, None, None, 2)


def test_three_steps_have_an_interval_of_student_with_two_degrees():
    # Mean 2, standard error 1/sqrt(3): half-width 4.303 / 1.732.
    interval = mean_interval([1.0, 2.0, 3.0])
    assert interval.high - 2 == pytest.approx(4.303 / math.sqrt(3), rel=1e-3)
    assert interval.low == pytest.approx(4 - interval.high)


def test_ratio_needs_something_to_divide_by():
    with pytest.raises(ValueError, match="add up to 0"):
        ratio_interval([1.0, 2.0], [0.0, 0.0])
    with pytest.raises(ValueError, match="equal length"):
        ratio_interval([1.0], [1.0, 2.0])


def test_interval_against_a_limit():
    wide = Interval(0.12, 0.08, 0.16, 100)
    assert wide.surely_at_least(0.08)
    assert not wide.surely_at_least(0.10)
    assert wide.surely_below(0.17)
    assert not wide.surely_below(0.16)
    assert not Interval(0.5, None, None, 2).surely_at_least(0.1)
    assert not Interval(0.05, None, None, 2).surely_below(0.1)


def test_interval_scaled_and_held():
    assert Interval(2.0, 1.0, 3.0, 9).scaled(10) == Interval(20.0, 10.0, 30.0, 9)
    assert Interval(0.1, -0.2, 1.4, 9).within(0, 1) == Interval(0.1, 0.0, 1.0, 9)
    assert Interval(1.2, None, None, 2).within(0, 1) == Interval(1.0, None, None, 2)


def test_an_interval_may_reach_further_up():
    assert Interval(0.2, 0.1, 0.3, 9).reaching(0.5) == Interval(0.2, 0.1, 0.5, 9)
    assert Interval(0.2, 0.1, 0.3, 9).reaching(0.25) == Interval(0.2, 0.1, 0.3, 9)
    assert Interval(0.2, None, None, 2).reaching(0.25) == Interval(0.2, None, 0.25, 2)


def test_one_process_keeps_its_interval_and_two_span_both():
    one, two = Interval(10.0, 9.0, 11.0, 20), Interval(12.0, 11.5, 12.5, 30)
    assert pooled([one]) == one
    assert pooled([one, two]) == Interval(11.0, 9.0, 12.5, 50)
    assert pooled([one, Interval(12.0, None, None, 2)]) == Interval(11.0, None, None, 22)


def test_three_processes_are_judged_by_the_spread_of_their_means():
    # Means 9, 10, 11: standard error 1/sqrt(3), Student with 2 degrees; their own narrow intervals do not matter.
    pool = pooled([Interval(value, value, value, 100) for value in (9.0, 10.0, 11.0)])
    assert pool.value == 10.0
    assert pool.high == pytest.approx(10 + 4.303 / math.sqrt(3), rel=1e-3)
    assert pool.n == 300


def test_pooling_nothing_is_an_error():
    with pytest.raises(ValueError, match="no process"):
        pooled([])


def test_quotient_of_exact_numbers_is_exact():
    assert quotient(Interval(3.0, 3.0, 3.0, 9), Interval(2.0, 2.0, 2.0, 7)) == Interval(1.5, 1.5, 1.5, 7)


def test_quotient_combines_both_widths():
    # Each is known to ±10 % on the logarithm, so their ratio to sqrt(2) times that.
    part = Interval(1.0, math.exp(-0.1), math.exp(0.1), 50)
    ratio = quotient(part, part)
    assert math.log(ratio.high) == pytest.approx(0.1 * math.sqrt(2))
    assert math.log(ratio.low) == pytest.approx(-0.1 * math.sqrt(2))


def test_quotient_without_an_interval_has_none():
    sure = Interval(2.0, 1.9, 2.1, 9)
    assert quotient(sure, Interval(1.0, None, None, 2)) == Interval(2.0, None, None, 2)
    assert quotient(sure, Interval(1.0, -0.5, 2.5, 9)).low is None
    with pytest.raises(ValueError, match="logarithm"):
        quotient(sure, Interval(0.0, 0.0, 0.0, 9))


def test_theil_sen_ignores_wild_points():
    times = np.arange(100) * 0.5
    times[[10, 50, 90]] = 1e6
    assert theil_sen_slope(times) == pytest.approx(0.5)


def test_theil_sen_of_a_long_series_keeps_its_unit():
    assert theil_sen_slope(np.arange(5000) * 0.25) == pytest.approx(0.25, rel=1e-6)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 16, 17, 400])
def test_theil_sen_is_the_median_of_all_slopes(size):
    values = np.random.default_rng(size).standard_normal(size)
    slopes = [(values[b] - values[a]) / (b - a) for a in range(size) for b in range(a + 1, size)]
    assert theil_sen_slope(values) == np.median(slopes)
    values[-1] = np.nan
    assert math.isnan(theil_sen_slope(values))


def test_theil_sen_of_one_point_is_flat():
    assert theil_sen_slope([3.0]) == 0.0


def test_median_absolute_deviation_is_a_standard_deviation_for_normal_noise():
    noise = np.random.default_rng(0).standard_normal(20_000)
    assert median_absolute_deviation(3 * noise) == pytest.approx(3, rel=0.05)
    assert median_absolute_deviation([5.0] * 9) == 0.0


def test_squared_correlation():
    x = np.arange(10.0)
    assert squared_correlation(x, 3 * x + 1) == pytest.approx(1.0)
    assert squared_correlation(x, np.ones(10)) is None
    assert squared_correlation(x, (x - 4.5) ** 2) == pytest.approx(0.0, abs=1e-12)


# -- events and proportions


def test_equal_events_have_garwoods_interval():
    # Ten events of 1 in 100 steps of 1; Poisson's exact bounds for 10 are 4.795 and 18.390 (Garwood, 1936).
    lost = np.zeros(100)
    lost[5::10] = 1.0
    found = event_interval(lost, np.ones(100))
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.04795, 0.1839), rel=1e-3)


def test_neighbouring_steps_are_one_event():
    once, spread = np.zeros(100), np.zeros(100)
    once[40:44], spread[[10, 30, 50, 70]] = 1.0, 1.0
    one, four = (event_interval(lost, np.ones(100)) for lost in (once, spread))
    assert one.value == four.value == 0.04
    assert one.low < four.low and one.high > four.high


def test_no_event_is_nothing_and_what_steps_won_is_no_event():
    assert event_interval(np.zeros(10), np.ones(10)).value == 0.0
    assert event_interval(np.full(10, -1.0), np.ones(10)).value == 0.0
    with pytest.raises(ValueError, match="add up to 0"):
        event_interval(np.zeros(10), np.zeros(10))
    with pytest.raises(ValueError, match="equal length"):
        event_interval(np.zeros(10), np.ones(9))


def test_events_that_come_by_chance_are_covered_and_found_sooner_than_by_batches():
    rng = np.random.default_rng(5)
    inside, by_events, by_batches, share, runs = 0, 0, 0, 0.05, 400
    for _ in range(runs):
        lost = np.where(rng.random(600) < share, 1.0, 0.0)
        events, batches = event_interval(lost, np.ones(600)), ratio_interval(lost, np.ones(600))
        inside += events.low <= share <= events.high
        by_events += events.surely_at_least(share / 2)
        by_batches += batches.surely_at_least(share / 2)
    assert inside >= 0.95 * runs
    assert by_events >= 0.8 * runs > 0.7 * runs >= by_batches  # simulated: 88 and 62 %


def test_a_proportion_has_clopper_and_pearsons_interval():
    found = proportion(1, 10)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.00253, 0.44502), rel=1e-3)
    assert (proportion(0, 5).low, proportion(5, 5).high) == (0.0, 1.0)
    assert proportion(0, 5).high == pytest.approx(1 - 0.025**0.2)
    for hits, of in ((1, 0), (3, 2), (-1, 2)):
        with pytest.raises(ValueError, match="is no share"):
            proportion(hits, of)


def test_the_best_of_one_is_no_choice():
    ratio = Interval(0.9, 0.85, 0.95, 100)
    kept = against_the_best(ratio, 1)
    assert (kept.value, kept.low, kept.high) == pytest.approx((0.9, 0.85, 0.95))
    assert against_the_best(Interval(0.9, None, None, 2), 5).low is None
    with pytest.raises(ValueError, match="best of 0"):
        against_the_best(ratio, 0)


def test_scatter_that_no_interval_has_in_it_is_added_in_quadrature():
    # 1.96 sigma of 3 % each: exp(1.96 * hypot(0.03, 0.04)) = exp(1.96 * 0.05).
    reach = 1.959964
    ratio = Interval(1.0, math.exp(-reach * 0.03), math.exp(reach * 0.03), 100)
    assert against_the_best(ratio, 1, scatter=0.04).high == pytest.approx(math.exp(reach * 0.05), rel=1e-6)


def test_what_no_hill_explains_is_scatter():
    assert scatter_around_a_hill([1.0, 3.0, 4.0, 2.0, 0.0]) == 0.0  # up and down once
    assert scatter_around_a_hill([5.0, 4.0, 4.0, 1.0]) == 0.0  # down only
    # 1 lies 2 below the 3 before it and the 5 after it, and 4 lies 1 below both 5s; three values lie inside.
    assert scatter_around_a_hill([3.0, 1.0, 5.0, 4.0, 5.0]) == pytest.approx(math.sqrt((2**2 + 1**2) / 3))
    assert scatter_around_a_hill([2.0, 1.0]) == scatter_around_a_hill([]) == 0.0


@pytest.mark.parametrize(("values", "part"), [(3, 0.28), (5, 0.65), (7, 0.85)])
def test_how_much_of_a_normal_scatter_is_found_among_equal_values(values, part):
    rng = np.random.default_rng(4)
    found = [scatter_around_a_hill(one) for one in rng.standard_normal((2000, values))]
    assert np.mean(found) == pytest.approx(part, abs=0.04)


def test_the_last_of_equals_is_seldom_surely_worse_than_the_best_of_them():
    rng = np.random.default_rng(3)
    alone, together, reach = 0, 0, 1.959964 * math.sqrt(2)
    for _ in range(1000):
        *others, last = rng.standard_normal(7)
        below = last - max(others)
        ratio = Interval(math.exp(below), math.exp(below - reach), math.exp(below + reach), 100)
        alone += ratio.surely_below(1.0)
        together += against_the_best(ratio, 6).surely_below(1.0)
    assert alone > 80  # simulated: 12 %
    assert together <= 30


@pytest.mark.parametrize("grown", [np.linspace(0, 2, 300), np.repeat([0.0, 2.0], 150)])
def test_the_ratio_of_a_part_that_grew_is_known_for_the_course_it_took(grown):
    """A part that grew from 0 to 2 beside 1 is a half of the time, and with batches of all steps could be anything."""
    part = grown * (1 + 0.05 * np.random.default_rng(2).standard_normal(300))
    whole = ratio_interval(part, 1 + part)
    as_it_went = ratio_interval(part, 1 + part, as_it_went=True)
    assert whole.low is not None and as_it_went.low is not None and as_it_went.high is not None
    assert whole.low < 0.3
    assert as_it_went.value == whole.value == pytest.approx(0.5, abs=0.01)
    assert 0.4 < as_it_went.low < 0.5 < as_it_went.high < 0.6


def test_chance_is_taken_for_no_course():
    plain, went = [], []
    for times in ar1(0.6, 200, 300, seed=9):
        plain.append(ratio_interval(times, np.ones(200)))
        went.append(ratio_interval(times, np.ones(200), as_it_went=True))
    assert sum(other.low > one.low + 1e-9 for one, other in zip(plain, went, strict=True)) <= 6
