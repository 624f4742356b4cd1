"""PWR002: at the power limit, and at one that was lowered."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr002_power_capped import PowerCapped
from perf_diagnostics.records import Environment
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, number
from tests.diagnose.rules.boards import BEGAN_S, STEPS, bits, sampled, total

RULE = PowerCapped()


def ask(share, *more, **limits):
    result = trial_of(
        device="cuda:0",
        columns=STEPS,
        series=(sampled("gpu_throttle_reasons", bits((0x4, share))), *more),
        quantities={"steps_began_s": BEGAN_S},
    )
    here = Environment(devices=({"name": "cuda:1"}, {"name": "cuda:0", **limits}))
    return RULE.check(TrialFacts.of(dataclasses.replace(result, environment=here)))


def test_at_the_default_limit_it_is_what_a_busy_gpu_looks_like():
    finding = found(ask(0.5, power_limit_w=400.0, default_power_limit_w=400.0))
    assert finding.severity is Severity.INFO
    assert finding.remedies == ()


def test_a_lowered_limit_is_a_warning():
    finding = found(ask(0.5, power_limit_w=240.0, default_power_limit_w=400.0))
    assert finding.severity is Severity.WARNING
    assert "240 W, below the board's 400 W" in finding.summary
    assert number(finding, "power limit").limit == 400.0


def test_limits_nobody_recorded_are_not_taken_for_lowered():
    assert found(ask(0.5)).severity is Severity.INFO


@pytest.mark.parametrize("share", [0.0, 0.19])
def test_below_a_fifth_of_the_samples_it_is_clear_even_if_lowered(share):
    clear(ask(share, power_limit_w=240.0, default_power_limit_w=400.0))


def test_the_drivers_total_stands_in_place_of_the_samples():
    # 22 % of the samples (18 to 27 %), 13.3 of 70 s; and no sample, 35 of 70 s.
    reply = clear(ask(0.22, total("gpu_power_violation", 13.3)))
    assert reply.summary == "the power limit held the clock down in 19 % of the time"
    finding = found(ask(0.0, total("gpu_power_violation", 35.0)))
    assert finding.summary.startswith("The power limit held the clock down in 50 % of the busy time")
    assert number(finding, "time at the power limit").value == pytest.approx(50.0, rel=0.01)
    assert number(finding, "samples at the power limit").value == 0.0


def test_the_total_of_heat_is_none_of_the_power_limits():
    clear(ask(0.0, total("gpu_thermal_violation", 35.0)))


def test_samples_that_surely_say_more_than_the_total_are_believed():
    """The total counts time below the application clocks only."""
    finding = found(ask(0.9, total("gpu_power_violation", 7.0)))
    assert "in 90 % of the busy samples" in finding.summary
    assert [item.metric for item in finding.evidence] == ["samples at the power limit"]
