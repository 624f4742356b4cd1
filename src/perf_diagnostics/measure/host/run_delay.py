"""How long the loop's thread, its process and the loader's workers were ready to run and had no core.

The scheduler counts it for every thread: the second field of ``/proc/<pid>/task/<tid>/schedstat``, in ns, beside the
time that the thread ran (the first; Documentation/scheduler/sched-stats.rst of the Linux kernel). Needs no privileges.
What of the wall time is neither of both, a thread was blocked: disk, network, lock, sleep, Python's lock. The file of
a process, ``/proc/<pid>/schedstat``, is that of its first thread alone.

Beside them the process's own CPU clock is read: threads that begin and end within a block are in it, and in no file.

Not in it: what a hypervisor takes from a virtual machine's cores, which counts as running here.

No step pays for it: there are two readings a block of steps, before its first one begins and after its last one has
ended. One file takes 13 us, and a reading of all 0.09 ms with 2 threads, 0.18 with 4 and 0.64 with 17 (the quickest of
400 readings each; medians, on a crowded machine: 0.14, 0.25 and 1.05 ms; Linux, a virtual machine, no workers).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from perf_diagnostics.measure.host.cpu_time import helper_pids, worker_pids
from perf_diagnostics.measure.host.kernel_text import kernel_text
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES, Quantity

_FILE = "/proc/<pid>/task/<tid>/schedstat"

#: A thread by its process and its own number.
_Thread: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class Scheduled:
    """Time of one thread or of several, in ns: what they ran, and what they were ready to run and had no core."""

    ran_ns: int = 0
    delayed_ns: int = 0

    def __add__(self, other: Scheduled) -> Scheduled:
        return Scheduled(self.ran_ns + other.ran_ns, self.delayed_ns + other.delayed_ns)

    def since(self, before: Scheduled) -> Scheduled:
        """What came on top; all of it where a new thread has the number of one that ended."""
        if self.ran_ns < before.ran_ns or self.delayed_ns < before.delayed_ns:
            return self
        return Scheduled(self.ran_ns - before.ran_ns, self.delayed_ns - before.delayed_ns)

    @property
    def ready_ns(self) -> int:
        """In which they ran or could have."""
        return self.ran_ns + self.delayed_ns

    @property
    def delay_share(self) -> float:
        """The part of that in which they had no core; nobody may ask where they were never ready."""
        return self.delayed_ns / self.ready_ns


@dataclass(frozen=True)
class _Reading:
    """All threads at one moment, and the loop's among them; those that cannot be read are absent."""

    at_ns: int
    process_ns: int
    loop: _Thread
    own: Mapping[_Thread, Scheduled]
    workers: Mapping[_Thread, Scheduled]


@dataclass
class _Sums:
    """What the blocks so far add up to."""

    wall_ns: int = 0
    process_ns: int = 0
    blocks: int = 0
    lost_blocks: int = 0
    with_workers: bool = False
    loop: Scheduled = field(default_factory=Scheduled)
    own: Scheduled = field(default_factory=Scheduled)
    workers: Scheduled = field(default_factory=Scheduled)


