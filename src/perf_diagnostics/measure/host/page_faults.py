"""What fresh memory costs the loop's thread: the kernel gives it page by page, at the first touch, cleared.

glibc gives a large block back to the kernel as soon as it is freed, or as soon as the end of its heap is free
(``M_MMAP_THRESHOLD`` and ``M_TRIM_THRESHOLD`` in mallopt(3): blocks of 32 MiB and more always, and the heap's free end
once it is twice the largest block that was given back). A training on the CPU that makes the same large tensors in
every step then takes the same memory anew in every step. The kernel counts it for each thread (``getrusage`` with
``RUSAGE_THREAD``, Linux alone has it): page faults that read nothing from disk, and the time in the kernel.

Six trainings (torch 2.13, glibc 2.36, a virtual machine with two cores, 26 Nov 2026) lost up to 0.67 of their steps to
it. When freed memory was kept, four won 1.02 to 1.07 times what their loop's thread had spent in the kernel, DistilBERT
1.75 to 1.87 times (0.8 to 1.05 of what all threads had: those of an operator wait for the one that has most to fetch),
and one that had lost 4 % won 1 %.

Memory that only grows (a cache that fills) is faulted in as well, and stays: by how much the process's resident memory
grew is told beside the faults.

No step pays for it: there are two readings a block of steps, of some ten microseconds.
"""

from __future__ import annotations

import mmap
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from perf_diagnostics.measure.host.memory import ProcessCounters, rss_bytes
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import QUANTITIES, Quantity

#: Where each number comes from.
_SOURCES = {
    "loop_page_faults_per_s": "getrusage(RUSAGE_THREAD)",
    "resident_growth_pages_per_s": "VmRSS",
    "loop_system_share": "getrusage(RUSAGE_THREAD)",
    "process_system_share": "getrusage(RUSAGE_SELF)",
    "page_fault_s": "fresh memory touched page by page",
}
#: What cannot be known where a thread's counters cannot be read.
_COUNTED = ("loop_page_faults_per_s", "resident_growth_pages_per_s", "loop_system_share", "process_system_share")

#: What is touched to see what a page costs: as much as a large tensor.
_TOUCHED_BYTES = 16 * 2**20
_TOUCHED_TIMES = 3

#: Page faults a second below which they cost nothing that is worth asking for: 0.5 % at 5 us each (seen: up to 3.6).
FEW_A_SECOND = 1000.0


class _Before(NamedTuple):
    """What was read where a block began."""

    thread: int
    began_ns: int
    of_thread: ProcessCounters
    of_process: ProcessCounters
    resident: int | None


class LoopFaults:
    """Counts over blocks of steps: :meth:`begin` and :meth:`end` around each, then :meth:`finish`.

    Args:
        observations: where what cannot be read is noted.
        of_thread: the calling thread's counters.
        of_process: the process's.
        resident: the process's resident memory in bytes, or None where nobody tells.
        thread: the number of the calling thread.
        clock: host clock in ns.
        cost: what a page costs, in s; see :func:`page_fault_s`.
    """

    def __init__(
        self,
        observations: Observations,
        *,
        of_thread: Callable[[], ProcessCounters] = ProcessCounters.of_this_thread,
        of_process: Callable[[], ProcessCounters] = ProcessCounters.now,
        resident: Callable[[], int | None] = rss_bytes,
        thread: Callable[[], int] = threading.get_ident,
        clock: Callable[[], int] = time.perf_counter_ns,
        cost: Callable[[], float] | None = None,
    ) -> None:
        self._observations = observations
        self._of_thread = of_thread
        self._of_process = of_process
        self._resident = resident
        self._thread = thread
        self._clock = clock
        self._cost = cost or page_fault_s
        self._before: _Before | None = None
        self._wall_ns = 0
        self._faults = 0
        #: By how many bytes the resident memory grew over the blocks; None where nobody tells.
        self._grown: int | None = 0
        self._system_s = self._process_system_s = 0.0

    def begin(self) -> None:
        """A block of steady steps begins now, in the calling thread."""
        with self._observations.guard(*_COUNTED):
            resident = self._resident()
            self._before = _Before(self._thread(), self._clock(), self._of_thread(), self._of_process(), resident)

    def end(self) -> None:
        """The block has ended, if one had begun; in another thread nothing is known of it."""
        before, self._before = self._before, None
        if before is None or before.thread != self._thread():
            return
        with self._observations.guard(*_COUNTED):
            spent, by_all = self._of_thread() - before.of_thread, self._of_process() - before.of_process
            self._wall_ns += self._clock() - before.began_ns
            self._faults += spent.minor_faults
            self._system_s += spent.system_s
            self._process_system_s += by_all.system_s
            now = self._resident()
            if now is None or before.resident is None or self._grown is None:
                self._grown = None
            else:
                self._grown += now - before.resident

    def finish(self) -> tuple[Quantity, ...]:
        """What all blocks together say; a page's cost is measured only where they had many of them."""
        self.end()
        if self._wall_ns <= 0:
            return ()
        wall_s = self._wall_ns / 1e9
        rate = self._faults / wall_s
        found = {
            "loop_page_faults_per_s": rate,
            "loop_system_share": min(1.0, self._system_s / wall_s),
            "process_system_share": self._process_system_s / wall_s,
        }
        if self._grown is not None:
            found["resident_growth_pages_per_s"] = max(0, self._grown) / mmap.PAGESIZE / wall_s
        if rate >= FEW_A_SECOND:
            with self._observations.guard("page_fault_s"):
                found["page_fault_s"] = self._cost()
        return tuple(Quantity(name, value, QUANTITIES[name][0], _SOURCES[name]) for name, value in found.items())


def page_fault_s(
    of_thread: Callable[[], ProcessCounters] = ProcessCounters.of_this_thread,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> float:
    """What it takes to get a page from the kernel, touch it and give it back, in s: 16 MiB of them, the quickest of 3.

    Of a page as the kernel gives them here: 2 MiB at a time where it always makes huge ones.

    Raises:
        Unreadable: the kernel counted no page.
    """
    quickest: float | None = None
    for _ in range(_TOUCHED_TIMES):
        before, began = of_thread(), clock()
        with mmap.mmap(-1, _TOUCHED_BYTES, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
            memory[:: mmap.PAGESIZE] = bytes(len(range(0, _TOUCHED_BYTES, mmap.PAGESIZE)))
        took, faults = clock() - began, (of_thread() - before).minor_faults
        if faults > 0 and took > 0:
            each = took / 1e9 / faults
            quickest = each if quickest is None else min(quickest, each)
    if quickest is None:
        raise Unreadable("the kernel counted no page fault where fresh memory was touched")
    return quickest
