"""Notes in memory that forked processes share."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from perf_diagnostics.measure.code.shared_notes import SharedNotes

OPEN = Path("/proc/self/fd")


def test_a_note_is_the_latest_one_of_its_place() -> None:
    notes = SharedNotes(3, 10)
    notes.write(1, b"longer one")
    notes.write(1, b"short")
    notes.write(2, b"")
    assert [notes.read(place) for place in range(3)] == [b"", b"short", b""]


def test_what_a_forked_process_writes_is_there_when_it_is_gone() -> None:
    notes = SharedNotes(2, 100)
    child = os.fork()
    if child == 0:
        notes.write(1, b"from the child")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert notes.read(1) == b"from the child" and notes.read(0) == b""


def _writes(notes: SharedNotes, and_ends: bool) -> None:
    notes.write(1, b"from the child")
    if and_ends:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("in_memory", [True, False])
def test_so_it_is_where_it_was_spawned(in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    notes = SharedNotes(2, 100)
    child = multiprocessing.get_context("spawn").Process(target=_writes, args=(notes, True))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert notes.read(1) == b"from the child" and notes.read(0) == b""


def test_nothing_stays_open() -> None:
    open_before = set(OPEN.iterdir())
    notes = SharedNotes(2, 100)
    assert len(set(OPEN.iterdir()) - open_before) >= 1
    del notes
    assert not set(OPEN.iterdir()) - open_before


@pytest.mark.parametrize(("place", "note"), [(2, b"x"), (-1, b"x"), (0, b"12345678901")])
def test_what_has_no_room_is_refused(place: int, note: bytes) -> None:
    notes = SharedNotes(2, 10)
    notes.write(0, b"before")
    with pytest.raises(ValueError, match=f"a note of {len(note)} bytes for place {place} of 2"):
        notes.write(place, note)
    assert notes.read(0) == b"before" and notes.read(1) == b""


def test_a_torn_note_is_none() -> None:
    notes = SharedNotes(1, 10)
    notes.write(0, b"whole")
    notes._memory[8:9] = b"W"  # the next one, of which only this was written
    assert notes.read(0) == b""
    notes._memory[0:4] = b"\xff\xff\xff\xff"
    assert notes.read(0) == b""
