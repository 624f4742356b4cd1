"""Faults in the loop, outside of every phase: what people do between one step's parts and the next."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from perf_diagnostics.workloads.faulty.loading import burn
from perf_diagnostics.workloads.faulty.options import FaultyOptions
from perf_diagnostics.workloads.mlp import Pair
from perf_diagnostics.workloads.workload import BatchCount

_STALL_MS = 100.0

#: The heap is filled before this batch is counted: in the warm-up.
_HEAP_AT = 3


@dataclass
class BetweenPhases:
    """Counts a batch as ``count`` does, which the loop asks for outside of every phase, and does the faults' work.

    ``heap`` is what the garbage collector finds to look through; ``kept`` grows.
    """

    faults: FaultyOptions
    count: Callable[[Pair], BatchCount]
    model: torch.nn.Module
    batches: int = 0
    heap: list[list[int]] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)

    def __call__(self, batch: Pair) -> BatchCount:
        self.batches += 1
        if self.batches == _HEAP_AT and self.faults.heap_objects is not None:
            # What torch itself holds, and makes in its first steps, takes tens of ms to look through; without it the
            # heap's size is the dose.
            gc.freeze()
            self.heap = [[number] for number in range(self.faults.heap_objects)]
        self._compute()
        self._wait()
        self._write()
        self._use_memory()
        return self.count(batch)

    def _due(self, every: int | None) -> bool:
        return every is not None and self.batches % every == 0

    def _compute(self) -> None:
        if self.faults.preprocess_ms is not None:
            burn(self.faults.preprocess_ms / 1e3)

    def _wait(self) -> None:
        if self._due(self.faults.stall_every):
            time.sleep((_STALL_MS if self.faults.stall_ms is None else self.faults.stall_ms) / 1e3)
        if self.faults.drift_ms is not None:
            time.sleep(self.faults.drift_ms * self.batches / 1e3)

    def _write(self) -> None:
        if self._due(self.faults.save_every):
            with tempfile.TemporaryFile() as file:
                torch.save(self.model.state_dict(), file)
                _to_disk(file)
            time.sleep((self.faults.save_ms or 0.0) / 1e3)
        if self.faults.fsync_kb is not None:
            with tempfile.TemporaryFile() as file:
                file.write(bytes(round(self.faults.fsync_kb * 1024)))
                _to_disk(file)

    def _use_memory(self) -> None:
        if self.faults.kept_objects is not None:
            self.kept.append([[number] for number in range(self.faults.kept_objects)])
        if self.faults.fresh_mb is not None:
            torch.ones(round(self.faults.fresh_mb * 2**20 / 4)).sum()
        if self._due(self.faults.collect_every):
            gc.collect()


def _to_disk(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())
