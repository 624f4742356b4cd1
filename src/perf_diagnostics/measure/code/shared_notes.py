"""Short notes that processes forked from this one leave for it, in memory that all of them share: no file, no pipe.

Each writer has a place of its own, where its latest note stands. One that was torn (its writer was killed, or is
writing) is not read. Nothing is left behind when the processes are gone.
"""

from __future__ import annotations

import mmap
import struct
import zlib

#: Before each note: its length and its checksum.
_HEAD = struct.Struct("<II")


class SharedNotes:
    """A number of places; memory is taken only for those that were written.

    Args:
        places: how many.
        size: bytes that a note takes at most.
    """

    def __init__(self, places: int, size: int) -> None:
        self.places = places
        self.size = size
        self._step = _HEAD.size + size
        self._memory = mmap.mmap(-1, places * self._step)

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
