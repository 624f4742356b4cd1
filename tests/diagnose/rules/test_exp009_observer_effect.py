"""EXP009: what measuring adds to a step."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp009_observer_effect import ObserverEffect
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = ObserverEffect()


def ask(added_s, give_or_take_s=0.001, **more):
    """Steps of 1.0 s, to which measuring adds so much."""
    measured = {
        "probe_overhead_s": added_s,
        "probe_overhead_low_s": added_s - give_or_take_s,
        "probe_overhead_high_s": added_s + give_or_take_s,
    }
    return ask_trial(RULE, forward=1.0, quantities=measured, **more)


@pytest.mark.parametrize("added_s", [-0.02, 0.0, 0.005])
def test_up_to_half_the_limit_is_clear(added_s):
    clear(ask(added_s))


@pytest.mark.parametrize(("added_s", "severity"), [(0.02, Severity.INFO), (0.06, Severity.WARNING)])
def test_severity_follows_the_whole_interval(added_s, severity):
    finding = found(ask(added_s))
    assert finding.severity is severity
    assert number(finding, "added by measuring").value == pytest.approx(100 * added_s)


def test_a_difference_that_noise_could_be_is_clear_only_if_it_could_not_be_much():
    clear(ask(0.012, give_or_take_s=0.011))
    wide = missing(ask(0.06, give_or_take_s=0.059))
    assert wide.why.startswith("the comparison scattered too much: measuring itself costs 60 ms a step (1 to 119 ms)")


def test_the_cost_is_said_also_where_it_is_clear():
    answer = clear(ask(12e-6, give_or_take_s=3e-6))
    assert answer.summary == (
        "measuring itself costs 12.0 µs a step (9.0 to 15.0 µs), 0.001 % of a step; measured on synthetic"
    )
    assert found(ask(0.06)).summary.startswith(
        "Measuring itself costs 60.0 ms a step (59.0 to 61.0 ms), 6.0 % of a step;"
    )


def test_not_measured_is_not_clear():
    assert missing(ask_trial(RULE)).signal == "probe_overhead_s"
