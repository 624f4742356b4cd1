"""Notes in memory that processes share."""

from __future__ import annotations

import multiprocessing
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.measure.code.shared_notes import SharedNotes, opened


def _open() -> set[int]:
    """The numbers of open files."""
    listed = list(Path("/proc/self/fd").iterdir())
    return {int(one.name) for one in listed if one.is_symlink()}  # no more the one that listed them


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


def _writes(handed_on: tuple[Any, int, int]) -> None:
    opened(handed_on).write(1, b"from the child")
    os.kill(os.getpid(), signal.SIGKILL)


class _Handing:
    """Something that a process is given, with notes."""

    def __init__(self, notes: SharedNotes) -> None:
        self.notes = notes

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.notes.handed_on(),)


@pytest.mark.parametrize("in_memory", [True, False])
def test_so_it_is_where_it_was_spawned(in_memory: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create")
    notes = SharedNotes.to_hand_on(2, 100)
    child = multiprocessing.get_context("spawn").Process(target=_writes, args=(_Handing(notes),))
    child.start()
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    assert notes.read(1) == b"from the child" and notes.read(0) == b""


def test_notes_of_forked_processes_hold_no_file_open_and_others_none_that_is_left() -> None:
    open_before = _open()
    forked, notes, let_go = SharedNotes(2, 100), SharedNotes.to_hand_on(2, 100), SharedNotes.to_hand_on(2, 100)
    assert 2 <= len(_open() - open_before) <= 4
    with pytest.raises(ValueError, match="cannot be handed on"):
        forked.handed_on()
    notes.close()
    notes.close()
    del let_go
    assert not _open() - open_before


def test_a_file_that_somebody_closed_is_not_handed_on_and_its_number_is_his(tmp_path: Path) -> None:
    before = _open()
    notes = SharedNotes.to_hand_on(2, 100)
    numbers = _open() - before
    for number in numbers:
        os.close(number)
    with pytest.raises(OSError, match="closed by somebody else"):
        notes.handed_on()
    his = [os.open(tmp_path / str(n), os.O_RDWR | os.O_CREAT) for n in range(4)]
    assert set(his) & numbers
    with pytest.raises(OSError, match="closed by somebody else"):
        notes.handed_on()
    notes.close()
    del notes
    for number in his:
        assert os.write(number, b"his") == 3
        os.close(number)


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
