"""A training of transformers' Trainer on several ranks, measured by the callback. Argument: the results folder."""

from __future__ import annotations

import sys

import torch
import transformers

from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))

    def forward(self, x, labels=None):
        return {"loss": self.layers(x).square().mean()}


arguments = transformers.TrainingArguments(
    output_dir=f"{sys.argv[1]}-out",
    report_to="none",
    disable_tqdm=True,
    use_cpu=True,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    max_steps=20,
    save_strategy="no",
    dataloader_pin_memory=False,
)
rows = [{"x": torch.randn(64), "labels": torch.zeros(1)} for _ in range(320)]
callback = PerformanceDiagnosticsCallback(name="ranks", results_dir=sys.argv[1])
transformers.Trainer(model=Net(), args=arguments, train_dataset=rows, callbacks=[callback]).train()
