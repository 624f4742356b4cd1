"""How much room is left where loader workers lay the tensors that they hand over: in ``/dev/shm``, a file system.

Workers put each tensor of a batch into shared memory (torch.multiprocessing, for both of its sharing strategies), and
the kernel counts it there until the loop has let go of it. A worker that finds no page left fails, or dies of SIGBUS,
so what counts is the least room there ever was; in a Docker container there are 64 MB unless somebody asked for more.

No step pays for it: it is read once at the start and once at each border of two blocks of steps, by one system call
(statvfs, 3 µs). There the workers have had time to fill their queues.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES, Quantity

_NAMES = ("shared_memory_total", "shared_memory_free_before", "shared_memory_free_least")


@dataclass(frozen=True)
class Room:
    """The size of a file system and what of it a process without privileges may still take, in bytes."""

    total: int
    free: int


def room(path: Path) -> Room | str:
    """The room in the file system of that folder, or why nobody can say."""
    if not hasattr(os, "statvfs"):
        return "this operating system has no statvfs"
    try:
        found = os.statvfs(path)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror or error}"
    if not found.f_blocks:
        return f"{path} states no size"  # a tmpfs mounted with size=0 has no limit
    return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)


class SharedMemory:
    """Looks when it is made, best before any worker starts, and whenever :meth:`look` is called.

    Args:
        path: where shared memory lies.
    """

    def __init__(self, path: Path = Path("/dev/shm")) -> None:  # noqa: S108 - looked at, never written to
        self._path = path
        self._before = room(path)
        self._least: Room | str = "it was not looked at between steps"

    def look(self) -> None:
        """Two blocks of steps meet now."""
        now = room(self._path)
        if isinstance(self._least, str) or (isinstance(now, Room) and now.free < self._least.free):
            self._least = now

    def quantities(self, observations: Observations) -> tuple[Quantity, ...]:
        """What was seen, of a training that has loader workers; what was not goes to ``observations``."""
        before, least = self._before, self._least
        why = before if isinstance(before, str) else least
        if isinstance(before, str) or isinstance(least, str):
            for name in _NAMES:
                observations.note(name, str(why))
            return ()
        values = (least.total, before.free, least.free)
        return tuple(
            Quantity(name, float(value), QUANTITIES[name][0], f"statvfs of {self._path}")
            for name, value in zip(_NAMES, values, strict=True)
        )
