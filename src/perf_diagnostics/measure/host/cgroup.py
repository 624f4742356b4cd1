"""The control groups a process lives in (versions 1 and 2): what it may use, and how often it was held back."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class CpuThrottle:
    """How often the kernel held a control group back because its CPU quota was used up, since the group was made.

    ``throttled_usec`` is summed over the cores it happened on, in microseconds.
    """

    periods: int
    throttled_periods: int
    throttled_usec: int

    def __sub__(self, before: CpuThrottle) -> CpuThrottle:
        """What happened between two readings."""
        return CpuThrottle(
            self.periods - before.periods,
            self.throttled_periods - before.throttled_periods,
            self.throttled_usec - before.throttled_usec,
        )


def cgroup_folders(controller: str, *, root: Path = Path("/")) -> tuple[Path, ...]:
    """The folders that hold a controller's limits for this process, its own group first, then each group around it.

    Version 1 and version 2 folders both appear where both are mounted. A container often sees its own group at the
    mount's root; ``/proc/self/mountinfo`` says where the mount begins.

    Args:
        controller: ``"memory"`` or ``"cpu"``.
        root: where ``/proc`` and the mounts are, for tests.
    """
    proc = root / "proc" / "self"
    folders: list[Path] = []
    for line in _lines(proc / "cgroup"):
        _, controllers, path = line.split(":", 2)
        version_2 = controllers == ""
        if not version_2 and controller not in controllers.split(","):
            continue
        mount = _mount(proc, None if version_2 else controller)
        if mount is not None:
            begins, point = mount
            folders += _upwards(root / point.lstrip("/"), _below(path, begins))
    return tuple(folders)


def memory_limits(*, root: Path = Path("/")) -> tuple[int, ...]:
    """Every memory limit set on the process's groups, in bytes; a group without a limit adds nothing.

    Version 1 writes "no limit" as the largest number of whole pages, which is returned as it is: it is above any
    machine's memory.
    """
    values = (
        _number(folder / name)
        for folder in cgroup_folders("memory", root=root)
        for name in ("memory.max", "memory.limit_in_bytes")
    )
    return tuple(value for value in values if value is not None)


def cpu_quota_cores(*, root: Path = Path("/")) -> float | None:
    """The tightest CPU quota on the process's groups, in cores (1.5: one and a half), or None where there is none."""
    quotas = [q for folder in cgroup_folders("cpu", root=root) if (q := _quota_cores(folder)) is not None]
    return min(quotas) if quotas else None


def cpu_throttle(*, root: Path = Path("/")) -> CpuThrottle | None:
    """How often the group with the tightest quota (the process's own, if none has one) was held back.

    None where no ``cpu.stat`` can be read.
    """
    folders = cgroup_folders("cpu", root=root)
    by_quota = sorted(folders, key=lambda folder: math.inf if (q := _quota_cores(folder)) is None else q)
    readings = (_throttle(folder) for folder in by_quota)
    return next((reading for reading in readings if reading is not None), None)


def oom_kills(*, root: Path = Path("/")) -> int | None:
    """Processes the kernel's out-of-memory killer has taken in the process's own group so far, or None if unsaid."""
    for folder in cgroup_folders("memory", root=root)[:1]:
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            for line in _lines(folder / name):
                key, _, value = line.partition(" ")
                if key == "oom_kill" and value.isdigit():
                    return int(value)
    return None


def _mount(proc: Path, controller: str | None) -> tuple[str, str] | None:
    """Where the hierarchy of a version 1 controller (None: version 2) is mounted: (its root, its mount point)."""
    for line in _lines(proc / "mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        wanted = kind == "cgroup2" if controller is None else kind == "cgroup" and controller in options.split(",")
        if wanted:
            begins, point = before.split(" ")[3:5]
            return _plain(begins), _plain(point)
    return None


def _below(path: str, begins: str) -> tuple[str, ...]:
    """A group's path under its mount, whose root is the group ``begins``."""
    steps = tuple(part for part in path.split("/") if part)
    prefix = tuple(part for part in begins.split("/") if part)
    return steps[len(prefix) :] if steps[: len(prefix)] == prefix else ()


def _upwards(mount: Path, steps: tuple[str, ...]) -> list[Path]:
    """The folder of a group and of all groups around it, up to the mount."""
    if ".." in steps:
        # A process of another namespace: its group cannot be seen from here, only the groups around ours.
        steps = ()
    return [mount.joinpath(*steps[:depth]) for depth in range(len(steps), -1, -1)]


def _quota_cores(folder: Path) -> float | None:
    words = " ".join(_lines(folder / "cpu.max")).split()
    if len(words) == 2 and words[0] != "max":
        return int(words[0]) / int(words[1])
    quota_us, period_us = _number(folder / "cpu.cfs_quota_us"), _number(folder / "cpu.cfs_period_us")
    if quota_us is None or period_us is None or quota_us <= 0 or period_us <= 0:
        return None
    return quota_us / period_us


def _throttle(folder: Path) -> CpuThrottle | None:
    pairs = (line.split() for line in _lines(folder / "cpu.stat"))
    stat = {name: int(value) for name, value in pairs}
    if "throttled_usec" in stat:
        throttled_usec = stat["throttled_usec"]
    elif "throttled_time" in stat:  # version 1 counts nanoseconds
        throttled_usec = stat["throttled_time"] // 1000
    else:
        return None
    return CpuThrottle(stat.get("nr_periods", 0), stat.get("nr_throttled", 0), throttled_usec)


def _number(file: Path) -> int | None:
    text = "".join(_lines(file)).strip()
    return int(text) if text.lstrip("-").isdigit() else None


def _lines(file: Path) -> list[str]:
    """The lines of a kernel file, or none where the group or the kernel does not have it or hides it."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _plain(path: str) -> str:
    """mountinfo writes blanks in paths as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), path)
