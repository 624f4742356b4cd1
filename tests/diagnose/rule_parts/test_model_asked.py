"""Calls of the model that train nothing, made now and then: how many, what one takes, and what to try."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.rule_parts.model_asked import model_asked
from perf_diagnostics.diagnose.rule_parts.stalls import against
from perf_diagnostics.records import Phase
from perf_diagnostics.testing import trial_of

STEPS, EVERY = 100, 20


def facts(calls: int, *, longer_ms: float = 200.0, each: int = 0, every: int = EVERY, **more: Any) -> TrialFacts:
    """Forward 4 ms, backward 6; every so many steps the model is called as often besides, for so long."""
    asked = np.full(STEPS, each)
    asked[::every] += calls
    other = np.where(asked > each, longer_ms * 1e6, 0.0)
    columns = {
        "wall_ns": 10e6 + other,
        "host_wall_ns": 10e6 + other,
        "forwards": 1,
        "forwards_without_gradients": asked,
        **more,
    }
    return TrialFacts.of(trial_of(forward=4e-3, backward=6e-3, steps=STEPS, columns=columns))


def test_calls_much_shorter_than_a_trained_batchs_forward_are_of_fewer_samples() -> None:
    found = model_asked(facts(400))
    assert found is not None
    assert (found.calls, found.call_s, found.forward_s) == (400, pytest.approx(0.5e-3), pytest.approx(4e-3))
    says = found.remedy.says
    assert "called 400 times" in says and "at most 500 µs a call" in says and "more samples at once" in says


def test_calls_as_long_as_that_are_done_less_often() -> None:
    found = model_asked(facts(10))
    assert found is not None and not found.in_small_batches
    assert "up to 20.0 ms a call: do it less often, or on fewer samples" in found.remedy.says


def test_what_most_steps_call_is_not_counted_with_it() -> None:
    found = model_asked(facts(10, each=2))  # a teacher that is asked twice in each step
    assert found is not None and found.calls == 10


@pytest.mark.parametrize(
    "about",
    [
        facts(2),  # too few to say anything of
        facts(0, each=5),  # in each step alike
        facts(10, longer_ms=0.0),
        facts(10, every=1),
    ],
)
def test_nothing_is_told_where_calls_do_not_come_now_and_then(about: TrialFacts) -> None:
    assert model_asked(about) is None


def lost(*, asking_ms: float, saving_ms: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """What steps lost, in ns: each 20th, which calls the model, and the ones in the middle between them."""
    found = np.zeros(STEPS)
    found[::EVERY], found[EVERY // 2 :: EVERY] = asking_ms * 1e6, saving_ms * 1e6
    return found


def test_what_comes_now_and_then_outside_of_the_phases_is_answered_with_it() -> None:
    remedies = against(facts(400), Phase.OTHER, lost(asking_ms=200.0, saving_ms=0.0))
    assert [remedy.says[:36] for remedy in remedies] == ["In some steps the model is called 40"]


@pytest.mark.parametrize(
    ("asking_ms", "saving_ms", "told"),
    [
        (60.0, 40.0, ["In some steps the model is called"]),  # 0.6 of what is lost
        (40.0, 60.0, ["If it saves or evaluates", "If it logs", "40 % of that time is 400 calls of the model"]),
        (9.0, 91.0, ["If it saves or evaluates", "If it logs"]),  # less than a tenth is not worth saying
    ],
)
@pytest.mark.parametrize("phase", [Phase.OTHER, Phase.FORWARD])
def test_calls_are_the_advice_by_their_part_of_what_is_lost(
    asking_ms: float, saving_ms: float, told: list[str], phase: Phase
) -> None:
    about = facts(400)
    if phase is Phase.FORWARD:  # there calls with gradients, that no backward follows
        longer = np.where(np.arange(STEPS) % EVERY == 0, 200e6, 0.0)
        columns = {"forwards": 1 + 400 * (longer > 0), "backwards": 1, "host_forward_ns": 4e6 + longer}
        about = facts(0, longer_ms=0.0, **columns, wall_ns=10e6 + longer, host_wall_ns=10e6 + longer)
        told = [one for one in told if not one.startswith("If it")]
        told = told if asking_ms > saving_ms else ["Look at what happens in the forward pass", *told]
    remedies = [one.says for one in against(about, phase, lost(asking_ms=asking_ms, saving_ms=saving_ms))]
    assert len(remedies) == len(told) and all(map(str.startswith, remedies, told)), remedies


def test_where_nothing_was_lost_calls_are_no_advice() -> None:
    remedies = against(facts(400), Phase.OTHER, np.zeros(STEPS))
    assert not any("the model is called" in one.says or "calls of the model" in one.says for one in remedies)
