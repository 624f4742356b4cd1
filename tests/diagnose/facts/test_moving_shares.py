"""What each phase contributes to a drift: the whole makes 1, and intervals hold what was put in."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.facts.moving_shares import parts_of_drift
from perf_diagnostics.records import Phase
from tests.diagnose.answers import facts_of


def drifting(rises, *, steps=600, scatter=0.0, common=0.0, seed=0):
    """Phases of these seconds, each growing by so much of the whole step of 1 s; ``common`` scatters whole steps."""
    rng = np.random.default_rng(seed)
    line, mood = np.linspace(0, 1, steps), np.exp(common * rng.standard_normal(steps))
    columns = {
        f"host_{phase}_ns": 1e9 * (seconds + rise * line) * np.exp(scatter * rng.standard_normal(steps)) * mood
        for phase, (seconds, rise) in rises.items()
    }
    columns["wall_ns"] = sum(columns.values())
    return facts_of(steps=steps, columns=columns)


def test_the_parts_of_all_phases_make_the_drift():
    parts = parts_of_drift(drifting({"forward": (0.6, 0.1), "backward": (0.3, 0.3), "optimizer": (0.1, 0.0)}))
    assert [one.phase for one in parts] == [Phase.BACKWARD, Phase.FORWARD, Phase.OPTIMIZER]
    assert [one.part.value for one in parts] == pytest.approx([0.75, 0.25, 0.0], abs=0.01)
    assert sum(one.part.value for one in parts) == pytest.approx(1.0)


def test_how_far_a_part_is_from_its_share():
    backward, forward = parts_of_drift(drifting({"forward": (0.5, 0.0), "backward": (0.5, 0.4)}))
    # In the first third backward takes 0.567 of 1.067 s; all of the drift is the whole way from there to 1.
    assert backward.first.value == pytest.approx(0.5667 / 1.0667, rel=0.001)
    assert backward.moved.value == pytest.approx(1.0, abs=0.01) and backward.moves(0.5)
    assert forward.moved.value == pytest.approx(1.0, abs=0.01) and not forward.stays(0.5)


def test_what_slows_whole_steps_cancels_in_the_shares():
    quiet = parts_of_drift(drifting({"forward": (0.5, 0.2), "backward": (0.5, 0.2)}, scatter=0.02, common=0.3))
    assert all(one.stays(0.5) and not one.moves(0.5) for one in quiet)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_the_interval_of_a_part_holds_the_truth_in_most_series(share):
    """With steps that scatter by 10 % the part of a drift of 30 % that lies in one phase, 60 series."""
    held = 0
    for seed in range(60):
        (forward,) = (
            one
            for one in parts_of_drift(
                drifting({"forward": (0.5, 0.3 * share), "backward": (0.5, 0.3 * (1 - share))}, scatter=0.1, seed=seed)
            )
            if one.phase is Phase.FORWARD
        )
        held += forward.part.low <= share <= forward.part.high
    assert held >= 54  # of 60: 90 %


def test_phases_that_nobody_timed_have_no_part():
    nobody = ["host_forward_ns", "host_backward_ns", "host_data_wait_ns", "host_transfer_ns", "host_optimizer_ns"]
    with pytest.raises(NotMeasured, match="no phase of the step was timed"):
        parts_of_drift(facts_of(steps=60, columns={"wall_ns": 1e9 * np.linspace(1, 2, 60)}, without=nobody))
