"""A phase that takes longer and longer within each pass over the data."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.rule_parts.growth_in_pass import GrowthInPass, growth_in_pass
from perf_diagnostics.records import Float64, Phase
from perf_diagnostics.testing import trial_of

STEPS = np.arange(100)
FLAT = np.full(STEPS.size, 0.1)


def growth(forward: Float64, backward: Float64 = FLAT, a_pass: int = 20) -> GrowthInPass | None:
    """Of forward; the first pass in which the steps lie began before them."""
    table = {
        "epoch": (STEPS + 7) // a_pass,
        "host_forward_ns": forward * 1e9,
        "host_backward_ns": backward * 1e9,
        "wall_ns": (forward + backward) * 1e9,
    }
    return growth_in_pass(TrialFacts.of(trial_of(forward=0.1, backward=0.1, columns=table)), Phase.FORWARD)


def rising(a_pass: int = 20) -> Float64:
    """From 0.1 to about 0.3 s in each pass."""
    return 0.1 + 0.2 * ((STEPS + 7) % a_pass) / a_pass


def test_medians_of_the_first_and_the_last_third_are_told() -> None:
    found = growth(rising())
    assert found is not None
    # Places 0 to 6 of a pass of 20, in the middle 3, and 14 to 19, in the middle 16.5.
    assert found.first_s == pytest.approx(0.13) and found.last_s == pytest.approx(0.265, abs=0.006)
    assert found.says.startswith("The time in the forward pass grows within a pass over the data, from 130 ms in its")


def test_what_stays_or_goes_on_over_all_passes_is_none() -> None:
    assert growth(FLAT) is None
    assert growth(0.1 + 0.02 * STEPS / 100) is None
    assert growth(0.4 - rising()) is None


def test_a_machine_that_slows_down_is_none() -> None:
    assert growth(rising(), rising()) is None


def test_few_steps_of_passes_that_began_are_none() -> None:
    assert growth(rising(200), a_pass=200) is None  # one pass, that began before
    assert growth(rising(60), a_pass=60) is not None  # 47 steps of the second one
    assert growth(rising(80), a_pass=80) is None  # 27 steps, 9 in a third
