"""What the device's allocator in this process holds: per step without waiting for the device, and at the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from perf_diagnostics.measure.observation import FAILURES_IN_A_ROW, Observations
from perf_diagnostics.records import Quantity

#: Allocated and reserved bytes, retried allocations and driver allocations so far; NaN for what is not counted.
DeviceMemory: TypeAlias = tuple[float, float, float, float]

#: The columns of a step table that these four numbers fill, in their order.
DEVICE_COLUMNS = ("allocated_bytes", "reserved_bytes", "alloc_retries", "device_allocs")

_RETRIES = ("num_alloc_retries",)

#: Their places in ``torch.cuda.memory_stats_as_nested_dict``. ``num_device_alloc`` counts cudaMalloc and its kin; it is
#: missing before torch 2.1.
_PLACES = (
    ("allocated_bytes", "all", "current"),
    ("reserved_bytes", "all", "current"),
    _RETRIES,
    ("num_device_alloc",),
)
_OOMS = ("num_ooms",)
#: Calls of synchronize_and_free_events: before a retry, and whenever somebody empties the cache (torch's documentation
#: of ``torch.cuda.memory_stats``).
_SYNCS = ("num_sync_all_streams",)
_INACTIVE_SPLIT = ("inactive_split_bytes", "all", "current")

Statistics: TypeAlias = Callable[[], Mapping[str, Any]]


class DeviceMemoryReader:
    """Reads the allocator's counters, which are kept on the host: nothing is synchronised and nothing allocated.

    Call it as often as the columns need; one call builds a dictionary of some hundred numbers, so it belongs at most
    every 50 ms into a loop. A reader that failed three times in a row gives None for good, with the reason noted.

    Args:
        statistics: gives the allocator's counters as torch nests them.
        observations: where a failure is noted, for each column.
    """

    def __init__(self, statistics: Statistics, observations: Observations) -> None:
        self._statistics = statistics
        self._observations = observations
        self._failed_in_a_row = 0

    def __call__(self) -> DeviceMemory | None:
        """The four numbers of :data:`DEVICE_COLUMNS`, or None where they could not be read."""
        if self._failed_in_a_row >= FAILURES_IN_A_ROW:
            return None
        found: DeviceMemory | None = None
        with self._observations.guard(*DEVICE_COLUMNS) as attempt:
            counters = self._statistics()
            allocated, reserved, retries, device_allocs = (_at(counters, place) for place in _PLACES)
            found = (allocated, reserved, retries, device_allocs)
        self._failed_in_a_row = self._failed_in_a_row + 1 if attempt.failed else 0
        return found


@dataclass(frozen=True)
class AllocatorState:
    """The allocator at one moment; None is what it does not count.

    ``retries`` is how many allocations succeeded so far only after its cache was emptied, ``ooms`` how many did not
    even then (each raised ``torch.OutOfMemoryError``), ``inactive_split_bytes`` the free parts of split blocks,
    ``syncs`` how often it waited for all streams so that it could give blocks back to the driver.
    """

    retries: int | None
    inactive_split_bytes: int | None
    ooms: int | None
    syncs: int | None = None

    @classmethod
    def of(cls, counters: Mapping[str, Any]) -> AllocatorState:
        """Out of torch's nested counters."""
        places = (_RETRIES, _INACTIVE_SPLIT, _OOMS, _SYNCS)
        return cls(*(None if math.isnan(value := _at(counters, place)) else int(value) for place in places))

    def failures_since(self, before: AllocatorState | None) -> list[Quantity]:
        """Allocations since then that were retried, those that failed, and waits; what is not counted is left out."""
        if before is None:
            return []
        pairs = (
            ("alloc_retries", before.retries, self.retries),
            ("alloc_ooms", before.ooms, self.ooms),
            ("alloc_syncs", before.syncs, self.syncs),
        )
        return [
            Quantity(name, float(now - then), "1", "torch.cuda.memory_stats")
            for name, then, now in pairs
            if then is not None and now is not None
        ]


def allocator_statistics(device: Any) -> Statistics | None:
    """What gives the counters of a torch device's allocator; None where it keeps none (the CPU, other kinds)."""
    if device.type != "cuda":
        return None
    import torch

    return lambda: torch.cuda.memory_stats_as_nested_dict(device)


def _at(counters: Mapping[str, Any], place: tuple[str, ...]) -> float:
    value: Any = counters
    for name in place:
        if not isinstance(value, Mapping) or name not in value:
            return float("nan")
        value = value[name]
    return float(value)
