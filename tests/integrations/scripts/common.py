"""Parts that the scripts of this folder share: a small model, random data, and pauses whose true place is known.

A script pauses inside the parts of its steps and says which phase each pause belongs to; :func:`write_ledger` puts the
true seconds, step by step, into the file that ``LEDGER`` names.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import defaultdict
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

_steps: list[dict[str, float]] = [defaultdict(float)]


def pause(phase: str, seconds: float) -> None:
    """Wait, and note down how long it really took."""
    began = time.perf_counter()
    time.sleep(seconds)
    _steps[-1][phase] += time.perf_counter() - began


def border() -> None:
    """A step has just ended."""
    _steps.append(defaultdict(float))


def write_ledger() -> None:
    """The finished steps' true pauses."""
    if "LEDGER" in os.environ:
        Path(os.environ["LEDGER"]).write_text(json.dumps(_steps[:-1]), encoding="utf-8")


def measured(model, optimizer, loader=None):
    """``attach`` where the test asks for it; else nothing, for the script is run by the command or plainly."""
    if os.environ.get("HOW") != "attach":
        return contextlib.nullcontext()
    from perf_diagnostics.integrations import attach

    return attach(model, optimizer, loader, name="attached", results_dir=os.environ["RESULTS"])


class Noise(Dataset):
    """Random rows, so that a watched run that drew or skipped a number would show."""

    def __init__(self, rows: int = 96, seconds: float = 0.0, phase: str = "data_wait") -> None:
        self.rows, self.seconds, self.phase = rows, seconds, phase

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int):
        if self.seconds:
            pause(self.phase, self.seconds)
        return torch.randn(8), torch.randn(1)


class Net(torch.nn.Module):
    """Pauses in its forward, and after it in its backward."""

    def __init__(self, forward: float = 0.0, backward: float = 0.0, outputs: int = 1) -> None:
        super().__init__()
        self.seconds = forward, backward
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        forward, backward = self.seconds
        if forward:
            pause("forward" if self.training and torch.is_grad_enabled() else "other", forward)
        return _Paused.apply(self.layers(x), backward) if backward else self.layers(x)


class _Paused(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        pause("backward", ctx.seconds)
        return grad, None


class PausedSGD(torch.optim.SGD):
    """Pauses in its step."""

    def step(self, closure=None):
        pause("optimizer", 0.004)
        return super().step(closure)


def loader(seconds: float = 0.0, rows: int = 96, phase: str = "data_wait", batch_size: int = 4) -> DataLoader:
    torch.manual_seed(0)
    return DataLoader(Noise(rows, seconds, phase), batch_size=batch_size, shuffle=True)


def fingerprint(*models: torch.nn.Module) -> None:
    """What differs if anything drew a random number or changed a weight."""
    print(torch.rand(1).item(), [sum(p.double().sum().item() for p in model.parameters()) for model in models])
