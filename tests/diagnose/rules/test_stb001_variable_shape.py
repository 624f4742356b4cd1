"""STB001: step times that follow the length of the batch."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.stb001_variable_shape import VariableShape
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = VariableShape()
TOKENS = np.tile(100 * np.arange(1, 9), 13)[:100]  # lengths cycle from one to eight times


def ask(*, noise_s=0.0, padding=None):
    """A step of 1 ms a token, half of it forward, with normal noise of ``noise_s`` around it."""
    wall = 1e6 * TOKENS + 1e9 * noise_s * np.random.default_rng(0).standard_normal(100)
    columns = {"tokens": TOKENS, "wall_ns": wall, "host_forward_ns": wall / 2}
    if padding is not None:
        columns["padding_tokens"] = np.rint(padding * TOKENS)
    return ask_trial(RULE, columns=columns)


def test_length_explains_the_step_time():
    finding = found(ask(noise_s=0.05))
    assert finding.severity is Severity.INFO
    assert number(finding, "R² of step time against tokens").value > 0.9


def test_noise_that_has_nothing_to_do_with_length_is_clear():
    # Time varies by 1 s, length explains 0.23 s of it: R² of about 0.05.
    assert "explains" in clear(ask(noise_s=1.0)).summary


def test_a_few_steps_far_off_do_not_hide_that_length_explains_the_others():
    wall = 1e6 * TOKENS
    wall[3:93:9] += 4e9
    finding = found(ask_trial(RULE, columns={"tokens": TOKENS, "wall_ns": wall}))
    known = number(finding, "R² of step time against tokens")
    assert known.value > 0.99 and known.n == 90
    assert "but for 10 steps far off" in finding.summary


def test_equal_lengths_are_clear():
    assert "same number" in clear(ask_trial(RULE, noise=0.2, columns={"tokens": 128})).summary


def test_lengths_that_nobody_counted_are_not_equal():
    assert missing(ask_trial(RULE, noise=0.2)).signal == "tokens"


def test_few_steps_cannot_tell():
    assert missing(ask_trial(RULE, steps=10, columns={"tokens": 128})).signal == "steps"
