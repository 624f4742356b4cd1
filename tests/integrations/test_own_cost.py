"""What watching cost a training of the user's own: measured when it is over, and without a trace."""

from __future__ import annotations

import dataclasses
import gc
import random
import time
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import optimizer as torch_optimizer

from perf_diagnostics.integrations import own_cost
from perf_diagnostics.integrations.attached import attach
from perf_diagnostics.integrations.own_cost import with_own_cost
from perf_diagnostics.integrations.own_loop import OwnLoop
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, LoopProbe
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.testing import trial_of

CLOCK = time.perf_counter_ns


@pytest.fixture(autouse=True)
def _briefly(monkeypatch):
    monkeypatch.setattr(own_cost, "SECONDS", 0.02)


def probe(*phases: int, bridged: bool) -> LoopProbe:
    """A probe that has seen a step with these phases."""
    made = LoopProbe(bridged=bridged)
    for phase in phases:
        made.enter(phase)
        made.leave()
    made.end_step(samples=1)
    made.end_block()
    made.take()
    return made


def cost(result: TrialResult) -> dict[str, float]:
    return {q.name: q.value for q in result.quantities if q.name.startswith("probe_overhead")}


@pytest.mark.parametrize("bridged", [True, False])
def test_the_cost_has_an_interval_and_says_what_it_was_measured_on(bridged) -> None:
    seen = probe(DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, bridged=bridged)
    result = with_own_cost(trial_of(forward=2.0), seen, CLOCK)
    found = cost(result)
    assert found["probe_overhead_low_s"] <= found["probe_overhead_s"] <= found["probe_overhead_high_s"]
    source = result.quantity("probe_overhead_s").source
    assert source.startswith("stand-in steps of ") and "when the training was over; " in source
    assert result.gaps == ()


@pytest.mark.parametrize("bridged", [True, False])
def test_nothing_of_the_script_is_disturbed(bridged, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()
    patched = torch.autograd.backward, torch.Tensor.backward, torch.utils.data.DataLoader.__iter__
    hooks = dict(torch_optimizer._global_optimizer_pre_hooks)
    with torch.no_grad():
        with_own_cost(trial_of(), probe(DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, bridged=bridged), CLOCK)
        assert not torch.is_grad_enabled()
    with torch.inference_mode():  # a script may end in the middle of its evaluation
        measured = with_own_cost(trial_of(), probe(FORWARD, BACKWARD, bridged=bridged), CLOCK)
    assert cost(measured)
    assert before[0] == random.getstate()
    assert (before[1] == np.random.get_state()[1]).all() and torch.equal(before[2], torch.get_rng_state())
    assert patched == (torch.autograd.backward, torch.Tensor.backward, torch.utils.data.DataLoader.__iter__)
    assert hooks == dict(torch_optimizer._global_optimizer_pre_hooks)
    assert gc.isenabled()
    assert list(tmp_path.iterdir()) == []


class Marks(LoopProbe):
    """Counts what is entered in the steps that are watched."""

    entered: list[int]

    def enter(self, code: int) -> None:
        Marks.entered.append(code)
        super().enter(code)


def test_a_stand_in_enters_the_phases_that_were_seen_as_often(monkeypatch) -> None:
    Marks.entered = []
    seen = probe(FORWARD, BACKWARD, OPTIMIZER, bridged=False)
    monkeypatch.setattr("perf_diagnostics.integrations.marked.LoopProbe", Marks)
    accumulated = trial_of(forward=0.5, settings={"accumulation_steps": 3})
    assert cost(with_own_cost(accumulated, seen, CLOCK))
    # No loader was seen, so none is waited for; of each step three forwards, three backwards, one optimizer.
    assert Marks.entered[:7] == [FORWARD, BACKWARD, FORWARD, BACKWARD, FORWARD, BACKWARD, OPTIMIZER]
    assert DATA_WAIT not in Marks.entered


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [(Outcome.CRASHED, "ValueError: no"), (Outcome.COMPLETED, "ended by Ctrl-C"), (Outcome.OUT_OF_MEMORY_DEVICE, "")],
)
def test_who_cuts_a_training_short_is_not_kept_waiting(outcome, reason, monkeypatch) -> None:
    monkeypatch.setattr(own_cost, "_compared", lambda *_: pytest.fail("steps were run"))
    ended = dataclasses.replace(trial_of(), outcome=outcome, reason=reason)
    result = with_own_cost(ended, probe(FORWARD, bridged=True), CLOCK)
    assert cost(result) == {}
    assert "cut short" in result.gap("probe_overhead_s").why


