"""Host memory and CPU use of a trial's processes: sampled over its process tree, and exact for one process."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil

from perf_diagnostics.measure.host.cgroup import memory_limits
from perf_diagnostics.measure.observation import Readings, Track, Unreadable
from perf_diagnostics.records import Quantity

#: CPU times tick at 10 ms; over half a second that is an error of at most 2 % of a core.
CPU_INTERVAL_NS = 500_000_000

#: Finding new processes costs most of a sampling (about half a millisecond); a loader's workers start once an epoch.
TREE_INTERVAL_NS = 500_000_000

_GONE = (psutil.NoSuchProcess, psutil.ZombieProcess, psutil.AccessDenied)


def process_tree(pid: int, *, root: Path = Path("/")) -> list[psutil.Process]:
    """A process and all its descendants; none where it has ended. What ends while this looks is left out."""
    try:
        process = psutil.Process(pid)
        if not (root / f"proc/{pid}/task/{pid}/children").exists():  # not Linux, or a kernel built without it
            return [process, *process.children(recursive=True)]
    except _GONE:
        return []
    return [process, *(found for child in _descendants(pid, root) if (found := _process(child)) is not None)]


def _descendants(pid: int, root: Path) -> list[int]:
    """All descendants by the kernel's own lists of children: psutil would read every process of the machine instead."""
    found: list[int] = []
    for file in (root / "proc" / str(pid) / "task").glob("*/children"):
        try:
            children = [int(child) for child in file.read_text(encoding="ascii").split()]
        except OSError:  # the thread has ended since
            continue
        for child in children:
            found += (child, *_descendants(child, root))
    return found


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except _GONE:
        return None


class ProcessTree:
    """A trial's processes, looked up again at most every :data:`TREE_INTERVAL_NS`; instruments may share one."""

    def __init__(self) -> None:
        self.pid: int | None = None
        self._looked_ns: int | None = None
        self._processes: list[psutil.Process] = []

    def follow(self, pid: int) -> None:
        """Look at this process and its descendants from now on."""
        if pid != self.pid:
            self.pid, self._looked_ns, self._processes = pid, None, []

    def at(self, now_ns: int) -> list[psutil.Process]:
        """The processes as of this time of the host clock (or up to the interval before)."""
        if self.pid is None:
            return []
        if self._looked_ns is None or now_ns - self._looked_ns >= TREE_INTERVAL_NS:
            self._processes = process_tree(self.pid)
            self._looked_ns = now_ns
        return self._processes


class ProcessTreeMemory:
    """Resident memory of a process and its descendants, summed, over time; and the largest sum seen.

    Pages that forked workers share with their parent count once for each of them: see :func:`memory_footprint` for
    the proportional share.
    """

    name = "process tree memory"
    signals = ("host_memory", "host_tree_memory_peak")
    source = "psutil rss"

    def __init__(self, tree: ProcessTree | None = None) -> None:
        self._tree = ProcessTree() if tree is None else tree
        self._track = Track("host_memory", self.source)
        self._peak_bytes = 0

    def start(self, pid: int) -> None:
        self._tree.follow(pid)

    def sample(self, now_ns: int) -> None:
        readings = [rss for process in self._tree.at(now_ns) if (rss := _rss(process)) is not None]
        # No process could be read: the trial has ended. That is not a trial that uses no memory.
        if readings:
            self._track.append(now_ns, sum(readings))
            self._peak_bytes = max(self._peak_bytes, sum(readings))

    def stop(self) -> Readings:
        if not len(self._track):
            raise Unreadable(f"process {self._tree.pid} could not be read even once; it may have ended at once")
        peak = Quantity("host_tree_memory_peak", self._peak_bytes, "bytes", self.source)
        return (self._track.series(),), (peak,)


class ProcessTreeCpu:
    """CPU time of a process and its descendants per wall time, in percent of one core.

    The sum over the tree of own and reaped children's CPU time only grows when a child ends properly (its time moves to
    its parent); where it falls (a child ended whose parent did not wait for it) that interval has no reading.
    """

    name = "process tree CPU"
    signals = ("cpu_utilization",)
    source = "psutil cpu_times"

    def __init__(self, tree: ProcessTree | None = None) -> None:
        self._tree = ProcessTree() if tree is None else tree
        self._last: tuple[int, float] | None = None
        self._track = Track("cpu_utilization", self.source)

    def start(self, pid: int) -> None:
        self._tree.follow(pid)

    def sample(self, now_ns: int) -> None:
        if self._last is not None and now_ns - self._last[0] < CPU_INTERVAL_NS:
            return
        seconds = [used for process in self._tree.at(now_ns) if (used := _cpu_seconds(process)) is not None]
        if not seconds:
            return
        used = sum(seconds)
        if self._last is not None and used >= self._last[1]:
            self._track.append(now_ns, 100.0 * (used - self._last[1]) / ((now_ns - self._last[0]) / 1e9))
        self._last = (now_ns, used)

    def stop(self) -> Readings:
        if not len(self._track):
            raise Unreadable(f"the trial was shorter than the {CPU_INTERVAL_NS / 1e9:g} s between two readings")
        return (self._track.series(),), ()


