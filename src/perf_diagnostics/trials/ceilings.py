"""What the device can do at best, measured beside the trial: the floor under what a fix could reach."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from perf_diagnostics.measure.device_clock import event_source

#: Large enough to leave the caches of most processors and GPUs, small enough to fit beside a trial.
_COPY_BYTES = 256 * 2**20
_REPEATS = 6


def memory_bandwidth(device: torch.device, *, clock: Callable[[], int] = time.perf_counter_ns) -> float | None:
    """Bytes a second of the best of six large copies, reading and writing counted; None if there is no room for one.

    The same measure as STREAM's "copy" (McCalpin, 1995). An optimizer that only streams its state through the
    processor cannot be faster than its bytes over this.
    """
    events = event_source(device, clock)
    wait = (lambda: None) if events is None else events.synchronize
    try:
        origin = torch.ones(_COPY_BYTES // 4, dtype=torch.float32, device=device)
        target = torch.empty_like(origin)
        best_ns = min(_copy_ns(origin, target, wait, clock) for _ in range(_REPEATS))
    except (RuntimeError, MemoryError):  # out of memory beside a trial that filled it
        return None
    return 2 * _COPY_BYTES / (best_ns / 1e9)


def _copy_ns(origin: torch.Tensor, target: torch.Tensor, wait: Callable[[], None], clock: Callable[[], int]) -> int:
    wait()
    began = clock()
    target.copy_(origin)
    wait()
    return clock() - began
