"""Steps that a loop marks itself and never ends: what is kept of them stays, and what is told is exact."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations import OwnLoop, marked
from perf_diagnostics.integrations.counts import Counts, fold
from perf_diagnostics.workloads.workload import BatchCount
from tests.integrations.test_step_without_end import Compared, compared, soon, whole

__all__ = ["compared", "soon", "whole"]  # fixtures


class Training:
    """A small one, whose loop marks its batches and its steps."""

    def __init__(self, loop: OwnLoop, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.loop, self.model, self.optimizer = loop, model, optimizer
        #: The longest that its tape and its list of batches ever were.
        self.marks = self.batches = 0

    def look(self) -> None:
        inner = self.loop._loop
        assert inner is not None
        self.marks = max(self.marks, len(inner.probe.marks))
        self.batches = max(self.batches, len(inner._batches))

    def step(self, x: torch.Tensor) -> None:
        self.model(x).mean().backward()
        self.optimizer.step()


def reads_on(one: Training) -> None:
    """One pass over an endless stream."""
    for _ in one.loop.batches(iter([torch.zeros(2, 4)] * 600)):
        one.look()


def reads_passes(one: Training) -> None:
    for _ in range(200):
        for _ in one.loop.batches([torch.zeros(2, 4)] * 3):
            one.look()


def calls_models(one: Training) -> None:
    for x in one.loop.batches(iter([torch.zeros(2, 4)] * 300)):
        one.model(x)
        one.look()


def calls_backward(one: Training) -> None:
    """No model that anybody knows."""
    weights = torch.zeros(3, requires_grad=True)
    for _ in range(400):
        weights.sum().backward()
        one.look()


def steps_on(one: Training) -> None:
    for _ in range(800):
        one.optimizer.step()
        one.look()


@pytest.mark.parametrize("gap", [reads_on, reads_passes, calls_models, calls_backward, steps_on])
def test_of_a_marked_step_with_a_long_gap_little_is_kept_and_all_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compared: Compared, gap: Callable[[Training], None]
) -> None:
    monkeypatch.setattr(marked, "_MOST_BATCHES", 40)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with OwnLoop(results_dir=tmp_path, quiet=True, model=model, optimizer=optimizer) as loop:
        one = Training(loop, model, optimizer)
        for number, x in enumerate(loop.batches([torch.zeros(2, 4)] * 6)):
            with loop.step():
                if number == 4:
                    gap(one)
                one.step(x)
        inner = loop._loop
        assert inner is not None
    assert compared.folds == 1 and compared.most > 500
    assert one.marks < 700 and one.batches <= 40
    table = loop.run.results[0].steps[0]
    read = {reads_on: 600, reads_passes: 600, calls_models: 300}.get(gap, 0)
    assert table.columns["samples"].tolist() == [2, 2, 2, 2, 2 + 2 * read, 2]
    called = 300 if gap is calls_models else 0
    assert table.columns["forwards"].tolist() == [1, 1, 1, 1, 1 + called, 1]
    assert table.columns["backwards"].tolist()[4] == (401 if gap is calls_backward else 1)
    assert table.columns["updates"].tolist()[4] == (801 if gap is steps_on else 1)
    # Of 301 batches each was called once; of 601 one was.
    assert inner._micro_steps == ({1: 6} if gap is not calls_models else {1: 5, 301: 1})


def test_batches_that_are_added_up_hold_what_they_hold_one_by_one() -> None:
    last = BatchCount(3, 30, 10)
    batches: list[int | BatchCount | None] = [BatchCount(2, 20, 5), BatchCount(4, 12, 0), last]
    assert fold(batches) == 1 and batches == [BatchCount(6, 32, 5), last]
    assert fold(batches) == 0 and batches == [BatchCount(6, 32, 5), last]
    assert Counts.of(batches).samples == 9

    batches = [2, 3, BatchCount(4, 12, 0), 7]
    assert fold(batches) == 2 and batches == [BatchCount(9, None, None), 7]
    batches = [2, None, 5]
    assert fold(batches) == 1 and batches == [None, 5]
    assert Counts.of(batches).samples is None
