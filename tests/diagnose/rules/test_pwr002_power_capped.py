"""PWR002: at the power limit, and at one that was lowered."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr002_power_capped import PowerCapped
from perf_diagnostics.records import Environment
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, number
from tests.diagnose.rules.boards import BEGAN_S, STEPS, bits, sampled

RULE = PowerCapped()


def ask(share, **limits):
    result = trial_of(
        device="cuda:0",
        columns=STEPS,
        series=(sampled("gpu_throttle_reasons", bits((0x4, share))),),
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