class RunDelay:
    """Counts over blocks of steps: :meth:`begin` and :meth:`end` around each, then :meth:`finish`.

    Of workers that begin and end within one block nothing is seen, of those that end in it what they did before it; so
    their number is a share of what was seen, and no total. All descendants of the trial's process are its workers.

    Args:
        pid: the trial's process; default: this one.
        root: where ``/proc`` is, for tests.
        workers: finds the descendants of a process where the kernel has no lists of children.
        thread: the number of the calling thread, which is the loop's in :meth:`begin`.
        clock: host clock in ns.
        process_time: CPU time of the trial's process so far, in ns, those of its threads that have ended included.
    """

    def __init__(
        self,
        pid: int | None = None,
        *,
        root: Path = Path("/"),
        workers: Callable[[int], Iterable[int]] = worker_pids,
        thread: Callable[[], int] = threading.get_native_id,
        clock: Callable[[], int] = time.perf_counter_ns,
        process_time: Callable[[], int] = time.process_time_ns,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._proc = root / "proc"
        self._workers = workers
        self._thread = thread
        self._clock = clock
        self._process_time = process_time
        self._before: _Reading | None = None
        self._sums = _Sums()

    def begin(self) -> None:
        """A block of steady steps begins now, in the calling thread."""
        self._before = self._read((self._pid, self._thread()))

    def end(self) -> None:
        """The block has ended, if one had begun; called in whichever thread."""
        before, self._before = self._before, None
        if before is None:
            return
        after, sums = self._read(before.loop), self._sums
        sums.with_workers = sums.with_workers or bool(before.workers or after.workers)
        first, last = before.own.get(before.loop), after.own.get(before.loop)
        if first is None or last is None:
            sums.lost_blocks += 1
            return
        sums.blocks += 1
        sums.wall_ns += after.at_ns - before.at_ns
        sums.process_ns += after.process_ns - before.process_ns
        sums.loop += last.since(first)
        sums.own += _since(before.own, after.own)
        sums.workers += _since(before.workers, after.workers)

    def finish(self, observations: Observations) -> tuple[Quantity, ...]:
        """What all blocks together say; what the kernel does not say goes to ``observations``."""
        self.end()
        sums = self._sums
        if not sums.blocks and not sums.lost_blocks:
            return ()
        names = ["loop_cpu_share", "loop_run_delay_share", "process_cpu_share", "process_run_delay_share"]
        names += ["worker_run_delay_share"] if sums.with_workers else []  # without any there is nothing to miss
        if why := _why_not(sums):
            for name in names:
                observations.note(name, why)
            return ()
        found = {
            "loop_cpu_share": min(1.0, sums.loop.ran_ns / sums.wall_ns),
            "loop_run_delay_share": min(1.0, sums.loop.delayed_ns / sums.wall_ns),
            "process_cpu_share": sums.process_ns / sums.wall_ns,
            "process_run_delay_share": sums.own.delay_share,
        }
        if sums.workers.ready_ns:
            found["worker_run_delay_share"] = sums.workers.delay_share
        elif sums.with_workers:
            observations.note("worker_run_delay_share", "no worker ran from one reading to the next")
        return tuple(Quantity(name, value, QUANTITIES[name][0], _FILE) for name, value in found.items())

    def _read(self, loop: _Thread) -> _Reading:
        at_ns, process_ns = self._clock(), self._process_time()
        own = dict(self._threads(self._pid))
        workers = {thread: times for pid in self._descendants() for thread, times in self._threads(pid)}
        return _Reading(at_ns, process_ns, loop, own, workers)

    def _threads(self, pid: int) -> Iterator[tuple[_Thread, Scheduled]]:
        for tid in self._tids(pid):
            times = _scheduled(self._proc / str(pid) / "task" / str(tid) / "schedstat")
            if times is not None:
                yield (pid, tid), times

    def _tids(self, pid: int) -> tuple[int, ...]:
        try:
            return tuple(int(task.name) for task in (self._proc / str(pid) / "task").iterdir())
        except OSError:
            return ()  # it has ended, or this is not Linux

    def _descendants(self) -> Iterable[int]:
        """By the kernel's lists of children: reads of our own threads' files only, not of every process's."""
        found: list[int] = []
        helpers = helper_pids()
        ask = [self._pid]
        while ask:
            pid = ask.pop()
            lists = [kernel_text(self._proc / str(pid) / "task" / str(tid) / "children") for tid in self._tids(pid)]
            if pid == self._pid and lists and all(one is None for one in lists):
                return self._workers(self._pid)
            children = [int(child) for one in lists if one is not None for child in one.split()]
            found += [child for child in children if child not in helpers]
            ask += children
        return found


def _since(before: Mapping[_Thread, Scheduled], after: Mapping[_Thread, Scheduled]) -> Scheduled:
    """What all threads did between two readings: new ones all of it, ended ones what is not known any more."""
    began = Scheduled()
    return sum((times.since(before.get(thread, began)) for thread, times in after.items()), began)


def _why_not(sums: _Sums) -> str:
    """Why nothing can be said about the loop's thread, or nothing."""
    if not sums.blocks:
        return f"{_FILE} of the loop's thread cannot be read"
    if sums.wall_ns <= 0:
        return "the clock around the steps stood still"
    if not sums.loop.ran_ns:
        # Without CONFIG_SCHED_INFO, or with delayacct off where it depends on that, the kernel writes "0 0 0".
        return f"this kernel does not count: {_FILE} says that the loop's thread never ran"
    return ""


def _scheduled(file: Path) -> Scheduled | None:
    fields = (kernel_text(file) or "").split()
    if len(fields) < 2 or not (fields[0].isdigit() and fields[1].isdigit()):
        return None
    return Scheduled(int(fields[0]), int(fields[1]))
