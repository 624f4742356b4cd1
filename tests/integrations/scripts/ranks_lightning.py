"""A fit of Lightning's Trainer with its own DDP strategy, measured by the callback. Argument: the results folder."""

from __future__ import annotations

import sys

import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations.lightning import PerformanceDiagnosticsCallback


class Module(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 64))

    def training_step(self, batch, number):
        return self.net(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = pl.Trainer(
    accelerator="cpu",
    devices=2,
    strategy="ddp",
    max_steps=40,
    accumulate_grad_batches=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
    callbacks=[PerformanceDiagnosticsCallback(name="ranks", results_dir=sys.argv[1])],
)
trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(320, 64)), batch_size=4))
