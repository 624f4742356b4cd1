"""What is read beside a step's times: memory, now and then, and how many graphs torch.compile has made."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from perf_diagnostics.records import Float64

#: The columns that a memory reader fills, in the order of its tuple.
MEMORY_COLUMNS = ("allocated_bytes", "reserved_bytes", "alloc_retries", "device_allocs", "host_rss_bytes")

#: What a memory reader gives: a value a column by its name, or all five in order; NaN for what it has not.
MemoryReading: TypeAlias = Mapping[str, float] | Sequence[float]

#: Asking the allocator and the kernel takes tens of microseconds, and memory that matters grows over seconds.
MEMORY_INTERVAL_NS = 50_000_000

NO_GRAPHS = -1


class SpacedMemory:
    """Calls a memory reader at the ends of steps, but no more often than every ``interval_ns``."""

    def __init__(self, reader: Callable[[], MemoryReading]) -> None:
        self._reader = reader
        self._readings: list[tuple[int, MemoryReading]] = []
        self._had: set[str] = set()
        self.interval_ns = MEMORY_INTERVAL_NS
        #: Host time from which on the next step's end is one to read at.
        self.due_ns = -(2**62)

    def read(self, step: int, now_ns: int) -> None:
        """Read at the end of the step with this number since the last :meth:`take`."""
        self.due_ns = now_ns + self.interval_ns
        self._readings.append((step, self._reader()))

    def take(self, steps: int) -> dict[str, Float64]:
        """The columns of so many steps, NaN where nothing was read; one of which no value was ever read is absent.

        A column that an earlier table had stays, also where a short block holds no reading, or the tables of one
        trial would not have the same columns.
        """
        columns = {name: np.full(steps, math.nan) for name in MEMORY_COLUMNS}
        for step, reading in self._readings:
            named = reading if isinstance(reading, Mapping) else dict(zip(MEMORY_COLUMNS, reading, strict=True))
            for name in MEMORY_COLUMNS:
                columns[name][step] = named.get(name, math.nan)
        self._readings = []
        self._had |= {name for name, values in columns.items() if not np.isnan(values).all()}
        return {name: values for name, values in columns.items() if name in self._had}


class CompiledGraphs:
    """How many graphs torch.compile has made since this was made, by torch's own counter; imports nothing.

    The counter is ``torch._dynamo.utils.counters["stats"]["unique_graphs"]`` (torch 2.0 and later); a recompilation
    counts once more.
    """

    def __init__(self) -> None:
        self._counters: Any = None
        #: What was compiled before belongs to somebody else: another trial of this process, or the notebook around it.
        self._before = 0
        self._before = max(0, self())

    def __call__(self) -> int:
        """The count; :data:`NO_GRAPHS` as long as nobody has imported torch's compiler."""
        counters = self._counters
        if counters is None:
            module = sys.modules.get("torch._dynamo.utils")
            counters = self._counters = getattr(module, "counters", None)
            if counters is None:
                return NO_GRAPHS
        stats = counters.get("stats")
        return 0 if stats is None else max(0, int(stats.get("unique_graphs", 0)) - self._before)
