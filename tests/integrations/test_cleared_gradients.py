"""Where a watched loop clears its gradients: in the optimizer's phase, wherever that stands in a step."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.attached import Attached
from perf_diagnostics.records import ALL_PHASES, StepTable

STEPS = 6
PAUSE_S = 0.003


class Pauses:
    """Pauses, and how long they really took, in ns; ``times`` has a number for each call until they are over."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.over = False

    def __call__(self) -> None:
        if self.over:
            return
        began = time.perf_counter_ns()
        time.sleep(PAUSE_S)
        self.times.append(time.perf_counter_ns() - began)


@pytest.fixture
def clearing(monkeypatch: pytest.MonkeyPatch) -> Pauses:
    """Clearing gradients takes its time, of optimizers and of modules."""
    pauses = Pauses()
    for owner in (torch.optim.Optimizer, torch.nn.Module):

        def paused(self: Any, set_to_none: bool = True, _own: Any = owner.zero_grad) -> None:
            pauses()
            _own(self, set_to_none)

        monkeypatch.setattr(owner, "zero_grad", paused)
    return pauses


class Training:
    """A line and its optimizer; the loss stands outside of the model, before and after whatever else is done."""

    def __init__(self, optimizer: Any = torch.optim.SGD) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = optimizer(self.model.parameters(), lr=0.01)

    def loss(self) -> torch.Tensor:
        return self.model(torch.ones(8, 4)).pow(2).mean()


def table_of(seen: Attached) -> StepTable:
    assert seen.run is not None
    table = seen.run.results[0].steps[0]
    phases_ns = [ns for phase in ALL_PHASES if (ns := table.host_ns(phase)) is not None]
    assert np.sum(phases_ns, axis=0).tolist() == table.wall_ns.tolist()
    return table


def trained(
    folder: Path, training: Training, step: Callable[[Training], None], pauses: Pauses | None = None
) -> StepTable:
    with attach(training.model, training.optimizer, results_dir=folder, quiet=True) as seen:
        for _ in range(STEPS):
            step(training)
        if pauses is not None:
            pauses.over = True  # what measuring costs is found with a small training, too
    table = table_of(seen)
    assert len(table) == STEPS and table.columns["updates"].tolist() == [1] * STEPS
    return table


def in_its_middle(one: Training) -> None:
    loss = one.loss()
    one.optimizer.zero_grad()
    loss.backward()
    one.optimizer.step()


def in_its_middle_by_the_model(one: Training) -> None:
    loss = one.loss()
    one.model.zero_grad()
    loss.backward()
    one.optimizer.step()


def to_zeros(one: Training) -> None:
    out = one.model(torch.ones(8, 4))
    one.optimizer.zero_grad(set_to_none=False)
    out.pow(2).mean().backward()
    one.optimizer.step()


@pytest.mark.parametrize("step", [in_its_middle, in_its_middle_by_the_model, to_zeros])
def test_between_forward_and_backward_it_is_optimizer(
    tmp_path: Path, clearing: Pauses, step: Callable[[Training], None]
) -> None:
    table = trained(tmp_path, Training(), step, clearing)
    assert (table.host_ns("optimizer") >= clearing.times).all()
    assert np.median(table.host_ns("forward")) < PAUSE_S * 1e9
    # It is no update, so that nobody takes it for a slow optimizer.
    assert (table.columns["before_update_ns"] >= clearing.times).all()


def test_at_the_loops_head_and_after_the_step_it_is_optimizer(tmp_path: Path, clearing: Pauses) -> None:
    def step(one: Training) -> None:
        one.optimizer.zero_grad()
        one.loss().backward()
        one.optimizer.step()
        one.optimizer.zero_grad()

    table = trained(tmp_path, Training(), step, clearing)
    # The first one is made before there is a step; the one after a step lies in the next one, as its time does.
    in_a_step = np.array(clearing.times[1:-1]).reshape(STEPS - 1, 2).sum(axis=1)
    assert (table.host_ns("optimizer")[1:] >= in_a_step).all()
    assert table.wall_ns[0] < 4 * PAUSE_S * 1e9
    assert np.median(table.host_ns(ALL_PHASES[-1])) < PAUSE_S * 1e9


