"""EXP004: warm-up and drift."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp004_unsteady import Unsteady
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = Unsteady()


def ask_with_rise(rise, *, steps=600):
    """Steps of 1 s that take ``rise`` more at the end than at the start."""
    noise = 1 + 0.02 * np.random.default_rng(1).standard_normal(steps)
    return ask_trial(RULE, steps=steps, columns={"wall_ns": 1e9 * np.linspace(1, 1 + rise, steps) * noise})


@pytest.mark.parametrize("rise", [0.0, 0.05])
def test_up_to_half_the_limit_is_clear(rise):
    clear(ask_with_rise(rise))


@pytest.mark.parametrize("rise", [0.2, 0.4, -0.3])
def test_a_drift_over_many_steps_is_a_warning(rise):
    finding = found(ask_with_rise(rise))
    assert finding.severity is Severity.WARNING
    assert number(finding, "change over the trial").value == pytest.approx(100 * rise / (1 + rise / 2), rel=0.1)
    assert ("rose" if rise > 0 else "fell") in finding.summary


def test_a_drift_over_fewer_steps_is_only_mentioned():
    assert found(ask_with_rise(0.3, steps=200)).severity is Severity.INFO


def test_a_level_that_changes_back_is_no_drift():
    there_and_back = 1e9 * np.concatenate([np.linspace(1, 1.3, 300), np.linspace(1.3, 1, 300)])
    clear(ask_trial(RULE, steps=600, columns={"wall_ns": there_and_back}))


def test_a_level_that_jumps_up_and_half_back_is_no_drift():
    # Thirds at 1.0, 1.4 and 1.2 s: the trend rises by more than a tenth, but not throughout.
    jumps = 1e9 * np.repeat([1.0, 1.4, 1.2], 200) * (1 + 0.02 * np.random.default_rng(1).standard_normal(600))
    answer = clear(ask_trial(RULE, steps=600, columns={"wall_ns": jumps}))
    assert number(answer, "change over the trial").value > 10


def test_a_warm_up_without_end_is_a_warning():
    finding = found(ask_trial(RULE, steps=50, steady=False))
    assert finding.severity is Severity.WARNING
    assert number(finding, "warm-up over").value == "not shown"


@pytest.mark.parametrize("steps", [19, 49])
def test_few_steps_cannot_tell(steps):
    assert missing(ask_with_rise(0.3, steps=steps)).signal == "steps"
    assert found(ask_with_rise(0.3, steps=50)).severity is Severity.INFO


def test_few_steps_tell_all_the_same_that_the_warm_up_was_not_over():
    finding = found(ask_trial(RULE, steps=30, steady=False))
    assert finding.severity is Severity.WARNING and [one.metric for one in finding.evidence] == ["warm-up over"]


def test_what_the_loop_waited_for_in_vain_is_said():
    gave_up = {"warmup_ended": "given up after 43 steps: torch.compile was still compiling"}
    summary = found(ask_trial(RULE, steps=50, steady=False, facts=gave_up)).summary
    assert summary.endswith("given up after 43 steps: torch.compile was still compiling.")
    quiet = {"warmup_ended": "its least steps were done and nothing compiled or allocated any more"}
    assert "had not settled" in found(ask_trial(RULE, steps=50, steady=False, facts=quiet)).summary
