"""Faults of the loader: samples that take long, one worker that is slower than the others, batches of other lengths."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, get_worker_info

from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.faulty.options import FaultyOptions
from perf_diagnostics.workloads.loaders import shuffled_loader
from perf_diagnostics.workloads.mlp import Pair
from perf_diagnostics.workloads.workload import BatchCount


def faulty_loader(loader: DataLoader[Any], faults: FaultyOptions, settings: Settings, *, seed: int) -> DataLoader[Any]:
    """The same samples in the same order, with what is planted in the loader; the loader itself if nothing is."""
    slow: Dataset[Any] = loader.dataset
    if faults.sleep_per_item_ms is not None:
        slow = SlowDataset(slow, time.sleep, faults.sleep_per_item_ms / 1e3)
    if faults.burn_per_item_ms is not None:
        slow = SlowDataset(slow, burn, faults.burn_per_item_ms / 1e3)
    if faults.slow_worker_ms is not None:
        slow = SlowDataset(slow, sleep_in_first_worker, faults.slow_worker_ms / 1e3)
    collate = None if faults.length_cycle is None else CyclingLengths(faults.length_cycle)
    if slow is loader.dataset and collate is None:
        return loader
    return shuffled_loader(slow, settings, device=torch.device(settings.device), seed=seed, collate=collate)


@dataclass(frozen=True)
class SlowDataset(Dataset[Any]):
    """Another dataset, each item of which takes ``seconds`` longer, in a way of its own."""

    items: Dataset[Any]
    spend: Callable[[float], object]
    seconds: float

    def __len__(self) -> int:
        return len(self.items)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        self.spend(self.seconds)
        return self.items[index]


def burn(seconds: float) -> None:
    """Compute, in plain Python, until the thread has had so much processor time."""
    until = time.thread_time() + seconds
    number = 1
    while time.thread_time() < until:
        for _ in range(50):
            number = number * 48271 % 2147483647


def sleep_in_first_worker(seconds: float) -> None:
    """Sleep, but only in the first worker process of a loader."""
    worker = get_worker_info()
    if worker is not None and worker.id == 0:
        time.sleep(seconds)


@dataclass
class CyclingLengths:
    """Batches whose samples are sequences: as long as 1, 2, … ``longest`` times their vector, one length a batch."""

    longest: int
    batches: int = field(default=0)

    def __call__(self, samples: list[Pair]) -> Pair:
        length = 1 + self.batches % self.longest
        self.batches += 1
        vectors = torch.stack([vector for vector, _ in samples])
        return vectors.unsqueeze(1).repeat(1, length, 1), torch.stack([label for _, label in samples])


def count_sequences(batch: Pair) -> BatchCount:
    """Samples and their tokens; nothing is padded, for all sequences of a batch are of one length."""
    rows, length, _ = batch[0].shape
    return BatchCount(samples=rows, tokens=rows * length, padding_tokens=0)
