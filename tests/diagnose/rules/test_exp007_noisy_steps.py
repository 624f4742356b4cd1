"""EXP007: scatter of the step times."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp007_noisy_steps import NoisySteps
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = NoisySteps()


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_up_to_half_the_limit_is_clear(noise):
    clear(ask_trial(RULE, noise=noise))


@pytest.mark.parametrize("noise", [0.2, 0.4])
def test_more_is_an_info_and_never_a_veto(noise):
    finding = found(ask_trial(RULE, noise=noise, steps=400))
    assert finding.severity is Severity.INFO
    assert number(finding, "scatter of step times").value == pytest.approx(100 * noise, rel=0.15)


def test_single_stalls_are_no_scatter():
    times = np.full(100, 1e9)
    times[::10] = 5e9
    clear(ask_trial(RULE, columns={"wall_ns": times}))


def test_batches_of_different_length_are_no_noise():
    tokens = np.tile([100, 200, 300, 400], 25)
    same_speed = {"tokens": tokens, "wall_ns": tokens * 1e7}
    answer = clear(ask_trial(RULE, columns=same_speed))
    assert number(answer, "scatter of step times for their length").value == pytest.approx(0.0, abs=1e-6)
    found(ask_trial(RULE, columns={"wall_ns": tokens * 1e7}))


def test_what_each_step_takes_beside_its_tokens_is_no_noise():
    tokens = np.tile([100, 200, 300, 400], 25)
    wall = tokens * 1e7 + 4e9
    clear(ask_trial(RULE, columns={"tokens": tokens, "wall_ns": wall}))
    wall[::9] += 2e10
    clear(ask_trial(RULE, columns={"tokens": tokens, "wall_ns": wall}))
    found(ask_trial(RULE, columns={"tokens": tokens, "wall_ns": wall * np.tile([0.7, 1.0, 1.3], 34)[:100]}))


def test_times_that_rise_faster_than_their_tokens():
    # The line runs below 0 at the shortest batches, and is no measure of what is usual there.
    tokens = np.tile([100, 200, 300, 400], 25)
    answer = found(ask_trial(RULE, columns={"tokens": tokens, "wall_ns": tokens**4.0}))
    assert number(answer, "scatter of times a token").value > 10


def test_few_steps_cannot_tell():
    missing(ask_trial(RULE, steps=4))
