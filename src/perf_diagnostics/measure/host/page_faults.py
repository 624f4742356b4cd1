"""What fresh memory costs the loop's thread: the kernel gives it page by page, at the first touch, cleared.

glibc gives a large block back to the kernel as soon as it is freed, or as soon as the end of its heap is free
(``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` in mallopt(3): blocks of 32 MiB and more always, and the heap's free end
once it is twice the largest block that was given back). A training on the CPU that makes the same large tensors in
every step then takes the same memory anew in every step. The kernel counts it for each thread (``getrusage`` with
``RUSAGE_THREAD``, Linux alone has it): page faults that read nothing from disk, and the time in the kernel.

Six trainings (torch 2.13, glibc 2.36, a virtual machine with two cores, 26 Nov 2026) lost up to 0.67 of their steps to
it. When freed memory was kept, most won 1.02 to 1.07 times what their loop's thread had spent in the kernel, one 1.75
times (0.8 of what all threads had): the threads of an operator wait for the one that has most to fetch.

No step pays for it: there are two readings a block of steps, of some microseconds.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import QUANTITIES, Quantity

_SOURCE = "getrusage(RUSAGE_THREAD)"

#: What cannot be known where a thread's usage cannot be read.
_COUNTED = ("loop_page_faults_per_s", "loop_system_share", "process_system_share")

#: What is touched to see what a page costs: as much as a large tensor.
_TOUCHED_BYTES = 16 * 2**20
_TOUCHED_TIMES = 3

#: Page faults a second below which they cost nothing that is worth asking for: 0.5 % at 5 us each, more than one of
#: 4 KiB was seen to take anywhere.
FEW_A_SECOND = 1000.0


@dataclass(frozen=True)
class ThreadUsage:
    """What the kernel has counted so far for one thread, and of all threads of its process the time in the kernel."""

    minor_faults: int
    system_s: float
    process_system_s: float

    @classmethod
    def now(cls) -> ThreadUsage:
        """The calling thread's. Raises Unreadable where the operating system counts for whole processes only."""
        try:
            from resource import RUSAGE_SELF, RUSAGE_THREAD, getrusage
        except ImportError as missing:
            raise Unreadable("this operating system counts page faults for no thread", lasting=True) from missing
        usage = getrusage(RUSAGE_THREAD)
        return cls(usage.ru_minflt, usage.ru_stime, getrusage(RUSAGE_SELF).ru_stime)

    def __add__(self, other: ThreadUsage) -> ThreadUsage:
        return ThreadUsage(
            self.minor_faults + other.minor_faults,
            self.system_s + other.system_s,
            self.process_system_s + other.process_system_s,
        )

    def __sub__(self, before: ThreadUsage) -> ThreadUsage:
        """What happened between two readings."""
        return ThreadUsage(
            self.minor_faults - before.minor_faults,
            self.system_s - before.system_s,
            self.process_system_s - before.process_system_s,
        )


class LoopFaults:
    """Counts over blocks of steps: :meth:`begin` and :meth:`end` around each, then :meth:`finish`.

    Args:
        observations: where what cannot be read is noted.
        usage: the calling thread's.
        thread: the number of the calling thread.
        clock: host clock in ns.
        cost: what a page costs, in s; see :func:`page_fault_s`.
    """

    def __init__(
        self,
        observations: Observations,
        *,
        usage: Callable[[], ThreadUsage] = ThreadUsage.now,
        thread: Callable[[], int] = threading.get_ident,
        clock: Callable[[], int] = time.perf_counter_ns,
        cost: Callable[[], float] | None = None,
    ) -> None:
        self._observations = observations
        self._usage = usage
        self._thread = thread
        self._clock = clock
        self._cost = cost or page_fault_s
        self._before: tuple[int, int, ThreadUsage] | None = None
        self._wall_ns = 0
        self._sums = ThreadUsage(0, 0.0, 0.0)

    def begin(self) -> None:
        """A block of steady steps begins now, in the calling thread."""
        with self._observations.guard(*_COUNTED):
            self._before = self._thread(), self._clock(), self._usage()

    def end(self) -> None:
        """The block has ended, if one had begun; in another thread nothing is known of it."""
        before, self._before = self._before, None
        if before is None or before[0] != self._thread():
            return
        with self._observations.guard(*_COUNTED):
            now = self._usage()
            self._wall_ns += self._clock() - before[1]
            self._sums += now - before[2]

    def finish(self) -> tuple[Quantity, ...]:
        """What all blocks together say; a page's cost is measured only where they had many of them."""
        self.end()
        if self._wall_ns <= 0:
            return ()
        wall_s = self._wall_ns / 1e9
        rate = self._sums.minor_faults / wall_s
        found = {
            "loop_page_faults_per_s": rate,
            "loop_system_share": min(1.0, self._sums.system_s / wall_s),
            "process_system_share": self._sums.process_system_s / wall_s,
        }
        if rate >= FEW_A_SECOND:
            with self._observations.guard("page_fault_s"):
                found["page_fault_s"] = self._cost()
        return tuple(Quantity(name, value, QUANTITIES[name][0], _SOURCE) for name, value in found.items())


def page_fault_s(
    usage: Callable[[], ThreadUsage] = ThreadUsage.now, clock: Callable[[], int] = time.perf_counter_ns
) -> float:
    """What it takes to get a page from the kernel, touch it and give it back, in s: 16 MiB of them, the quickest of 3.

    Of a page as the kernel gives them here: 2 MiB at a time where it always makes huge ones.

    Raises:
        Unreadable: the kernel counted no page.
    """
    quickest: float | None = None
    for _ in range(_TOUCHED_TIMES):
        before, began = usage(), clock()
        with mmap.mmap(-1, _TOUCHED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory[:: mmap.PAGESIZE] = bytes(len(range(0, _TOUCHED_BYTES, mmap.PAGESIZE)))
        took, faults = clock() - began, usage().minor_faults - before.minor_faults
        if faults > 0 and took > 0:
            each = took / 1e9 / faults
            quickest = each if quickest is None else min(quickest, each)
    if quickest is None:
        raise Unreadable("the kernel counted no page fault where fresh memory was touched")
    return quickest
