"""Parts that the scripts of this folder share: a small model, data that draws random numbers, and slow functions."""

from __future__ import annotations

import time

import torch
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    """Random rows, so that a watched run that drew or skipped a number would show; each takes ``seconds`` to make."""

    def __init__(self, rows: int = 64, seconds: float = 0.0) -> None:
        self.rows, self.seconds = rows, seconds

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, index: int):
        if self.seconds:
            time.sleep(self.seconds)
        return torch.randn(8), torch.randn(1)


class Net(torch.nn.Module):
    def __init__(self, seconds: float = 0.0, inputs: int = 8) -> None:
        super().__init__()
        self.seconds = seconds
        self.layers = torch.nn.Sequential(torch.nn.Linear(inputs, 16), torch.nn.Dropout(0.1), torch.nn.Linear(16, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.seconds:
            time.sleep(self.seconds)
        return self.layers(x)


class SlowBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seconds):
        ctx.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        time.sleep(ctx.seconds)
        return grad, None


def endless(loader: DataLoader):
    while True:
        yield from loader
