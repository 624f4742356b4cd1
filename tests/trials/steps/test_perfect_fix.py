"""Ceilings: what is left out is left out, what is counted is what is trained on, and the rest is as it was."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Settings, StepTable
from perf_diagnostics.trials.steps.perfect_fix import KEPT_BATCHES, without_what_is_fixed
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.training_of_parts import count_of, loss_from
from perf_diagnostics.workloads.workload import Training

CPU = torch.device("cpu")
META = torch.device("meta")


class Batches:
    """So many batches, of 1, 2, 3 … samples each, that remembers how many were asked for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.drawn = 0

    def __iter__(self) -> Iterator[Any]:
        for size in range(1, self.number + 1):
            self.drawn += 1
            yield torch.full((size, 4), float(size)), torch.zeros(size, dtype=torch.long)


class Counting(torch.optim.SGD):
    steps = 0

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.steps += 1
        super().step(closure)


def training_of(batches: Batches) -> Training:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    return Training(
        model=model,
        optimizer=Counting(model.parameters(), lr=0.1),
        batches=batches,
        loss_of=loss_from(torch.nn.CrossEntropyLoss()),
        count=count_of,
        clip_grad_norm=1.0,
    )


def steps(training: Training, settings: Settings, number: int) -> StepTable:
    probe = Probe()
    step = TrainingStep(training, settings, CPU, probe)
    probe.start()
    for _ in range(number):
        step()
    probe.end_block()
    return probe.take()


def ceiling(name: str) -> Settings:
    return Settings(batch_size=1, ceiling=name)


def test_cached_batches_are_read_once_and_trained_on_in_turn() -> None:
    batches = Batches(3)
    table = steps(training_of(batches), ceiling("cached_batches"), 7)
    assert batches.drawn == 3
    assert table.samples.tolist() == [1, 2, 3, 1, 2, 3, 1]
    assert table.columns["epoch"].tolist() == [0] * 7


def test_of_a_long_epoch_the_first_sixteen_batches_are_kept() -> None:
    batches = Batches(40)
    table = steps(training_of(batches), ceiling("cached_batches"), 18)
    assert batches.drawn == KEPT_BATCHES == 16
    assert table.samples.tolist() == [*range(1, 17), 1, 2]


def test_without_a_ceiling_every_batch_is_read() -> None:
    batches = Batches(40)
    steps(training_of(batches), Settings(batch_size=1), 18)
    assert batches.drawn == 18


def test_cached_batches_train_like_the_batches_they_are() -> None:
    plain, cached = training_of(Batches(3)), training_of(Batches(3))
    steps(plain, Settings(batch_size=1), 5)
    steps(cached, ceiling("cached_batches"), 5)
    assert torch.equal(plain.model.weight, cached.model.weight)


def test_no_optimizer_changes_no_weight_and_clears_the_gradients() -> None:
    training = training_of(Batches(3))
    before = training.model.weight.detach().clone()
    table = steps(training, ceiling("no_optimizer"), 5)
    assert torch.equal(training.model.weight, before)
    assert training.optimizer.steps == 0 and training.model.weight.grad is None  # type: ignore[attr-defined]
    assert len(table) == 5 and table.samples.tolist() == [1, 2, 3, 1, 2]


def test_with_the_optimizer_the_weights_do_change() -> None:
    training = training_of(Batches(3))
    before = training.model.weight.detach().clone()
    steps(training, Settings(batch_size=1), 5)
    assert not torch.equal(training.model.weight, before)
    assert training.optimizer.steps == 5  # type: ignore[attr-defined]


def test_no_transfer_waits_for_each_batch_and_trains_on_one_that_is_there() -> None:
    """A device that is not the CPU: the meta device, whose tensors hold nothing."""
    batches = Batches(3)
    training = training_of(batches)
    brought: list[int] = []

    def bring(batch: Any) -> Any:
        brought.append(len(batch[0]))
        return tuple(tensor.to(META) for tensor in batch)

    without = without_what_is_fixed(training, ceiling("no_transfer"), META, bring)
    assert brought == [1, 2, 3]
    for expected, fresh in zip((1, 2, 3, 1), [*batches, (torch.ones(9, 4),)], strict=True):
        assert without.count(fresh).samples == expected
        there = without.to_device(fresh, META)  # type: ignore[misc]
        assert there[0].shape[0] == expected and there[0].device == META
    assert brought == [1, 2, 3]  # nothing was brought again
    assert without.batches is batches  # and every batch is still waited for


def test_on_the_cpu_there_is_no_transfer_to_leave_out() -> None:
    with pytest.raises(InvalidSettings, match="no_transfer"):
        steps(training_of(Batches(3)), ceiling("no_transfer"), 1)


def test_no_batch_at_all_is_told() -> None:
    with pytest.raises(WorkloadError, match="gave no batch"):
        steps(training_of(Batches(0)), ceiling("cached_batches"), 1)


def test_a_name_that_is_no_ceiling_is_refused_with_those_there_are() -> None:
    with pytest.raises(InvalidSettings, match="cached_batches"):
        ceiling("no_model")
