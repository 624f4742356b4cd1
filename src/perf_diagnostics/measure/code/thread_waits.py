"""In what a thread is blocked, as the kernel tells of the call it is in: a sleep, a file, a socket, a lock, a team.

``/proc/self/task/<tid>/syscall`` says ``running`` of a thread that runs or is ready to, and else the number of the call
it is blocked in, its arguments, and the places of its stack and its program (Documentation/filesystems/proc.rst of the
Linux kernel); a process may always read its own. By the number a sleep is known, and a read by what it reads from. A
futex is all sorts of waiting, told apart by its address and by whose code asks: Python's lock lies in ``_PyRuntime``,
and the threads of OpenMP wait for each other inside their own library. A look takes 9 us at best (the middle one of
300, on a crowded machine: 23 us), and one at each of four other threads 76 us (120).
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from types import MappingProxyType


class Waits(StrEnum):
    """What a thread waits for; ``RUNS`` where it does not, ``TEAM`` for OpenMP's threads, ``PYTHON`` for its lock."""

    RUNS = "runs"
    SLEEP = "sleep"
    FILE = "file"
    PIPE = "pipe"
    SOCKET = "socket"
    PROCESS = "process"
    LOCK = "lock"
    PYTHON = "python"
    TEAM = "team"
    MEMORY = "memory"
    OTHER = "other"


#: Numbers of calls, by machine and kind (arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h).
#: ``IO`` calls are told apart by what their first argument, a descriptor, is open on.
_IO = "io"
_CALLS: Mapping[str, Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {
        "x86_64": {
            Waits.SLEEP: (35, 230),  # nanosleep, clock_nanosleep
            _IO: (0, 1, 17, 18, 19, 20, 40, 73, 74, 75, 295, 296),  # read … writev, sendfile, flock, fsync, preadv
            Waits.FILE: (2, 257, 262, 332),  # open, openat, newfstatat, statx
            Waits.SOCKET: (7, 23, 42, 43, 44, 45, 46, 47, 232, 270, 271, 281, 288, 441),  # poll, select, connect …
            Waits.PROCESS: (61, 247),  # wait4, waitid
            Waits.LOCK: (202, 455),  # futex, futex_wait
        },
        "aarch64": {
            Waits.SLEEP: (101, 115),
            _IO: (32, 63, 64, 65, 66, 67, 68, 69, 70, 71, 82, 83),
            Waits.FILE: (56, 79, 291),
            Waits.SOCKET: (22, 72, 73, 202, 203, 206, 207, 211, 212, 242, 441),
            Waits.PROCESS: (95, 260),
            Waits.LOCK: (98, 455),
        },
    }
)

#: GNU's, Intel's and LLVM's OpenMP, under the names that wheels give them (``libgomp-a34b3233.so.1``).
_TEAM_LIBRARY = re.compile(r"/lib[gi]?omp[^/]*\.so")

#: Python's lock lies in its runtime's state, which takes 0.2 to 0.6 MB (CPython 3.11 to 3.14).
_RUNTIME_BYTES = 1 << 20

#: The text of one thread is shorter.
_MOST_BYTES = 256


@dataclass(frozen=True)
class Ranges:
    """Ranges of addresses in this process: where OpenMP's code lies, and what Python's runtime takes."""

    team: tuple[tuple[int, int], ...]
    runtime: tuple[int, int]

    @classmethod
    def here(cls, maps: Path = Path("/proc/self/maps")) -> Ranges | None:
        """Those of this process; None where they cannot be known: then no futex says what it waits for."""
        try:
            lines = maps.read_text(encoding="utf-8", errors="replace").splitlines()
            at = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
        except (OSError, ValueError, AttributeError):
            return None
        return cls(tuple(_team_ranges(lines)), (at, at + _RUNTIME_BYTES))


def _team_ranges(lines: Iterable[str]) -> Iterable[tuple[int, int]]:
    for line in lines:
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and "x" in fields[1] and _TEAM_LIBRARY.search(fields[5]):
            low, _, high = fields[0].partition("-")
            yield int(low, 16), int(high, 16)


