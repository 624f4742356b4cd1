"""What a step of a watched loop calls, how often, and what it calls for nothing: in real trainings, healthy too."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.measure.steps.calls import COUNTS, TIMES
from perf_diagnostics.records import StepTable
from tests.integrations.test_first_turns import run_here, table_of

STEPS = 8


@pytest.fixture(autouse=True)
def _no_optimizers_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """They live on in this process, and are not about to step."""
    monkeypatch.setattr(Trained, "expects_more", False)


class Tasks(torch.nn.Module):
    """A body and two heads."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 8)
        self.heads = torch.nn.ModuleList([torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)])
        self.dropout = torch.nn.Dropout(0.1)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        body = self.dropout(self.body(x)).relu()
        return [head(body).mean() for head in self.heads]


Step = Callable[[Tasks, torch.optim.Optimizer, torch.Tensor], Any]


def steady(folder: Path, step: Step, how: str = "attach", *, batches: int = 1) -> StepTable:
    """The steady steps of a training whose steps are these, of so many batches each."""
    torch.manual_seed(0)
    model = Tasks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4 * STEPS * batches, 4)), batch_size=4)

    def train() -> None:
        for (x,) in loader:
            step(model, optimizer, x)

    if how == "run":
        with run_here(folder) as session:
            train()
        table = table_of(session)
    elif how == "marked":
        with OwnLoop(model=model, optimizer=optimizer, results_dir=folder, quiet=True) as loop:
            for (x,) in loop.batches(loader):
                with loop.step():
                    step(model, optimizer, x)
        table = loop.run.results[0].steps[0]
    else:
        with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
            train()
        table = seen.run.results[0].steps[0]
    return table.where(table.columns["start_ns"] > table.columns["start_ns"][0])


def counts(table: StepTable, *names: str) -> list[int]:
    """The columns of these names, each of which is the same in all steps."""
    found = [set(table.columns[name].tolist()) for name in names]
    assert [len(values) for values in found] == [1] * len(names), found
    return [values.pop() for values in found]


