"""Grades against limits, evidence, and thresholds from a configuration."""

from __future__ import annotations

import math

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rule import Grade, configured, evidence, grade
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.errors import InvalidSettings

LEVELS = ((Severity.INFO, 0.05), (Severity.WARNING, 0.10), (Severity.CRITICAL, 0.20))


def share(value, half_width):
    return Interval(value, value - half_width, value + half_width, 100)


@pytest.mark.parametrize(
    ("measured", "expected"),
    [
        (share(0.0, 0.0), None),
        (share(0.049, 0.02), None),
        (share(0.06, 0.005), Grade(Severity.INFO, 0.05, sure=True)),
        (share(0.15, 0.01), Grade(Severity.WARNING, 0.10, sure=True)),
        (share(0.30, 0.01), Grade(Severity.CRITICAL, 0.20, sure=True)),
        # The estimate is above 0.20, but only 0.10 is cleared for sure.
        (share(0.21, 0.05), Grade(Severity.WARNING, 0.10, sure=True)),
        # Nothing is cleared for sure: worth an info, and unsure.
        (share(0.30, 0.28), Grade(Severity.INFO, 0.05, sure=False)),
        (Interval(0.9, None, None, 2), Grade(Severity.INFO, 0.05, sure=False)),
    ],
)
def test_a_level_is_reached_when_the_whole_interval_clears_it(measured, expected):
    assert grade(measured, LEVELS) == expected


def test_shares_are_shown_in_percent():
    item = evidence("wait", share(0.25, 0.05), "%", limit=0.1)
    assert (item.value, item.low, item.high, item.limit, item.n) == pytest.approx((25, 20, 30, 10, 100))
    assert evidence("wait", share(0.25, 0.05), "s").value == 0.25


def threshold(rules, code, name):
    return next(getattr(rule, name) for rule in rules if rule.code == code)


def test_thresholds_can_be_changed_by_code_and_name():
    changed = configured(RULES, {"INP001": {"warn_share": 0.5}, "EXP001": {"enough_steps": 50}})
    assert threshold(changed, "INP001", "warn_share") == 0.5
    assert threshold(changed, "INP001", "info_share") == 0.05
    assert threshold(changed, "EXP001", "enough_steps") == 50
    assert threshold(RULES, "INP001", "warn_share") == 0.10
    assert [rule.code for rule in changed] == [rule.code for rule in RULES]


def test_whole_numbers_stay_whole():
    value = threshold(configured(RULES, {"EXP001": {"enough_steps": 50.0}}), "EXP001", "enough_steps")
    assert isinstance(value, int)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"INP999": {"warn_share": 0.5}}, "no rule 'INP999'"),
        ({"INP001": {"warn": 0.5}}, "no threshold 'warn'; it has info_share"),
        ({"EXP002": {"warn": 0.5}}, "it has none at all"),
        ({"INP001": {"warn_share": "a lot"}}, "must be a finite number"),
        ({"INP001": {"warn_share": True}}, "must be a finite number"),
        ({"INP001": {"warn_share": math.nan}}, "must be a finite number"),
        ({"PWR006": {"price_per_hour": -3}}, r"PWR006.price_per_hour=-3 must not be negative"),
        ({"EXP001": {"enough_steps": 2.5}}, "must be a whole number"),
    ],
)
def test_what_cannot_be_a_threshold_is_refused(change, says):
    with pytest.raises(InvalidSettings, match=says):
        configured(RULES, change)
