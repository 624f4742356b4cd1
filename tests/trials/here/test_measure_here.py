"""A trial in this process trains copies and puts back what it drew from; test_diagnostics.py looks at the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Sampler, TensorDataset

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Length, Outcome, Settings, Trial
from perf_diagnostics.trials.here.measure_here import OwnParts, measure_here, undisturbed

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


def test_a_batch_sampler_draws_from_a_generator_of_its_own() -> None:
    class Drawn(Sampler[list[int]]):
        generator = torch.Generator().manual_seed(7)

        def __iter__(self) -> Iterator[list[int]]:
            yield torch.randperm(8, generator=self.generator)[:4].tolist()

    loader = DataLoader(LOADER.dataset, batch_sampler=Drawn())
    with undisturbed(loader):
        first = list(loader.batch_sampler)
    assert list(loader.batch_sampler) == first


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


def test_a_device_that_is_lost_to_this_process_takes_no_result_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After an assertion that failed on the device every call of CUDA raises, that which frees memory as well."""

    def lost() -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    result = measure_here(TRIAL, parts_of(torch.nn.Linear(4, 3), torch.nn.CrossEntropyLoss()), LOADER, ())
    assert (result.outcome, len(result.steps[0].steady)) == (Outcome.COMPLETED, 2)
    gap = result.gap("device_memory")
    assert gap is not None and "device-side assert" in gap.why


def test_an_error_that_takes_the_cuda_context_says_what_now() -> None:
    """As torch words it; on a board every later trial of this process fails in the same way."""

    class Asserts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise getattr(torch, "AcceleratorError", RuntimeError)(
                "CUDA error: device-side assert triggered\nCUDA kernel errors might be asynchronously reported at some "
                "other API call, so the stacktrace below might be incorrect."
            )

    result = measure_here(TRIAL, parts_of(Asserts(), torch.nn.CrossEntropyLoss()), LOADER, ())
    assert result.outcome is Outcome.CRASHED
    assert "device-side assert triggered" in result.reason
    assert result.reason.endswith("started again (in a notebook: restart the kernel)")
