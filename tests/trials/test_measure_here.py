"""A trial in this process trains copies and puts back what it drew from; test_diagnostics.py looks at the rest."""

from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Length, Outcome, Settings, Trial
from perf_diagnostics.trials.measure_here import OwnParts, measure_here, undisturbed

LOADER = DataLoader(
    TensorDataset(torch.ones(8, 4), torch.zeros(8, dtype=torch.long)),
    batch_size=4,
    shuffle=True,
    generator=torch.Generator().manual_seed(3),
)
TRIAL = Trial(workload="Linear", settings=Settings(batch_size=4), length=Length.exactly(2, warmup_steps=1))


def parts_of(model: torch.nn.Module, loss: torch.nn.Module) -> OwnParts:
    return OwnParts(model, loss, torch.optim.SGD([*model.parameters(), *loss.parameters()], lr=0.1))


def drawn() -> list[float]:
    own = torch.rand(1, generator=LOADER.generator)
    return [random.random(), float(np.random.random()), float(torch.rand(1)), float(own)]


def test_every_generator_is_put_back_after_an_error_too() -> None:
    with undisturbed(LOADER):
        first = drawn()
    with pytest.raises(KeyError), undisturbed(LOADER):
        assert drawn() == first
        raise KeyError
    with undisturbed(None):  # not a loader: there is no generator of its own
        assert drawn()[:3] == first[:3]


def test_copies_are_trained_together_with_the_weights_of_a_loss() -> None:
    class Scaled(torch.nn.CrossEntropyLoss):
        def __init__(self) -> None:
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(()))

        def forward(self, output: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return self.scale * super().forward(output, y)

    parts = parts_of(torch.nn.Linear(4, 3), Scaled())
    training = parts.training(TRIAL.settings, LOADER)
    held = [id(p) for group in training.optimizer.param_groups for p in group["params"]]
    assert held[:2] == [id(p) for p in training.model.parameters()]  # of the copy, and
    assert not {id(p) for p in parts.model.parameters()} & set(held)  # of nothing else
    before = [p.detach().clone() for group in parts.optimizer.param_groups for p in group["params"]]
    result = measure_here(TRIAL, parts, LOADER, ())
    assert (result.outcome, len(result.steps[0].steady)) == (Outcome.COMPLETED, 2)
    after = [p for group in parts.optimizer.param_groups for p in group["params"]]
    assert len(after) == 3 and all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


def test_no_memory_for_a_copy_is_no_fault_of_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = parts_of(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss())

    def full(self: torch.Tensor, memo: object) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    monkeypatch.setattr(torch.nn.Parameter, "__deepcopy__", full)
    assert measure_here(TRIAL, parts, LOADER, ()).outcome is Outcome.OUT_OF_MEMORY_DEVICE

    def broken(self: torch.Tensor, memo: object) -> torch.Tensor:
        raise RuntimeError("no copies")

    monkeypatch.setattr(torch.nn.Parameter, "__deepcopy__", broken)
    with pytest.raises(WorkloadError, match=r"cannot be copied.*no copies"):
        parts.training(TRIAL.settings, LOADER)
