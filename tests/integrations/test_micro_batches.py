"""How many micro-batches a watched loop without a DataLoader accumulates: calls with a backward of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.records import TrialResult

STEPS = 12


class Training:
    """A small one; a way of training is one step of it."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def loss(self) -> torch.Tensor:
        out: torch.Tensor = self.model(torch.randn(2, 4))
        return out.mean()

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def accumulates(one: Training) -> None:
    for _ in range(8):
        one.loss().backward()
    one.update()


def accumulates_after_an_evaluation(one: Training) -> None:
    with torch.no_grad():
        one.loss()
    accumulates(one)


def sums_losses(one: Training) -> None:
    """As what is called once for each place of a sequence is, or for each view of an image."""
    sum((one.loss() for _ in range(8)), torch.zeros(())).backward()
    one.update()


def takes_gradients_apart(one: Training) -> None:
    """One call, and a backward for each of several losses."""
    out = one.model(torch.randn(2, 4))
    for number in range(8):
        (out * number).mean().backward(retain_graph=number < 7)
    one.update()


def trained(tmp_path: Path, one: Training, step: Callable[[Training], None]) -> TrialResult:
    with attach(one.model, one.optimizer, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(STEPS):
            step(one)
    assert seen.run is not None
    return seen.run.results[0]


@pytest.mark.parametrize(("step", "batches", "rows"), [
    (accumulates, 8, 16), (accumulates_after_an_evaluation, 8, 16), (sums_losses, 1, 16), (takes_gradients_apart, 1, 2),
])  # fmt: skip
def test_calls_with_a_backward_each_are_micro_batches(
    tmp_path: Path, step: Callable[[Training], None], batches: int, rows: int
) -> None:
    result = trained(tmp_path, Training(), step)
    assert result.facts["accumulation_steps"] == batches
    table = result.steps[0]
    assert set(table.columns["samples"].tolist()) == {rows}
    if batches == 8:
        assert result.trial.settings.batch_size == 2 and result.trial.settings.accumulation_steps == 8
        assert set(table.columns["backwards"].tolist()) == {8}


def test_calls_in_a_closure_are_on_one_batch(tmp_path: Path) -> None:
    one = Training()
    one.optimizer = torch.optim.LBFGS(one.model.parameters(), lr=0.01, max_iter=4)
    x = torch.randn(2, 4)

    def closure() -> torch.Tensor:
        one.optimizer.zero_grad()
        loss: torch.Tensor = one.model(x).square().mean()
        loss.backward()
        return loss

    result = trained(tmp_path, one, lambda one: one.optimizer.step(closure))  # type: ignore[arg-type]
    table = result.steps[0]
    assert int(table.columns["backwards"].max()) > 1
    assert result.facts["accumulation_steps"] == 1 and result.trial.settings.batch_size == 2


def fetched(tmp_path: Path, step: Callable[[Training, torch.Tensor], None]) -> TrialResult:
    """Twelve batches of 8 rows from a loader."""
    one, rows = Training(), [torch.randn(4) for _ in range(8 * STEPS)]
    with attach(one.model, one.optimizer, results_dir=tmp_path, quiet=True) as seen:
        for x in DataLoader(rows, batch_size=8):
            step(one, x)
    assert seen.run is not None
    return seen.run.results[0]


def in_slices(one: Training, x: torch.Tensor, size: int = 2) -> None:
    for part in x.split(size):
        one.model(part).mean().backward()
    one.update()


def in_unequal_slices(one: Training, x: torch.Tensor) -> None:
    in_slices(one, x, 3)  # 3, 3 and 2


def twice(one: Training, x: torch.Tensor) -> None:
    """As sharpness-aware minimisation does, or two views of each sample."""
    for _ in range(2):
        one.model(x + torch.randn(4)).mean().backward()
    one.update()


def at_once(one: Training, x: torch.Tensor) -> None:
    one.model(x).mean().backward()
    one.update()


@pytest.mark.parametrize(("step", "slices"), [(in_slices, 4), (in_unequal_slices, 3), (twice, None), (at_once, None)])
def test_slices_of_one_batch_are_told_apart_from_calls_on_all_of_it(
    tmp_path: Path, step: Callable[[Training, torch.Tensor], None], slices: int | None
) -> None:
    result = fetched(tmp_path, step)
    assert result.facts.get("slices_a_batch") == slices
    assert result.facts["accumulation_steps"] == 1 and result.trial.settings.batch_size == 8
    assert set(result.steps[0].samples.tolist()) == {8}
