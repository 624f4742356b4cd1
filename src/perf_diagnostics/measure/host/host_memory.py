"""Host memory of the trial's own process at a moment: resident per step, and its tree's footprint at the end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import psutil

from perf_diagnostics.measure.host.memory import kib_fields, memory_footprint, process_tree
from perf_diagnostics.measure.observation import FAILURES_IN_A_ROW, Observations, Unreadable
from perf_diagnostics.records import Quantity


class HostMemoryReader:
    """Reads this process's resident memory from a file that is kept open: one system call, some microseconds.

    A reader that failed three times in a row, or found no such file (not Linux), gives None for good; the reason is
    noted once as a gap of ``host_rss_bytes``.
    """

    def __init__(self, observations: Observations, *, root: Path = Path("/")) -> None:
        self._observations = observations
        self._failed_in_a_row = 0
        self._file: int | None = None
        with observations.guard("host_rss_bytes"):
            self._file = _open_statm(root)
        self._page_bytes = os.sysconf("SC_PAGE_SIZE") if self._file is not None else 0

    def __call__(self) -> float | None:
        """Resident memory in bytes, or None where it could not be read."""
        if self._file is None:
            return None
        resident: float | None = None
        with self._observations.guard("host_rss_bytes") as attempt:
            # proc(5), statm: total size and resident set come first, in pages.
            resident = float(int(os.pread(self._file, 256, 0).split()[1]) * self._page_bytes)
        self._failed_in_a_row = self._failed_in_a_row + 1 if attempt.failed else 0
        if self._failed_in_a_row >= FAILURES_IN_A_ROW:
            self.close()
        return resident

    def close(self) -> None:
        """Let the file go; readings after this give None."""
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _open_statm(root: Path) -> int:
    try:
        return os.open(root / "proc" / "self" / "statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as problem:
        raise Unreadable(f"/proc/self/statm: {problem.strerror}", lasting=True) from problem


@dataclass(frozen=True)
class TreeFootprint:
    """Memory of a process and its descendants in bytes, summed: what only they hold, their parts of what they share."""

    uss_bytes: int
    pss_bytes: int

    def quantities(self) -> tuple[Quantity, ...]:
        source = "smaps_rollup of the process tree"
        return (
            Quantity("host_memory_uss", self.uss_bytes, "bytes", source),
            Quantity("host_memory_pss", self.pss_bytes, "bytes", source),
        )


def tree_footprint(pid: int, *, root: Path = Path("/")) -> TreeFootprint:
    """The footprint of a process and its descendants, now. Milliseconds for a large process: not inside a step.

    Unique memory is summed over the processes, so pages that only two of them share with each other are in nobody's.

    Raises:
        Unreadable: the kernel does not say it of one of them, and a sum without it would be wrong.
    """
    uss = pss = 0
    for member in _members(pid):
        found = memory_footprint(member, root=root)
        if found is None:
            if _ended(member, root):
                continue
            raise Unreadable(f"smaps_rollup of process {member} cannot be read (no permission, or not Linux 4.14)")
        uss += found.uss_bytes
        pss += found.pss_bytes
    return TreeFootprint(uss, pss)


def swapped_bytes(pid: int, *, root: Path = Path("/")) -> int:
    """Memory of a process and its descendants that lies in swap, in bytes.

    Raises:
        Unreadable: the kernel does not say it (not Linux, or built without swap).
    """
    found: list[int] = []
    for member in _members(pid):
        fields = kib_fields(root / "proc" / str(member) / "status")
        if "VmSwap" in fields:
            found.append(fields["VmSwap"])
        elif not _ended(member, root):
            raise Unreadable(f"the status of process {member} has no VmSwap")
    if not found:
        raise Unreadable(f"process {pid} has ended")
    return sum(found)


def _members(pid: int) -> list[int]:
    return [process.pid for process in process_tree(pid)]


def _ended(pid: int, root: Path) -> bool:
    return not (root / "proc" / str(pid)).exists()


def available_bytes() -> int:
    """Memory that processes could get on this machine without swapping, in bytes (the kernel's MemAvailable)."""
    return int(psutil.virtual_memory().available)
