"""What chosen steps take beyond the others, with what they leave cold."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.rule_parts.excess import with_aftermath
from perf_diagnostics.testing import trial_of

STEPS, EVERY = 120, 4


def facts(*, after_ms: float) -> TrialFacts:
    """Steps of 10 ms; every fourth is paused for 20 ms at its end, and the next one takes so much longer."""
    wall = np.full(STEPS, 10e6)
    wall[EVERY - 1 :: EVERY] += 20e6
    wall[EVERY::EVERY] += after_ms * 1e6
    return TrialFacts.of(trial_of(forward=10e-3, steps=STEPS, columns={"wall_ns": wall, "host_wall_ns": wall}))


@pytest.mark.parametrize("after_ms", [0.0, 2.0])
def test_what_the_next_step_takes_longer_is_a_part_of_the_upper_end(after_ms: float) -> None:
    chosen = np.zeros(STEPS, dtype=bool)
    chosen[EVERY - 1 :: EVERY] = True
    pauses = Interval(0.3, 0.3, 0.3, STEPS)  # less than what the steps show
    found = with_aftermath(facts(after_ms=after_ms), chosen, pauses, np.arange(0, STEPS, EVERY))
    # 20 of 60 ms, or 22 of 62.
    assert (found.value, found.low) == (0.3, 0.3)
    assert found.high == pytest.approx((20 + after_ms) / (60 + after_ms), abs=0.005)


def test_too_few_steps_leave_it_as_it_was() -> None:
    chosen = np.zeros(STEPS, dtype=bool)
    chosen[5] = True
    share = Interval(0.3, 0.2, 0.4, STEPS)
    assert with_aftermath(facts(after_ms=0.0), chosen, share) == share
