"""A training on Accelerate on several ranks, measured by attach_accelerator. Argument: the results folder."""

from __future__ import annotations

import sys

import accelerate
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations.accelerate import attach_accelerator

torch.manual_seed(0)
accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model, optimizer, loader = accelerator.prepare(
    model, optimizer, DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=4)
)
with attach_accelerator(accelerator, name="ranks", results_dir=sys.argv[1]):
    for (batch,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(batch).square().mean())
            optimizer.step()
            optimizer.zero_grad()
accelerator.end_training()