def test_what_lies_around_it_is_the_loss_and_the_clipping_as_without_it(tmp_path: Path, clearing: Pauses) -> None:
    losses, clips = Pauses(), Pauses()

    def step(one: Training) -> None:
        out = one.model(torch.ones(8, 4))
        losses()
        one.optimizer.zero_grad()
        losses()
        out.pow(2).mean().backward()
        clips()
        torch.nn.Linear(1, 1).zero_grad()
        clips()
        one.optimizer.step()

    table = trained(tmp_path, Training(), step, clearing)
    forward, cleared = (np.array(one.times).reshape(STEPS, 2).sum(axis=1) for one in (losses, clearing))
    clipped = np.array(clips.times).reshape(STEPS, 2).sum(axis=1)
    assert (table.host_ns("forward") >= forward).all()
    assert (table.host_ns("optimizer") >= cleared + clipped).all()
    assert (table.columns["before_update_ns"] >= cleared + clipped).all()


def test_in_a_closure_it_is_counted_once(tmp_path: Path, clearing: Pauses) -> None:
    training = Training(lambda parameters, lr: torch.optim.LBFGS(parameters, lr=lr, max_iter=2, max_eval=2))
    calls: list[int] = []

    def step(one: Training) -> None:
        def closure() -> torch.Tensor:
            one.optimizer.zero_grad()
            loss = one.loss()
            loss.backward()
            return loss

        before = len(clearing.times)
        one.optimizer.step(closure)
        calls.append(sum(clearing.times[before:]))

    table = trained(tmp_path, training, step, clearing)
    assert (table.columns["before_update_ns"] >= calls).all()
    assert (table.wall_ns >= calls).all() and (table.host_ns("forward") > 0).all()


def test_two_optimizers_that_clear_in_turn_make_one_step(tmp_path: Path, clearing: Pauses) -> None:
    first, second = Training(), Training()
    models, optimizers = [first.model, second.model], [first.optimizer, second.optimizer]
    with attach(models, optimizers, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(STEPS):
            for one in (first, second):
                loss = one.loss()
                one.optimizer.zero_grad()
                loss.backward()
                one.optimizer.step()
        clearing.over = True
    table = table_of(seen)
    assert table.columns["updates"].tolist() == [2] * STEPS
    assert (table.host_ns("optimizer") >= np.array(clearing.times).reshape(STEPS, 2).sum(axis=1)).all()
    assert np.median(table.host_ns("forward")) < PAUSE_S * 1e9


def test_what_clearing_raises_reaches_the_loop_and_the_next_step_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, raised = Training(), []

    def refuses(self: Any, set_to_none: bool = True) -> None:
        raise ValueError("no gradients today")

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", refuses)

    def step(one: Training) -> None:
        loss = one.loss()
        try:
            one.optimizer.zero_grad()
        except ValueError as error:
            raised.append(str(error))
        loss.backward()
        one.optimizer.step()

    table = trained(tmp_path, training, step)
    assert raised == ["no gradients today"] * STEPS
    assert (table.host_ns("optimizer") > 0).all() and (table.host_ns("backward") > 0).all()


def test_it_starts_no_clock_and_is_off_after_the_training(tmp_path: Path) -> None:
    before = torch.optim.Optimizer.zero_grad, torch.nn.Module.zero_grad
    training = Training()
    with attach(training.model, training.optimizer, results_dir=tmp_path, quiet=True) as seen:
        assert torch.optim.Optimizer.zero_grad is not before[0]
        kept = training.optimizer.zero_grad
        kept()
        time.sleep(10 * PAUSE_S)  # the rest of what sets a training up
        for _ in range(STEPS):
            in_its_middle(training)
    assert (torch.optim.Optimizer.zero_grad, torch.nn.Module.zero_grad) == before
    assert table_of(seen).wall_ns[0] < 10 * PAUSE_S * 1e9
    training.loss().backward()
    kept()
    assert training.model.weight.grad is None


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
@pytest.mark.parametrize("whole", [False, True])
def test_compiled_steps_make_the_same_graphs(tmp_path: Path, whole: bool) -> None:
    made = []
    for watched in (False, True):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        training = Training()

        def cleared(one: Training = training) -> torch.Tensor:
            one.model.zero_grad()
            if not whole:
                one.optimizer.zero_grad()
            return one.loss()

        compiled = torch.compile(cleared, backend="eager", fullgraph=whole)

        def train(one: Training = training, compiled: Callable[[], torch.Tensor] = compiled) -> None:
            for _ in range(4):
                compiled().backward()
                one.optimizer.step()

        if watched:
            with attach(training.model, training.optimizer, results_dir=tmp_path, quiet=True):
                train()
        else:
            train()
        counters = torch._dynamo.utils.counters
        made.append((counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())))
    assert made[0] == made[1] and made[0][0] > 0