def _rss(process: psutil.Process) -> int | None:
    try:
        return int(process.memory_info().rss)
    except _GONE:
        return None


def _cpu_seconds(process: psutil.Process) -> float | None:
    try:
        times = process.cpu_times()
    except _GONE:
        return None
    return float(times.user + times.system + times.children_user + times.children_system)


@dataclass(frozen=True)
class MemoryFootprint:
    """Memory of one process in bytes: with its proportional share of shared pages, and what only it holds."""

    pss_bytes: int
    uss_bytes: int


def memory_footprint(pid: int | str = "self", *, root: Path = Path("/")) -> MemoryFootprint | None:
    """Proportional and unique memory of a process, or None where the kernel does not say.

    The kernel walks all page tables for this (milliseconds for a large process): for block borders, not for sampling.
    """
    fields = kib_fields(root / "proc" / str(pid) / "smaps_rollup")
    needed = ("Pss", "Private_Clean", "Private_Dirty")
    if any(name not in fields for name in needed):
        return None
    unique = fields["Private_Clean"] + fields["Private_Dirty"] + fields.get("Private_Hugetlb", 0)
    return MemoryFootprint(fields["Pss"], unique)


def vm_hwm_bytes(*, root: Path = Path("/")) -> int | None:
    """The largest resident memory this process has had, in bytes, or None where the kernel does not say.

    From VmHWM and not from ``ru_maxrss``, which a child inherits: a child of 13 MiB of a large parent showed 613.
    """
    return kib_fields(root / "proc" / "self" / "status").get("VmHWM")


def rss_bytes(*, root: Path = Path("/")) -> int | None:
    """Resident memory of this process in bytes, or None where the kernel does not say."""
    return kib_fields(root / "proc" / "self" / "status").get("VmRSS")


def reset_peak_rss(*, root: Path = Path("/")) -> bool:
    """Set this process's VmHWM back to what is resident now, so that a trial in this process gets a peak of its own.

    Returns:
        Whether the kernel did it; if not (not Linux, not permitted), VmHWM still holds the peak of all that ran before.
    """
    try:
        (root / "proc" / "self" / "clear_refs").write_text("5")
    except OSError:
        return False
    return True


def memory_limit_bytes(*, root: Path = Path("/")) -> int:
    """Memory this process may use, in bytes: the machine's, or a control group's around it where that is less."""
    total = kib_fields(root / "proc" / "meminfo").get("MemTotal")
    if total is None:  # not Linux
        total = int(psutil.virtual_memory().total)
    return min((total, *memory_limits(root=root)))


@dataclass(frozen=True)
class ProcessCounters:
    """What the kernel has counted for a process so far, without its children; subtract two for a stretch of time.

    Major faults had to read from disk; involuntary switches took the CPU away while there was work to do.
    """

    minor_faults: int
    major_faults: int
    voluntary_switches: int
    involuntary_switches: int
    user_s: float
    system_s: float

    @classmethod
    def now(cls) -> ProcessCounters:
        """This process's counters. Raises Unreadable where the operating system keeps none (Windows)."""
        return cls._of("RUSAGE_SELF", "this operating system keeps no resource counters of a process")

    @classmethod
    def of_this_thread(cls) -> ProcessCounters:
        """The calling thread's alone. Raises Unreadable where none are kept for a thread (elsewhere than on Linux)."""
        return cls._of("RUSAGE_THREAD", "this operating system keeps no resource counters of a thread")

    @classmethod
    def _of(cls, who: str, why_not: str) -> ProcessCounters:
        try:
            import resource

            usage = resource.getrusage(getattr(resource, who))
        except (ImportError, AttributeError) as missing:
            raise Unreadable(why_not, lasting=True) from missing
        return cls(usage.ru_minflt, usage.ru_majflt, usage.ru_nvcsw, usage.ru_nivcsw, usage.ru_utime, usage.ru_stime)

    def __sub__(self, before: ProcessCounters) -> ProcessCounters:
        """What happened between two readings."""
        return ProcessCounters(
            self.minor_faults - before.minor_faults,
            self.major_faults - before.major_faults,
            self.voluntary_switches - before.voluntary_switches,
            self.involuntary_switches - before.involuntary_switches,
            self.user_s - before.user_s,
            self.system_s - before.system_s,
        )

    def quantities(self) -> tuple[Quantity, ...]:
        """The counters that are quantities of a trial, for a difference over its steady steps."""
        return (
            Quantity("major_faults", self.major_faults, "1", "getrusage"),
            Quantity("involuntary_switches", self.involuntary_switches, "1", "getrusage"),
        )


def kib_fields(file: Path) -> dict[str, int]:
    """The ``Name:  123 kB`` lines of a kernel file, in bytes; none where it cannot be read."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines if line.endswith(" kB") and ":" in line)
    return {name: 1024 * int(value.removesuffix("kB")) for name, value in pairs}
