"""EXP001 by number of steps and by width of the interval."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp001_too_few_steps import TooFewSteps
from tests.diagnose.answers import ask_trial, clear, found, number

RULE = TooFewSteps()


@pytest.mark.parametrize(
    ("steps", "severity"),
    [
        (1, Severity.CRITICAL),
        (2, Severity.CRITICAL),
        (3, Severity.WARNING),
        (4, Severity.WARNING),
        (5, Severity.INFO),
        (19, Severity.INFO),
    ],
)
def test_fewer_steps_are_worse(steps, severity):
    finding = found(ask_trial(RULE, steps=steps))
    assert finding.severity is severity
    assert number(finding, "steady steps").value == steps


def test_enough_steps_are_clear():
    assert number(clear(ask_trial(RULE, steps=20, noise=0.02)), "steady steps").value == 20


def test_no_step_at_all_is_too_few():
    finding = found(ask_trial(RULE, steps=0, warmup_steps=1))
    assert finding.severity is Severity.CRITICAL
    assert "left out" in finding.summary


def test_warm_up_steps_do_not_count():
    assert found(ask_trial(RULE, steps=4, warmup_steps=50)).severity is Severity.WARNING


def test_noise_asks_for_more_steps():
    """At a noise of 40 % fifty steps leave the mean open by more than a tenth."""
    finding = found(ask_trial(RULE, steps=50, noise=0.4, seed=1))
    assert "Steps vary so much that " in finding.summary and " of them tell the mean step time to ±" in finding.summary
    half_width = number(finding, "half-width of the mean step time").value
    assert half_width > 10
    # The half-width shrinks with the root of the steps: n x (half-width / 2 %)^2.
    assert number(finding, "steps needed for 2 %").value == pytest.approx(50 * (half_width / 2) ** 2, abs=1)


def test_thresholds_can_be_changed():
    assert clear(ask_trial(TooFewSteps(enough_steps=10), steps=12))


def test_scatter_that_more_steps_will_not_cure_is_to_be_looked_into():
    """A half-width of more than 20 % would take a hundred times the steps; of five steps more may well do."""
    wild = found(ask_trial(RULE, steps=50, noise=1.5, seed=1))
    assert number(wild, "half-width of the mean step time").value > 50
    assert wild.summary == "Steps vary so much that 50 of them do not tell the mean step time."
    assert not any(shown.metric == "steps needed for 2 %" for shown in wild.evidence)  # thousands of times as many
    assert "more steps alone would not do" in wild.remedies[0].says
    assert "Measure more steps" in found(ask_trial(RULE, steps=5, noise=1.5, seed=1)).remedies[0].says
