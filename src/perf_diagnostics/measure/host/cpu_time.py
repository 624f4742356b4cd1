"""What the processors did meanwhile: for a trial's processes, for everybody else, and how often the trial had to wait.

Counters of the kernel, read once before and once after the steady steps. A counter that is not there is a gap with its
reason, never 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.measure.host.cgroup import CpuThrottle, cgroup_folders, cpu_throttle
from perf_diagnostics.measure.host.kernel_text import kernel_text
from perf_diagnostics.measure.host.memory import process_tree
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES, Quantity

#: Fields of a ``cpu`` line of /proc/stat in which a core is not idle: user, nice, system, irq, softirq and steal (what
#: other virtual machines took of it). Guest time is in user already (proc(5)).
_BUSY = (0, 1, 2, 5, 6, 7)

#: If the cores were busy for less than this part of the trial's own time, that count cannot be right: some sandboxes
#: show a /proc/stat that stands still.
_LEAST_BUSY = 0.5


@dataclass(frozen=True)
class CpuReading:
    """The kernel's counters at one moment; None is what it does not say.

    ``busy_s`` is the time that the cores this process may run on were not idle, whoever used them. Cores that it may
    not run on do not count: in a container /proc/stat shows the whole machine, and what others do elsewhere on it is
    no loss of ours. ``pressure`` carries the file it was read from.
    """

    process_s: float | None
    workers_s: float | None
    busy_s: float | None
    pressure: tuple[float, str] | None
    throttle: CpuThrottle | None
    read_bytes: int | None


def worker_pids(pid: int) -> tuple[int, ...]:
    """All descendants of a process."""
    return tuple(process.pid for process in process_tree(pid)[1:])


def helper_pids() -> frozenset[int]:
    """Processes that this one's ``multiprocessing`` keeps for itself, and that are no workers: the tracker of what has
    to be given back, and the server that workers are forked from.
    """
    tracker = getattr(sys.modules.get("multiprocessing.resource_tracker"), "_resource_tracker", None)
    server = getattr(sys.modules.get("multiprocessing.forkserver"), "_forkserver", None)
    pids = getattr(tracker, "_pid", None), getattr(server, "_forkserver_pid", None)
    return frozenset(pid for pid in pids if pid is not None)


def usable_cores() -> frozenset[int]:
    """The cores that this process may run on; none where the operating system does not say."""
    return frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else frozenset()


class CpuTime:
    """Counts over a stretch of time: :meth:`begin`, then :meth:`finish`.

    Args:
        pid: the trial's process; its descendants are its workers.
        root: where ``/proc`` and the mounts are, for tests.
        workers: finds the descendants of a process.
        cores: the cores that the trial may run on.
        ticks_per_s: the unit of the kernel's CPU times; default: the system's.
    """

    def __init__(
        self,
        pid: int | None = None,
        *,
        root: Path = Path("/"),
        workers: Callable[[int], Iterable[int]] = worker_pids,
        cores: Collection[int] | None = None,
        ticks_per_s: int | None = None,
    ) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._root = root
        self._workers = workers
        self._cores = usable_cores() if cores is None else frozenset(cores)
        self._ticks = ticks_per_s or (os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100)
        self._before: CpuReading | None = None

    def begin(self) -> None:
        """Read the counters before the steps."""
        self._before = self._read()

    def finish(self, observations: Observations) -> tuple[Quantity, ...]:
        """What happened since :meth:`begin`; what the kernel does not say goes to ``observations``."""
        if self._before is None:
            return ()
        found = _Found(observations)
        _difference(self._before, self._read(), found)
        return tuple(found.quantities)

    def _read(self) -> CpuReading:
        workers = tuple(self._workers(self._pid))
        own = self._times(self._pid)
        # Time of ended workers moves to whoever waited for them.
        others = [times for pid in workers if (times := self._times(pid)) is not None]
        return CpuReading(
            process_s=None if own is None else own[0],
            workers_s=None if own is None else own[1] + sum(sum(times) for times in others),
            busy_s=_busy_s(self._root, self._cores, self._ticks),
            pressure=_pressure_s(self._root),
            throttle=cpu_throttle(root=self._root),
            read_bytes=read_from_storage(self._root, (self._pid, *workers)),
        )

    def _times(self, pid: int) -> tuple[float, float] | None:
        """CPU time of a process, and of its ended children, in s."""
        text = kernel_text(self._root / "proc" / str(pid) / "stat")
        # The name in brackets may hold blanks and brackets; utime is field 14 (proc(5)), the state after it field 3.
        fields = text.rpartition(")")[2].split() if text else []
        if len(fields) < 15:
            return None
        user, system, children_user, children_system = (int(field) / self._ticks for field in fields[11:15])
        return user + system, children_user + children_system


class _Found:
    """Collects quantities, and the reason for each that is missing."""

    def __init__(self, observations: Observations) -> None:
        self.quantities: list[Quantity] = []
        self._observations = observations

    def add(self, name: str, value: float, source: str) -> None:
        self.quantities.append(Quantity(name, float(value), QUANTITIES[name][0], source))

    def miss(self, why: str, *names: str) -> None:
        for name in names:
            self._observations.note(name, why)


def _difference(before: CpuReading, after: CpuReading, found: _Found) -> None:
    own_s = _own(before, after, found)
    _others(before, after, own_s, found)
    if before.pressure is None or after.pressure is None:
        found.miss("neither cpu.pressure of the cgroup nor /proc/pressure/cpu can be read", "cpu_pressure_s")
    else:
        found.add("cpu_pressure_s", after.pressure[0] - before.pressure[0], f"PSI some of {after.pressure[1]}")
    throttled = ("cpu_periods", "cpu_throttled_periods", "cpu_throttled_s")
    if before.throttle is None or after.throttle is None:
        found.miss("no cpu.stat of a cgroup counts throttling", *throttled)
    else:
        held = after.throttle - before.throttle
        values = (held.periods, held.throttled_periods, held.throttled_usec / 1e6)
        for name, value in zip(throttled, values, strict=True):
            found.add(name, value, "cgroup cpu.stat")
    if before.read_bytes is None or after.read_bytes is None:
        found.miss("/proc/<pid>/io cannot be read", "read_bytes")
    elif after.read_bytes < before.read_bytes:
        found.miss("a worker ended whose count nobody took over", "read_bytes")
    else:
        found.add("read_bytes", after.read_bytes - before.read_bytes, "/proc/<pid>/io of the process tree")


def _own(before: CpuReading, after: CpuReading, found: _Found) -> float | None:
    """CPU time of the trial and its workers, in s, if both are known."""
    if None in (before.process_s, after.process_s):
        found.miss("/proc/<pid>/stat cannot be read", "process_cpu_s", "workers_cpu_s")
        return None
    process_s = (after.process_s or 0.0) - (before.process_s or 0.0)
    workers_s = (after.workers_s or 0.0) - (before.workers_s or 0.0)
    found.add("process_cpu_s", process_s, "/proc/<pid>/stat")
    if workers_s < 0:
        found.miss("a worker ended whose time nobody took over", "workers_cpu_s")
        return None
    found.add("workers_cpu_s", workers_s, "/proc/<pid>/stat of the workers")
    return process_s + workers_s


def _others(before: CpuReading, after: CpuReading, own_s: float | None, found: _Found) -> None:
    if before.busy_s is None or after.busy_s is None:
        found.miss("/proc/stat says nothing about the cores this process may use", "other_cpu_s")
    elif own_s is None:
        found.miss("the trial's own CPU time is not known", "other_cpu_s")
    elif after.busy_s - before.busy_s < own_s * _LEAST_BUSY:
        found.miss("/proc/stat does not count what runs here: it misses the trial's own time", "other_cpu_s")
    else:
        # Both count in ticks of 10 ms, so that a difference near 0 may come out a little below it.
        others_s = max(0.0, after.busy_s - before.busy_s - own_s)
        found.add("other_cpu_s", others_s, "/proc/stat of the usable cores, less the trial's own time")


def _busy_s(root: Path, cores: Collection[int], ticks_per_s: int) -> float | None:
    ticks = 0
    seen = False
    for line in (kernel_text(root / "proc/stat") or "").splitlines():
        name, *values = line.split() or [""]
        number = name.removeprefix("cpu")
        if name.startswith("cpu") and number.isdigit() and int(number) in cores:
            ticks += sum(int(values[field]) for field in _BUSY if field < len(values))
            seen = True
    return ticks / ticks_per_s if seen else None


def _pressure_s(root: Path) -> tuple[float, str] | None:
    """Time in which something waited for a processor so far: in our own group where it counts that, else anywhere."""
    files = [*(folder / "cpu.pressure" for folder in _own_groups(root)), root / "proc/pressure/cpu"]
    for file in files:
        for line in (kernel_text(file) or "").splitlines():
            kind, *pairs = line.split() or [""]
            total = next((pair for pair in pairs if pair.startswith("total=")), None)
            if kind == "some" and total is not None:
                return int(total.removeprefix("total=")) / 1e6, f"/{file.relative_to(root)}"
    return None


def _own_groups(root: Path) -> tuple[Path, ...]:
    """The process's own group; the groups around it hold others too, which /proc/pressure tells as well."""
    return tuple(folder for folder in cgroup_folders("cpu", root=root)[:1] if (folder / "cpu.pressure").exists())


def read_from_storage(root: Path, pids: Iterable[int]) -> int | None:
    """Bytes that these processes have had fetched from storage so far; None where the kernel does not say.

    What the page cache held is not in it, and what a child read that was waited for is in its parent's (proc(5)).
    """
    total, seen = 0, False
    for pid in pids:
        for line in (kernel_text(root / "proc" / str(pid) / "io") or "").splitlines():
            if line.startswith("read_bytes:"):
                total += int(line.split()[1])
                seen = True
    return total if seen else None
