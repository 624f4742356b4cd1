"""Trainings of a tiny model inside a framework, with pauses whose true place is known, and what must come of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
from torch.utils.data import Dataset

from perf_diagnostics.records import ALL_PHASES, TrialResult
from perf_diagnostics.store.find import list_runs

#: Planted in each step; long beside what a step of the tiny model itself takes.
DOSE_S = 0.02

#: A phase's share of the wall time may lie this far above the planted share, for its own work is in it; never below.
TOLERANCE = 0.2

#: How long each pause really took, which on a busy machine is longer than it was asked for.
SLEPT: list[float] = []


def pause(seconds: float) -> None:
    """Wait, and note down how long it really took."""
    if seconds:
        began = time.perf_counter()
        time.sleep(seconds)
        SLEPT.append(time.perf_counter() - began)


class Rows(Dataset):
    """Random rows as mappings; the draws would show a number that somebody else drew."""

    def __init__(self, rows: int, seconds: float = 0.0) -> None:
        self.rows, self.seconds = rows, seconds

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        pause(self.seconds)
        return {"x": torch.randn(4), "labels": torch.randn(1)}


class PausingSGD(torch.optim.SGD):
    """Takes its time to step."""

    seconds = 0.0

    def step(self, closure=None):
        pause(self.seconds)
        return super().step(closure)


class PausingLinear(torch.nn.Module):
    """A line that takes its time, forward and backward."""

    def __init__(self, forward_s: float = 0.0, backward_s: float = 0.0) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.forward_s, self.backward_s = forward_s, backward_s

    def forward(self, x, labels=None):
        if self.training:
            pause(self.forward_s)
        y = self.line(x)
        if y.requires_grad and self.backward_s:
            y.register_hook(lambda grad: pause(self.backward_s))
        return {"loss": torch.nn.functional.mse_loss(y, labels), "y": y}


def results_in(root: Path) -> list[TrialResult]:
    """Each run's only result, oldest first."""
    return [result for folder in sorted(list_runs(root), key=lambda f: f.path.name) for result in folder.read().results]


def holds_its_dose(result: TrialResult, phase: str) -> None:
    """All that was slept since :data:`SLEPT` was cleared lies in the planted phase, and hardly anything else does."""
    table = result.steps[0]
    wall_s = table.wall_ns.sum() / 1e9
    spent = {str(p): table.host_ns(p) for p in ALL_PHASES}
    shares = {name: 0.0 if ns is None else ns.sum() / 1e9 / wall_s for name, ns in spent.items()}
    due = sum(SLEPT) / wall_s
    assert due > 0.1, "the doses are lost in the machine's own work"
    assert due - 1e-6 <= shares[phase] <= due + TOLERANCE, (shares, due)


def closes(result: TrialResult) -> None:
    """Phases and other are the steps, and the steps are the wall time read around them, to 0.5 %."""
    table = result.steps[0]
    spent = sum(table.host_ns(phase) for phase in ALL_PHASES if table.host_ns(phase) is not None)
    assert (spent == table.wall_ns).all() and (table.host_ns(ALL_PHASES[-1]) >= 0).all()
    assert table.steady.wall_ns.sum() / 1e9 == pytest.approx(result.value("measured_wall_s"), rel=0.005)
