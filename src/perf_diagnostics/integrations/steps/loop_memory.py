"""What a training that is not ours holds in memory after a step: its process, and its device's allocator."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import psutil

from perf_diagnostics.measure.boards.allocator import DeviceMemoryReader, allocator_statistics
from perf_diagnostics.measure.observation import FAILURES_IN_A_ROW, Observations

_NOTHING = (math.nan, math.nan, math.nan, math.nan)


class LoopMemory:
    """Reads a probe's memory columns, in their order; NaN for what is not kept or cannot be read. Never raises.

    The process's memory is asked for anew each time, some 20 us: a file that is kept open, as in the trials of a sweep,
    would not survive a script that closes all files it does not know, and might be another one afterwards.

    Args:
        observations: where what cannot be read is noted.
        device: the torch device whose allocator is read as well; None as long as it is not known.
    """

    def __init__(self, observations: Observations, device: Any = None) -> None:
        self._observations = observations
        statistics = None if device is None else allocator_statistics(device)
        self._device = None if statistics is None else DeviceMemoryReader(statistics, observations)
        self._process: psutil.Process | None = None
        self._failed_in_a_row = 0

    def __call__(self) -> Sequence[float]:
        """Allocated and reserved bytes, retries and driver allocations so far, resident bytes of the process."""
        device = None if self._device is None else self._device()
        return (*(_NOTHING if device is None else device), self._resident())

    def _resident(self) -> float:
        resident = math.nan
        if self._failed_in_a_row < FAILURES_IN_A_ROW:
            with self._observations.guard("host_rss_bytes") as attempt:
                self._process = self._process or psutil.Process()
                resident = float(self._process.memory_info().rss)
            self._failed_in_a_row = self._failed_in_a_row + 1 if attempt.failed else 0
        return resident