def test_what_fails_in_the_midst_of_a_block_leaves_nothing_behind(monkeypatch) -> None:
    def failing() -> int:
        raise OSError("the clock fell off the wall")

    listening = list(gc.callbacks)
    result = with_own_cost(trial_of(), probe(FORWARD, BACKWARD, bridged=False), failing)
    assert "fell off the wall" in result.gap("probe_overhead_s").why
    assert gc.callbacks == listening


def test_what_fails_is_a_gap_beside_the_others(monkeypatch) -> None:
    def refuse(*_):
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(own_cost, "StandIn", refuse)
    result = with_own_cost(trial_of(gaps={"loss": "nobody looked"}), probe(FORWARD, bridged=True), CLOCK)
    assert result.gap("loss") is not None
    assert "device-side assert" in result.gap("probe_overhead_s").why


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def parts() -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    model = torch.nn.Linear(4, 1)
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_the_record_of_an_attached_loop_states_it(tmp_path) -> None:
    model, optimizer = parts()
    with attach(model, optimizer, results_dir=tmp_path) as attached:
        train(model, optimizer, 10)
    (result,) = attached.run.results
    assert set(cost(result)) == {"probe_overhead_s", "probe_overhead_low_s", "probe_overhead_high_s"}
    assert len(list(tmp_path.iterdir())) == 1  # no run of its own


def test_the_record_of_an_own_loop_states_it(tmp_path) -> None:
    with OwnLoop(results_dir=tmp_path) as loop:
        for _ in range(10):
            with loop.step(samples=2), loop.forward():
                torch.ones(2).sum()
    (result,) = loop.run.results
    assert cost(result)


def test_ctrl_c_meanwhile_takes_nothing_of_the_record(tmp_path, monkeypatch) -> None:
    def impatient(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(own_cost, "_compared", impatient)
    model, optimizer = parts()
    with pytest.raises(KeyboardInterrupt), attach(model, optimizer, results_dir=tmp_path) as attached:
        train(model, optimizer, 10)
    (result,) = attached.run.results
    assert result.outcome is Outcome.COMPLETED and len(result.steps[0]) == 10


def test_turned_off_it_measures_nothing(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_DISABLED", "1")
    monkeypatch.setattr(own_cost, "_compared", lambda *_: pytest.fail("steps were run"))
    model, optimizer = parts()
    with attach(model, optimizer, results_dir=tmp_path) as attached:
        train(model, optimizer, 5)
    assert attached.run is None


@pytest.mark.parametrize(("on_device", "least"), [(False, 1), (True, 10)])
def test_blocks_on_a_device_are_long_enough_for_the_wait_at_their_end(on_device, least, monkeypatch) -> None:
    monkeypatch.setattr(own_cost, "SECONDS_ON_DEVICE", 0.02)
    blocks: list[int] = []

    class Rehearsed:
        def prepared(self) -> float:
            return 0.004

        def watched(self, steps: int) -> float:
            blocks.append(steps)
            time.sleep(0.001)
            return 0.004

        plain = watched

    rehearsed: Any = Rehearsed()
    rehearsed.on_device = on_device
    own_cost._compared(rehearsed)
    assert set(blocks) == {least}
