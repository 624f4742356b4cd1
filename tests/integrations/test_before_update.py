"""What a watched loop does between backward and the optimizer's step, and in a closure: a column of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.records import TrialResult

#: So long each step sleeps in the place that is looked for. Sleep takes at least as long as it is asked to.
PAUSE_S = 0.01
STEPS = 12


class PausingSGD(torch.optim.SGD):
    """Takes its time for its own step."""

    def step(self, closure=None):
        time.sleep(PAUSE_S)
        return super().step(closure)


def attached(folder: Path, optimizer: Any, steps: int, step: Callable[[Any, torch.Tensor], None]) -> TrialResult:
    """Train a line, one step by ``step``; the first ones are warm-up."""
    model = torch.nn.Linear(4, 1)
    chosen = optimizer(model.parameters())
    with attach(model, chosen, results_dir=folder, quiet=True) as diagnostics:
        for _ in range(steps):
            step(chosen, model(torch.randn(8, 4)).pow(2).mean())
    assert diagnostics.run is not None
    return diagnostics.run.results[0]


def columns(result: TrialResult) -> tuple[Any, Any]:
    """Before the update and in it, in s."""
    table = result.steps[0]
    before = table.columns["before_update_ns"]
    return before / 1e9, (table.columns["host_optimizer_ns"] - before) / 1e9


def test_a_pause_between_backward_and_the_step_is_no_update(tmp_path: Path) -> None:
    def step(optimizer: Any, loss: torch.Tensor) -> None:
        loss.backward()
        time.sleep(PAUSE_S)
        optimizer.step()
        optimizer.zero_grad()

    result = attached(tmp_path, lambda p: torch.optim.SGD(p, lr=0.1), STEPS, step)
    before, update = columns(result)
    assert (before >= PAUSE_S).all()
    assert (update > 0).all() and np.median(update) < np.median(before)


def test_a_pause_in_the_step_is_the_update_and_measured_zero_is_no_gap(tmp_path: Path) -> None:
    def step(optimizer: Any, loss: torch.Tensor) -> None:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    result = attached(tmp_path, lambda p: PausingSGD(p, lr=0.1), STEPS, step)
    before, update = columns(result)
    assert (update >= PAUSE_S).all()
    assert (before >= 0).all() and np.median(before) < np.median(update)
    assert result.gap("before_update_ns") is None


@pytest.mark.parametrize("keyword", [False, True])
def test_a_closures_own_work_is_no_update_and_the_optimizers_is(tmp_path: Path, keyword: bool) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = PausingSGD(model.parameters(), lr=0.1)
    given: list[float] = []

    def closure() -> torch.Tensor:
        time.sleep(PAUSE_S)
        optimizer.zero_grad()
        loss = model(torch.randn(8, 4)).pow(2).mean()
        loss.backward()
        return loss

    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as diagnostics:
        for _ in range(STEPS):
            given.append((optimizer.step(closure=closure) if keyword else optimizer.step(closure)).item())
    assert diagnostics.run is not None and all(np.isfinite(given))
    before, update = columns(diagnostics.run.results[0])
    assert len(before) == STEPS
    assert (before >= PAUSE_S).all() and (update >= PAUSE_S).all()
    table = diagnostics.run.results[0].steps[0]
    assert (table.columns["host_forward_ns"] > 0).all() and (table.columns["host_backward_ns"] > 0).all()


def test_a_closure_that_raises_reaches_the_loop_and_the_next_step_is_right(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)
    calls: list[int] = []

    def closure() -> torch.Tensor:
        calls.append(1)
        if len(calls) == 9:
            raise ValueError("the fifth step's first call")
        optimizer.zero_grad()
        loss = model(torch.ones(8, 4)).pow(2).mean() + 1
        loss.backward()
        return loss

    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as diagnostics:
        for _ in range(20):
            try:
                optimizer.step(closure)
            except ValueError as error:
                assert str(error) == "the fifth step's first call"
    assert diagnostics.run is not None
    table = diagnostics.run.results[0].steps[0]
    before = table.columns["before_update_ns"]
    assert not diagnostics.run.results[0].gap("steps")
    assert (before > 0).all() and (before <= table.columns["host_optimizer_ns"]).all()


def test_a_loop_with_marks_does_not_tell_where_its_update_begins(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with OwnLoop("marked", model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        for _ in range(6):
            with loop.step():
                with loop.backward():
                    model(torch.randn(8, 4)).mean().backward()
                with loop.optimizer():
                    optimizer.step()
    assert loop.run is not None
    (result,) = loop.run.results
    assert "before_update_ns" not in result.steps[0].columns
    gap = result.gap("before_update_ns")
    assert gap is not None and "where in the optimizer the update begins" in gap.why
