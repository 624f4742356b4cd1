"""Short notes that processes started by this one leave for it, in memory that all of them share: no pipe, and no file
with a name.

Each writer has a place of its own, where its latest note stands. One that was torn (its writer was killed, or is
writing) is not read. Nothing is left behind when the processes are gone.
"""

from __future__ import annotations

import mmap
import os
import struct
import sys
import tempfile
import zlib
from multiprocessing import reduction
from typing import Any

#: Before each note: its length and its checksum.
_HEAD = struct.Struct("<II")

#: Python's mapping keeps a file of its own open, unless it is told not to (from 3.13 on).
_UNTRACKED: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}

#: Mappings whose files somebody has closed: what they would close with them may be his own by now.
_LEFT: list[mmap.mmap] = []


class SharedNotes:
    """A number of places; memory is taken only for those that were written.

    Args:
        places: how many.
        size: bytes that a note takes at most.
        file: an open file of zeros to lie in; the notes close it. Default: memory that forked processes alone have.
    """

    def __init__(self, places: int, size: int, *, file: int | None = None) -> None:
        self.places = places
        self.size = size
        self._step = _HEAD.size + size
        length = places * self._step
        self._file, self._is = file, None if file is None else _identity(file)
        self._closed = False
        self._memory = mmap.mmap(-1, length) if file is None else mmap.mmap(file, length, **_UNTRACKED)

    @classmethod
    def to_hand_on(cls, places: int, size: int) -> SharedNotes:
        """Notes that processes which are not forked can have as well (:meth:`handed_on`).

        Raises:
            OSError: there is no room for them.
        """
        return cls(places, size, file=_new_file(places * (_HEAD.size + size)))

    def handed_on(self) -> tuple[Any, int, int]:
        """What :func:`opened` takes in a process that is being started, to be pickled with what this one is given.

        Raises:
            OSError: the file is not open any more: a script may close what it does not know.
            AttributeError: this system hands no open files on (Windows).
            ValueError: these notes are memory of forked processes.
        """
        if self._file is None:
            raise ValueError("notes of forked processes alone cannot be handed on")
        if _identity(self._file) != self._is:
            raise OSError("the file of the notes was closed by somebody else")
        return reduction.DupFd(self._file), self.places, self.size

    def close(self) -> None:
        """Let the memory and its file go; what was written is gone."""
        if self._closed:
            return
        self._closed = True
        file, self._file = self._file, None
        if file is not None and _identity(file) != self._is:
            _LEFT.append(self._memory)
            return
        if file is not None:
            os.close(file)
        self._memory.close()

    def __del__(self) -> None:
        if "_memory" in vars(self):
            self.close()

    def write(self, place: int, note: bytes) -> None:
        """Put a note in a place, instead of the one before.

        Raises:
            ValueError: it is too long, or there is no such place.
        """
        if not 0 <= place < self.places or len(note) > self.size:
            raise ValueError(f"a note of {len(note)} bytes for place {place} of {self.places}, {self.size} bytes each")
        at = place * self._step
        self._memory[at + _HEAD.size : at + _HEAD.size + len(note)] = note
        self._memory[at : at + _HEAD.size] = _HEAD.pack(len(note), zlib.crc32(note))

    def read(self, place: int) -> bytes:
        """The note in a place; empty where there is none, or only a torn one."""
        at = place * self._step
        length, checksum = _HEAD.unpack(self._memory[at : at + _HEAD.size])
        note = self._memory[at + _HEAD.size : at + _HEAD.size + min(length, self.size)]
        return note if length == len(note) and zlib.crc32(note) == checksum else b""


def opened(handed_on: tuple[Any, int, int]) -> SharedNotes:
    """The notes of the process that started this one.

    Raises:
        OSError: they cannot be had.
    """
    file, places, size = handed_on
    return SharedNotes(places, size, file=file.detach())


def _new_file(length: int) -> int:
    """Of the length in bytes, without a name."""
    if hasattr(os, "memfd_create"):  # /dev/shm is small in containers, and full of batches
        file = os.memfd_create("perf-diagnostics")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, length)
    return file


def _identity(file: int) -> tuple[int, int] | None:
    """What tells an open file from another one that has its number by now; None where it is not open."""
    try:
        status = os.fstat(file)
    except OSError:
        return None
    return status.st_dev, status.st_ino