def plain(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    sum(model(x)).backward()
    optimizer.step()


@pytest.mark.parametrize("how", ["attach", "run", "marked"])
def test_a_plain_training_calls_each_once_and_nothing_again(tmp_path: Path, how: str) -> None:
    table = steady(tmp_path, plain, how)
    assert counts(table, *COUNTS) == [1, 0, 0, 1, 0, 0, 1]
    assert counts(table, *TIMES) == [0, 0, 0]


def test_a_marked_loop_whose_model_nobody_named_does_not_tell_what_it_calls(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    with OwnLoop(results_dir=tmp_path, quiet=True) as loop:
        for _ in range(5):
            with loop.step(samples=4), loop.forward():
                model(torch.randn(4, 4)).mean().backward(retain_graph=True)
    assert not {*COUNTS, *TIMES} & loop.run.results[0].steps[0].columns.keys()


@pytest.mark.parametrize("how", ["attach", "run", "marked"])
def test_losses_that_go_backward_one_by_one(tmp_path: Path, how: str) -> None:
    def step(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        optimizer.zero_grad()
        for loss in model(x):
            loss.backward(retain_graph=True)
        optimizer.step()

    table = steady(tmp_path, step, how)
    assert counts(table, "backwards", "backwards_keeping", "backwards_again") == [2, 2, 1]
    shorter = table.columns["backwards_again_ns"]
    assert (shorter > 0).all()
    if how != "marked":  # there the test marks no phases
        assert (shorter < table.columns["host_backward_ns"] / 2).all()


@pytest.mark.parametrize(("in_between", "add_up"), [(False, True), (True, False)])
def test_whether_gradients_add_up_or_are_taken_away_in_between(tmp_path: Path, in_between: bool, add_up: bool) -> None:
    model = Tasks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(STEPS):
            one, other = model(torch.randn(4, 4))
            one.backward(retain_graph=True)
            if in_between:  # who projects gradients keeps those of each loss
                kept = {p: p.grad for p in model.parameters() if p.grad is not None}
                optimizer.zero_grad()
            other.backward()
            if in_between:
                for parameter, gradient in kept.items():
                    parameter.grad = gradient if parameter.grad is None else parameter.grad + gradient
            optimizer.step()
            optimizer.zero_grad()
    assert seen.run.results[0].facts["backwards_add_up"] is add_up


@pytest.mark.parametrize("how", ["attach", "marked"])
@pytest.mark.parametrize("to_none", [True, False, None])
def test_how_gradients_are_cleared_is_seen_at_the_next_backward(tmp_path: Path, how: str, to_none: bool | None) -> None:
    """They are gone by then, or zeros; where nobody clears them they are neither."""
    model = Tasks()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    watched: Any = (
        attach(model, optimizer, results_dir=tmp_path, quiet=True)
        if how == "attach"
        else OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True)
    )
    with watched as seen:
        for _ in range(STEPS):
            with seen.step(samples=4) if how == "marked" else nullcontext():
                sum(model(torch.randn(4, 4))).backward()
                optimizer.step()
                if to_none is not None:
                    optimizer.zero_grad(set_to_none=to_none)
    assert seen.run.results[0].facts.get("zero_grad_to_none") is to_none


def accuracy_after_the_update(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    plain(model, optimizer, x)
    model(x)


def accuracy_before_the_update(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    sum(model(x)).backward()
    model(x)
    optimizer.step()


def accuracy_without_gradients(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    plain(model, optimizer, x)
    with torch.no_grad():
        model(x)


@pytest.mark.parametrize("how", ["attach", "run", "marked"])
@pytest.mark.parametrize("step", [
    accuracy_after_the_update, accuracy_before_the_update, accuracy_without_gradients,
])  # fmt: skip
def test_a_batch_that_is_asked_again_after_its_training(tmp_path: Path, step: Step, how: str) -> None:
    table = steady(tmp_path, step, how)
    assert counts(table, "forwards_again", "backwards_again") == [1, 0]
    assert (table.columns["forwards_again_ns"] > 0).all()
    expected = [1, 1] if step is accuracy_without_gradients else [2, 0]
    assert counts(table, "forwards", "forwards_without_gradients") == expected


def test_and_in_evaluation_mode_it_is_told_apart(tmp_path: Path) -> None:
    def step(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        plain(model, optimizer, x)
        with torch.no_grad():
            model.eval()(x)
        model.train()

    table = steady(tmp_path, step)
    assert counts(table, "forwards_without_gradients", "forwards_again", "forwards_again_ns") == [1, 0, 0]
    assert (table.columns["evaluations_again_ns"] > 0).all()


def evaluated_elsewhere(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    plain(model, optimizer, x)
    with torch.no_grad():
        model.eval()(torch.randn(4, 4))
    model.train()


def sharpness_aware(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """SAM: a second pass at the same batch, at weights a little way up."""
    sum(model(x)).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(parameter.grad, alpha=0.01)
    optimizer.zero_grad()
    sum(model(x)).backward()
    optimizer.step()
    optimizer.zero_grad()


def two_views(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """A contrastive loss of two views, and R-Drop's two passes over one batch."""
    sum(model(x) + model(x.flip(0)) + model(x)).backward()
    optimizer.step()
    optimizer.zero_grad()


def checkpointed(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    sum(torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)).backward()
    optimizer.step()
    optimizer.zero_grad()


def penalised(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    """A penalty on the gradients, by a backward that makes a graph of its own."""
    losses = model(x)
    losses[0].backward(create_graph=True, retain_graph=True)
    losses[1].backward()
    optimizer.step()
    optimizer.zero_grad()


@pytest.mark.filterwarnings("ignore:Using backward\\(\\) with create_graph=True:UserWarning")
@pytest.mark.parametrize("how", ["attach", "marked"])
@pytest.mark.parametrize("step", [evaluated_elsewhere, sharpness_aware, two_views, checkpointed, penalised])
def test_healthy_trainings_call_nothing_for_nothing(tmp_path: Path, step: Step, how: str) -> None:
    table = steady(tmp_path, step, how)
    assert counts(table, "forwards_again", "backwards_again", *TIMES) == [0] * 5


def test_closures_have_a_forward_for_each_backward(tmp_path: Path) -> None:
    model = Tasks()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)
    x = torch.randn(4, 4)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(model(x)) ** 2
        loss.backward()
        return loss

    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(STEPS):
            optimizer.step(closure)
    table = seen.run.results[0].steps[0]
    assert (table.columns["forwards"] == table.columns["backwards"]).all()
    assert (table.columns["forwards"] > 1).any() and set(table.columns["updates"].tolist()) == {1}
    assert counts(table, "forwards_again", "backwards_again", *TIMES) == [0] * 5


def test_accumulation_counts_its_batches(tmp_path: Path) -> None:
    done = []

    def step(model: Tasks, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
        sum(model(x)).backward()
        done.append(x)
        if len(done) % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()

    table = steady(tmp_path, step, batches=4)
    assert counts(table, "forwards", "backwards", "updates", "forwards_again", "backwards_again") == [4, 4, 1, 0, 0]
