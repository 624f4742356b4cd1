"""The memory columns of a step: the device's allocator and this process's resident memory, read in one call."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from perf_diagnostics.measure.boards.allocator import DeviceMemory, DeviceMemoryReader, allocator_statistics
from perf_diagnostics.measure.host.host_memory import HostMemoryReader
from perf_diagnostics.measure.observation import Observations

_NOTHING: DeviceMemory = (math.nan, math.nan, math.nan, math.nan)


class StepMemory:
    """Gives what a probe writes into its memory columns, in their order; NaN for what is not kept or not readable.

    It never raises and never waits for the device. On the CPU there is no allocator, which is no gap.
    """

    def __init__(self, device: Callable[[], DeviceMemory | None] | None, host: HostMemoryReader) -> None:
        self._device = device
        self._host = host

    @classmethod
    def of(cls, device: Any, observations: Observations) -> StepMemory:
        """The readers that suit a torch device."""
        statistics = allocator_statistics(device)
        reader = None if statistics is None else DeviceMemoryReader(statistics, observations)
        return cls(reader, HostMemoryReader(observations))

    def __call__(self) -> tuple[float, ...]:
        """Allocated and reserved bytes, retries and driver allocations so far, resident bytes of the process."""
        device = None if self._device is None else self._device()
        resident = self._host()
        return (*(_NOTHING if device is None else device), math.nan if resident is None else resident)

    def close(self) -> None:
        """Let go of the file that is kept open."""
        self._host.close()
