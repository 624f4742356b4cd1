"""CPU003: the container's quota."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cpu003_cpu_quota_throttled import CpuQuotaThrottled
from perf_diagnostics.records import Environment
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing

RULE = CpuQuotaThrottled()


def ask(throttled, *, periods=100, held_s=2.0, quota=1.5):
    """10 s of steps in 100 periods of the quota, with four threads."""
    result = trial_of(
        forward=0.1,
        facts={"threads": 4, "cpu_count": 8},
        quantities={
            "cpu_periods": periods,
            "cpu_throttled_periods": throttled,
            "cpu_throttled_s": held_s,
            "measured_wall_s": 10.0,
        },
    )
    limits = {} if quota is None else {"cgroup_cpu_quota_cores": quota}
    return RULE.check(TrialFacts.of(dataclasses.replace(result, environment=Environment(limits=limits))))


@pytest.mark.parametrize("throttled", [0, 2])
def test_up_to_half_the_limit_is_clear(throttled):
    clear(ask(throttled))


@pytest.mark.parametrize(
    ("throttled", "severity"),
    # Of 100 periods: with 10 the share may still be 4.9 % (Clopper & Pearson), with 12 it is 6.4 % at least.
    [(10, Severity.INFO), (12, Severity.WARNING), (20, Severity.WARNING), (80, Severity.CRITICAL)],
)
def test_held_back(throttled, severity):
    finding = found(ask(throttled))
    assert finding.severity is severity
    assert changes(finding) == [{"threads": 1}]


def test_the_gain_lies_between_its_bounds():
    # 8 s summed over four threads are at least 2 of 10 s, and no more than the 80 periods of 0.1 s.
    finding = found(ask(80, held_s=8.0))
    assert finding.recoverable.high == pytest.approx(0.8)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.2)
    # 0.5 s held back cannot cost more than 5 %, however many periods they lie in.
    assert found(ask(80, held_s=0.5)).recoverable.high == pytest.approx(0.05)


def test_no_quota_is_clear_and_few_periods_say_nothing():
    assert "no CPU quota" in clear(ask(0, periods=0, quota=None)).summary
    assert "too few" in clear(ask(5, periods=9)).summary


def test_not_counted_is_not_clear():
    assert missing(ask_trial(RULE)).signal == "cpu_periods"
