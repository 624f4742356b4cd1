"""In which phase each part of a step lies: not the loss outside of forward, nor zero_grad inside backward."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from perf_diagnostics.records import Phase, Settings
from perf_diagnostics.trials.steps.phases import LookedAt
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.workload import BatchCount, Training


class Borders(LookedAt):
    """Notes what is done while which phase is open; the phases of a step never overlap."""

    def __init__(self) -> None:
        self.epoch = 0
        self.open: Phase | None = None
        self.done: list[tuple[str, Phase | None]] = []

    @contextmanager
    def _span(self, phase: Phase) -> Iterator[None]:
        assert self.open is None, f"{phase} begins inside {self.open}"
        self.open = phase
        yield
        self.open = None

    def note(self, what: str) -> None:
        self.done.append((what, self.open))

    def end_step(self, **_told: Any) -> None:
        self.note("end")


class Noted(torch.optim.SGD):
    borders: Borders

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.borders.note("step")
        super().step(closure)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.borders.note("zero_grad")
        super().zero_grad(set_to_none)


class Batches:
    def __init__(self, borders: Borders) -> None:
        self.borders = borders

    def __iter__(self) -> Iterator[torch.Tensor]:
        self.borders.note("pass")
        for _ in range(2):
            self.borders.note("batch")
            yield torch.ones(4, 8)


def test_every_part_of_two_accumulated_steps_lies_in_its_phase() -> None:
    borders = Borders()
    model = torch.nn.Linear(8, 2)
    optimizer = Noted(model.parameters(), lr=0.1)
    optimizer.borders = borders

    def loss_of(made: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = made(batch)
        borders.note("loss")
        return output.square().mean()

    def to_device(batch: torch.Tensor, _device: torch.device) -> torch.Tensor:
        borders.note("copy")
        return batch

    def gradient(_gradient: torch.Tensor) -> None:
        borders.note("gradient")

    model.bias.register_hook(gradient)
    training = Training(
        model=model,
        optimizer=optimizer,
        batches=Batches(borders),
        loss_of=loss_of,
        count=lambda batch: BatchCount(batch.shape[0]),
        to_device=to_device,
        scheduler=torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _step: borders.note("schedule") or 1.0),
        clip_grad_norm=1.0,
    )
    borders.done.clear()  # a scheduler sets the first rate when it is made
    step = TrainingStep(training, Settings(batch_size=4, accumulation_steps=2), torch.device("cpu"), borders)
    step()
    step()
    micro = [
        ("batch", Phase.DATA_WAIT),
        ("copy", Phase.TRANSFER),
        ("loss", Phase.FORWARD),
        ("gradient", Phase.BACKWARD),
    ]
    update = [("step", Phase.OPTIMIZER), ("schedule", Phase.OPTIMIZER), ("zero_grad", Phase.OPTIMIZER), ("end", None)]
    whole = [("pass", Phase.DATA_WAIT), *micro, *micro, *update]
    assert borders.done == whole * 2  # the second pass over the data begins with the second step, in its wait