def waits_in(text: str, ranges: Ranges | None, *, machine: str = "", links: Path = Path("/proc/self/fd")) -> Waits:
    """What a thread waits for by its ``syscall`` file; ``OTHER`` where that is not known.

    >>> waits_in("running", None), waits_in("230 0x1 0x1 0x7ff 0 0 0 0x7ff 0x7f2", None, machine="x86_64")
    (<Waits.RUNS: 'runs'>, <Waits.SLEEP: 'sleep'>)
    """
    fields = text.split()
    if not fields or fields[0] == "running":
        return Waits.RUNS if fields else Waits.OTHER
    if fields[0] == "-1":  # blocked and in no call: the kernel gets it a page
        return Waits.MEMORY
    calls = _CALLS.get(machine or platform.machine(), {})
    if not fields[0].isdigit() or len(fields) < 4:
        return Waits.OTHER
    number = int(fields[0])
    kind = next((kind for kind, numbers in calls.items() if number in numbers), Waits.OTHER)
    if kind == _IO:
        return _opened_on(links / str(int(fields[1], 16)))
    if kind == Waits.LOCK:
        return _lock(int(fields[1], 16), int(fields[-1], 16), ranges)
    return Waits(kind)


def _opened_on(link: Path) -> Waits:
    try:
        target = str(link.readlink())
    except OSError:  # closed meanwhile
        return Waits.OTHER
    kinds = {"socket": Waits.SOCKET, "pipe": Waits.PIPE, "anon_inode": Waits.OTHER}
    return kinds.get(target.partition(":")[0], Waits.FILE)


def _lock(address: int, program: int, ranges: Ranges | None) -> Waits:
    if ranges is None:
        return Waits.OTHER
    if ranges.runtime[0] <= address < ranges.runtime[1]:
        return Waits.PYTHON
    return Waits.TEAM if any(low <= program < high for low, high in ranges.team) else Waits.LOCK


class _KernelText:
    """A small file of the kernel's, read again and again without giving Python's lock away in between.

    Whoever gives it away lets the thread run that is to be seen.

    Raises:
        OSError: this kernel does not have it.
    """

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._text = ctypes.create_string_buffer(_MOST_BYTES)
        self._pread = ctypes.PyDLL(None).pread
        self._pread.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64)
        self._pread.restype = ctypes.c_ssize_t

    def now(self) -> str:
        """What it says at this moment."""
        read = self._pread(self._file, self._text, _MOST_BYTES - 1, 0)
        return self._text.raw[: max(0, read)].decode("ascii", "replace")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class OwnDelay:
    """How long the thread that asks has been ready to run and had no core, as the scheduler counts it."""

    def __init__(self) -> None:
        self._tid = 0
        self._text: _KernelText | None = None

    def now_ns(self) -> int | None:
        """So far, in ns; None where it is not counted. Another thread that asks begins anew."""
        tid = threading.get_native_id()
        try:
            if tid != self._tid:
                self.close()
                self._tid, self._text = tid, _KernelText("/proc/thread-self/schedstat")
        except OSError:
            return None
        fields = [] if self._text is None else self._text.now().split()
        return int(fields[1]) if len(fields) > 1 and fields[1].isdigit() else None

    def close(self) -> None:
        """Nobody asks any more."""
        if self._text is not None:
            self._text.close()
            self._text = None


class ThreadWaits:
    """Reads what one thread of this process waits for.

    Args:
        tid: the thread's native number.

    Raises:
        OSError: this kernel does not say it.
    """

    def __init__(self, tid: int) -> None:
        self._tid = tid
        self._text = _KernelText(f"/proc/self/task/{tid}/syscall")

    @cached_property
    def _ranges(self) -> Ranges | None:
        """Found by whoever looks first, which takes a millisecond."""
        return Ranges.here()

    def now(self) -> Waits:
        """What the thread waits for at this moment."""
        return waits_in(self._text.now(), self._ranges)

    def close(self) -> None:
        """Nobody asks any more."""
        self._text.close()

    def others(self, *but: int) -> dict[int, Waits]:
        """The same of all other threads of this process except those, by their numbers."""
        found = {}
        for task in Path("/proc/self/task").iterdir():
            tid = int(task.name)
            if tid != self._tid and tid not in but:
                found[tid] = waits_in(_text(tid), self._ranges)
        return found


def _text(tid: int) -> str:
    """What the kernel says of a thread; of one that has ended, nothing."""
    try:
        return Path(f"/proc/self/task/{tid}/syscall").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
