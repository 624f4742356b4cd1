"""The workload ``faulty``: an mlp with a planted fault, to see what the profiler makes of it.

The faults are real: the sleeping loader sleeps, the exiting process is killed by SIGKILL. Batches are counted from 1
in the order their loss is asked for, so ``crash_after=3`` trains three batches and fails in the fourth's forward pass.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads import mlp
from perf_diagnostics.workloads.data import shuffled_loader
from perf_diagnostics.workloads.mlp import MlpOptions, Pair, mlp_training
from perf_diagnostics.workloads.options import option, options_from
from perf_diagnostics.workloads.workload import Training


@dataclass(frozen=True)
class FaultyOptions(MlpOptions):
    """The options of ``faulty``: those of ``mlp``, and the faults. Several faults may be planted together."""

    sleep_per_item_ms: float | None = option(None, "the loader sleeps this long over each sample", least=0)
    nan_after: int | None = option(None, "the loss is NaN after this many batches", least=0)
    crash_after: int | None = option(None, "a RuntimeError is raised after this many batches", least=0)
    exit_after: int | None = option(None, "the process kills itself with SIGKILL after this many batches", least=0)
    hang_after: int | None = option(None, "the forward pass never returns after this many batches", least=0)
    oom_above: int | None = option(None, "batches of more samples than this raise torch.OutOfMemoryError", least=0)


class Faulty:
    """An mlp with planted faults; see :class:`FaultyOptions`."""

    name = "faulty"
    says = "an mlp with a planted fault, to see what the profiler makes of it"
    options = FaultyOptions

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """See :meth:`perf_diagnostics.workloads.Workload.build`.

        Raises:
            WorkloadError: No fault is planted: that would be ``mlp``.
        """
        chosen = options_from(FaultyOptions, options, workload=self.name)
        faults = [f.name for f in fields(FaultyOptions) if f.name not in {g.name for g in fields(MlpOptions)}]
        if all(getattr(chosen, fault) is None for fault in faults):
            raise WorkloadError(f"faulty needs a fault to plant; give one of {', '.join(faults)}, or train mlp.")
        training = mlp_training(settings, chosen, seed=seed, name=self.name)
        training.loss_of = FaultyLoss(chosen)
        if chosen.sleep_per_item_ms is not None:
            assert isinstance(training.batches, DataLoader)
            slow = SlowDataset(training.batches.dataset, chosen.sleep_per_item_ms / 1e3)
            training.batches = shuffled_loader(slow, settings, device=torch.device(settings.device), seed=seed)
        if chosen.oom_above is not None:
            training.model.register_forward_pre_hook(_OutOfMemoryAbove(chosen.oom_above))
        return training


@dataclass(frozen=True)
class SlowDataset(Dataset[Any]):
    """Another dataset, each item of which takes ``seconds`` longer without using the processor."""

    items: Dataset[Any]
    seconds: float

    def __len__(self) -> int:
        return len(self.items)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return self.items[index]


@dataclass
class FaultyLoss:
    """The loss of an mlp until the fault's batch comes."""

    faults: FaultyOptions
    batches: int = 0

    def __call__(self, model: torch.nn.Module, batch: Pair) -> torch.Tensor:
        self.batches += 1
        if self._due(self.faults.crash_after):
            raise RuntimeError(f"Planted by the workload faulty: a crash after {self.faults.crash_after} batches.")
        if self._due(self.faults.exit_after):
            os.kill(os.getpid(), signal.SIGKILL)
        while self._due(self.faults.hang_after):
            time.sleep(3600)
        loss = mlp.loss_of(model, batch)
        return loss * float("nan") if self._due(self.faults.nan_after) else loss

    def _due(self, after: int | None) -> bool:
        return after is not None and self.batches > after


@dataclass(frozen=True)
class _OutOfMemoryAbove:
    samples: int

    def __call__(self, model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        rows = inputs[0].shape[0]
        if rows > self.samples:
            raise torch.OutOfMemoryError(
                f"Planted by the workload faulty: out of memory for a batch of {rows}, more than {self.samples}."
            )
