"""Short notes that processes started by this one leave for it, in memory that all of them share: no pipe, and no file
with a name.

Each writer has a place of its own, where its latest note stands. One that was torn (its writer was killed, or is
writing) is not read. Nothing is left behind when the processes are gone.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import zlib
from multiprocessing import reduction
from typing import Any

#: Before each note: its length and its checksum.
_HEAD = struct.Struct("<II")


def _new_file(length: int) -> int:
    """Of the length in bytes, without a name."""
    if hasattr(os, "memfd_create"):  # /dev/shm is small in containers, and full of batches
        file = os.memfd_create("perf-diagnostics")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, length)
    return file


def _opened(file: Any, places: int, size: int) -> SharedNotes:
    """The notes of the process that started this one."""
    return SharedNotes(places, size, file=file.detach())


class SharedNotes:
    """A number of places; memory is taken only for those that were written.

    Forked processes have it, and those that are spawned where it is among what they are given (where the system hands
    open files to them: not on Windows).

    Args:
        places: how many.
        size: bytes that a note takes at most.
        file: an open file of zeros to lie in, which the notes close; default: a new one, in memory on Linux.

    Raises:
        OSError: there is no room for it.
    """

    def __init__(self, places: int, size: int, *, file: int | None = None) -> None:
        self.places = places
        self.size = size
        self._step = _HEAD.size + size
        length = places * self._step
        self._file = _new_file(length) if file is None else file
        self._memory = mmap.mmap(self._file, length)

    def __del__(self) -> None:
        if "_file" in vars(self):
            os.close(self._file)

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, (reduction.DupFd(self._file), self.places, self.size)

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
