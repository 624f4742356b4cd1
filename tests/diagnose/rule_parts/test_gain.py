"""A gain is capped by the next bottleneck, and confidence is a product."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Family, Share
from perf_diagnostics.diagnose.rule_parts.gain import (
    Tier,
    confidence,
    kappa,
    measured_gain,
    recoverable,
)
from perf_diagnostics.diagnose.statistics.intervals import Interval

EXACT = Interval(0.4, 0.4, 0.4, 100)


def test_the_upper_end_is_what_disappears_and_the_lower_what_is_surely_realised():
    # Input: 20 % of what is predicted is surely realised; the guess lies half-way.
    assert recoverable(EXACT, Family.INPUT) == Share(pytest.approx(0.24), pytest.approx(0.08), pytest.approx(0.4))


def test_the_ends_use_the_ends_of_the_measured_share():
    gain = recoverable(Interval(0.4, 0.3, 0.5, 100), Family.INPUT)
    assert (gain.low, gain.high) == (pytest.approx(0.06), pytest.approx(0.5))


def test_the_next_bottleneck_caps_the_gain():
    # 0.4 would disappear, but other limits hold the step at 0.9 of today's.
    assert recoverable(EXACT, Family.INPUT, floor=0.9).high == pytest.approx(0.1)
    assert recoverable(EXACT, Family.INPUT, floor=1.3) == Share(0.0, 0.0, 0.0)


def test_a_cautious_floor_lowers_the_lower_end_only():
    gain = recoverable(EXACT, Family.INPUT, cautious_floor=1.0)
    assert gain == Share(pytest.approx(0.24), 0.0, pytest.approx(0.4))


def test_what_families_realise():
    assert kappa(Family.INPUT) == 0.2
    assert kappa(Family.OPTIMIZER) == 0.8
    assert kappa(Family.COMPUTE) == 0.3
    assert recoverable(EXACT, Family.OPTIMIZER, realised=0.3).low == pytest.approx(0.12)


def test_an_estimate_without_interval_stands_for_both_ends():
    assert recoverable(Interval(0.4, None, None, 2), Family.INPUT).high == pytest.approx(0.4)


def test_a_measured_gain_needs_no_guess():
    # 0.8 of the best speed (0.75 to 0.85): 15 to 25 % less time.
    gain = measured_gain(Interval(0.8, 0.75, 0.85, 100))
    assert gain == Share(pytest.approx(0.2), pytest.approx(0.15), pytest.approx(0.25), measured=True)
    assert measured_gain(Interval(1.2, 1.1, 1.3, 100)) == Share(0.0, 0.0, 0.0, measured=True)


def test_confidence_is_a_product():
    assert confidence(Tier.SHARE, sure=True) == 0.5
    assert confidence(Tier.SHARE_AND_CAUSE, sure=False) == pytest.approx(0.42)  # 0.7 x 0.6
    assert confidence(Tier.SHARE, sure=True, coverage=0.9, thin=True) == pytest.approx(0.27)  # 0.5 x 0.6 x 0.9
