"""Builds an mlp and plants what its options ask for."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional
from torch.utils.checkpoint import checkpoint_sequential
from torch.utils.data import DataLoader

from perf_diagnostics.errors import WorkloadError
from perf_diagnostics.records import Json, Settings
from perf_diagnostics.workloads import mlp
from perf_diagnostics.workloads.faulty.between import BetweenPhases
from perf_diagnostics.workloads.faulty.loading import count_sequences, faulty_loader
from perf_diagnostics.workloads.faulty.options import FaultyOptions, fault_names
from perf_diagnostics.workloads.mlp import Pair, mlp_training
from perf_diagnostics.workloads.options import options_from
from perf_diagnostics.workloads.workload import Training


class Faulty:
    """An mlp with planted faults; see :class:`FaultyOptions`."""

    name = "faulty"
    says = "an mlp with a planted fault, to see what the profiler makes of it"
    options = FaultyOptions

    def check_options(self, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        _planted(options)

    def check_settings(self, settings: Settings, options: Mapping[str, Json]) -> None:
        """See :class:`perf_diagnostics.workloads.beforehand.Foresighted`."""
        mlp.check_mlp_settings(settings, _planted(options), name=self.name)

    def build(self, settings: Settings, *, options: Mapping[str, Json], seed: int) -> Training:
        """See :meth:`perf_diagnostics.workloads.Workload.build`.

        Raises:
            WorkloadError: No fault is planted: that would be ``mlp``.
        """
        faults = _planted(options)
        training = mlp_training(settings, faults, seed=seed, name=self.name)
        assert isinstance(training.batches, DataLoader)
        training.batches = faulty_loader(training.batches, faults, settings, seed=seed)
        count = training.count if faults.length_cycle is None else count_sequences
        training.count = BetweenPhases(faults, count, training.model)
        training.loss_of = FaultyLoss(faults)
        if faults.learning_rate is not None:
            for group in training.optimizer.param_groups:
                group["lr"] = faults.learning_rate
        if faults.oom_above is not None:
            training.model.register_forward_pre_hook(_OutOfMemoryAbove(faults.oom_above))
        if faults.anomaly_mode:
            torch.autograd.set_detect_anomaly(True)
        return training


def _planted(options: Mapping[str, Json]) -> FaultyOptions:
    faults = options_from(FaultyOptions, options, workload=Faulty.name)
    if all(getattr(faults, fault) is None for fault in fault_names()):
        raise WorkloadError(f"faulty needs a fault to plant; give one of {', '.join(fault_names())}, or train mlp.")
    return faults


@dataclass
class FaultyLoss:
    """The loss of an mlp until the fault's batch comes."""

    faults: FaultyOptions
    batches: int = 0
    kept: list[Any] = field(default_factory=list)

    def __call__(self, model: torch.nn.Module, batch: Pair) -> torch.Tensor:
        self.batches += 1
        if self._due(self.faults.crash_after):
            raise RuntimeError(f"Planted by the workload faulty: a crash after {self.faults.crash_after} batches.")
        if self._due(self.faults.exit_after):
            os.kill(os.getpid(), signal.SIGKILL)
        while self._due(self.faults.hang_after):
            time.sleep(3600)
        loss = self._loss(model, batch)
        if self.faults.leak_kb is not None:
            self.kept.append((loss, torch.ones(round(self.faults.leak_kb * 256))))
        return loss * float("nan") if self._due(self.faults.nan_after) else loss

    def _loss(self, model: torch.nn.Module, batch: Pair) -> torch.Tensor:
        if self.faults.checkpoint_segments is None and self.faults.length_cycle is None:
            return mlp.loss_of(model, batch)
        vectors, classes = batch
        if self.faults.checkpoint_segments is None:
            logits = model(vectors)
        else:
            run: Any = checkpoint_sequential
            logits = run(model, self.faults.checkpoint_segments, vectors, use_reentrant=False)
        return functional.cross_entropy(logits if logits.ndim == 2 else logits.mean(dim=1), classes)

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
