"""Ratios of per-process means: arithmetic one can follow, coverage, and Holm's method."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from perf_diagnostics.diagnose.statistics.welch import geometric_mean, holm, ratio_test


def test_the_ratio_is_that_of_geometric_means():
    # Geometric means: sqrt(1 x 4) = 2 and sqrt(2 x 18) = 6.
    test = ratio_test([1.0, 4.0], [2.0, 18.0])
    assert test.ratio.value == pytest.approx(3.0)
    assert geometric_mean([2.0, 18.0]) / geometric_mean([1.0, 4.0]) == pytest.approx(3.0)


def test_interval_and_p_value_are_those_of_welch_on_logarithms():
    base, new = [1.0, 1.1, 0.9, 1.05], [1.2, 1.5, 1.3]
    expected = stats.ttest_ind(np.log(new), np.log(base), equal_var=False)
    interval = expected.confidence_interval(0.95)
    test = ratio_test(base, new)
    assert test.p_value == pytest.approx(expected.pvalue)
    assert (test.ratio.low, test.ratio.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert test.ratio.n == 7


def test_a_factor_and_its_inverse_are_equally_far_from_one():
    base, new = [1.0, 1.1, 0.9], [1.2, 1.5, 1.3]
    there, back = ratio_test(base, new), ratio_test(new, base)
    assert there.ratio.value * back.ratio.value == pytest.approx(1.0)
    assert there.ratio.low is not None
    assert back.ratio.high == pytest.approx(1 / there.ratio.low)
    assert there.p_value == pytest.approx(back.p_value)


@pytest.mark.parametrize(("base", "new"), [([1.0], [1.1]), ([1.0], [1.1, 1.2]), ([1.0, 1.1], [1.2])])
def test_one_process_on_a_side_gives_a_ratio_and_no_evidence(base: list[float], new: list[float]):
    test = ratio_test(base, new)
    assert test.ratio.value > 1
    assert (test.ratio.low, test.ratio.high, test.p_value) == (None, None, None)


def test_equal_values_without_spread_are_surely_the_same():
    # 0.1 + 0.2 style rounding in the mean of the logarithms must not become a spread, nor a difference.
    test = ratio_test([0.3] * 7, [0.3] * 7)
    assert (test.ratio.value, test.ratio.low, test.ratio.high, test.p_value) == (1.0, 1.0, 1.0, 1.0)


def test_unequal_values_without_spread_are_surely_different():
    test = ratio_test([100.0, 100.0, 100.0], [110.0, 110.0, 110.0])
    assert test.p_value == 0.0
    assert test.ratio.low == test.ratio.high == pytest.approx(1.1)


def test_a_spread_on_one_side_only_is_enough_for_an_interval():
    test = ratio_test([100.0, 100.0], [99.0, 101.0])
    assert test.ratio.low is not None and test.ratio.high is not None
    # All spread comes from two values: one degree of freedom, t = 12.706.
    half = 12.706 * math.sqrt(np.log([99.0, 101.0]).var(ddof=1) / 2)
    assert math.log(test.ratio.high / test.ratio.value) == pytest.approx(half, rel=1e-3)


@pytest.mark.parametrize("base", [[], [0.0, 1.0], [-1.0, 1.0]])
def test_what_has_no_logarithm_is_refused(base: list[float]):
    with pytest.raises(ValueError, match="ratio"):
        ratio_test(base, [1.0, 2.0])


def test_the_interval_covers_the_true_ratio():
    # 5 against 5 processes, 3 % and 6 % spread, true ratio 1.25.
    rng = np.random.default_rng(7)
    base, new = np.exp(0.03 * rng.standard_normal((1000, 5))), 1.25 * np.exp(0.06 * rng.standard_normal((1000, 5)))
    intervals = [ratio_test(b, n).ratio for b, n in zip(base, new, strict=True)]
    covered = np.mean([i.low is not None and i.high is not None and i.low <= 1.25 <= i.high for i in intervals])
    assert 0.935 <= covered <= 0.97


def test_holm_multiplies_by_how_many_are_left():
    # 3 x 0.01, then 2 x 0.03, then 1 x 0.04, which must not fall below the one before it.
    assert holm([0.04, 0.01, 0.03]) == pytest.approx((0.06, 0.03, 0.06))


def test_holm_stays_a_probability_and_takes_nothing():
    assert holm([0.9, 0.8]) == (1.0, 1.0)
    assert holm([]) == ()
