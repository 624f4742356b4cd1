"""What is read beside a step's times: memory and CPU time, now and then, and torch.compile's count of graphs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from perf_diagnostics.records import Float64, Int64

#: The columns that a memory reader fills, in the order of its tuple.
MEMORY_COLUMNS = ("allocated_bytes", "reserved_bytes", "alloc_retries", "device_allocs", "host_rss_bytes")

#: What a memory reader gives: a value a column by its name, or all five in order; NaN for what it has not.
MemoryReading: TypeAlias = Mapping[str, float] | Sequence[float]

#: Asking the allocator and the kernel takes tens of microseconds, and memory that matters grows over seconds.
MEMORY_INTERVAL_NS = 50_000_000

NO_GRAPHS = -1

#: In a step that is shorter than this torch.compile has made no graph: tracing ``x + 1`` for no back end takes longer.
QUICK_NS = 2_000_000


#: Stands where the thread's CPU clock was not read at the end of a step: the next reading holds for this one, too.
UNREAD = -1


def cpu_of_steps(wall_ns: Int64, read_ns: Int64) -> Int64:
    """CPU time of each step in ns, where a reading holds for all steps since the one before.

    Steps share a reading only where the thread ran without a break before them, so that each has its wall time but for
    what is missing in the sum: that is the longest one's, which is where a thread lost its processor. Where more is
    missing than that, all are equally short of it.

    Args:
        wall_ns: of the steps.
        read_ns: CPU time since the reading before, :data:`UNREAD` where there was none; the last one is one.
    """
    ends = np.flatnonzero(read_ns != UNREAD)
    if ends.size == read_ns.size:
        return read_ns
    begins = np.concatenate([[0], ends[:-1] + 1])
    stretch = np.repeat(np.arange(ends.size), ends - begins + 1)
    total_ns, used_ns = np.add.reduceat(wall_ns, begins), read_ns[ends]
    longest = np.lexsort((-wall_ns, stretch))[begins]
    missing_ns = np.maximum(0, total_ns - used_ns)
    cpu_ns = wall_ns.copy()
    cpu_ns[longest] -= missing_ns
    many = (missing_ns > wall_ns[longest])[stretch]
    part = used_ns / np.maximum(total_ns, 1)
    cpu_ns[many] = np.rint(wall_ns * part[stretch])[many]
    alone = begins == ends
    cpu_ns[ends[alone]] = used_ns[alone]
    return cpu_ns


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


def compiled_graphs() -> int:
    """How many graphs torch.compile has made in this process, by its own counter; imports nothing."""
    counters: Any = getattr(sys.modules.get("torch._dynamo.utils"), "counters", None) or {}
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def compiles() -> bool:
    """Whether torch.compile was called in this process, by the backends that it has put down; imports nothing.

    They are in ``torch._dynamo.eval_frame.cached_backends``, where torch's own functions that are not to be compiled
    leave None. What was compiled is traced with its first call, which may come much later.
    """
    backends: Any = getattr(sys.modules.get("torch._dynamo.eval_frame"), "cached_backends", None) or {}
    return any(backend is not None for backend in backends.values())


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
