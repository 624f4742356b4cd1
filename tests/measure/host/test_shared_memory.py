"""Room in /dev/shm: on this machine's own file systems, and where there is none."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from perf_diagnostics.measure.host import shared_memory
from perf_diagnostics.measure.host.shared_memory import Room, SharedMemory, room
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import QUANTITIES

NAMES = ["shared_memory_total", "shared_memory_free_before", "shared_memory_free_least"]


def readings(monkeypatch: pytest.MonkeyPatch, *free_pages: int | OSError, pages: int = 16) -> list[Path]:
    """A file system of pages of 4096 bytes, that answers each question with the next number; who was asked."""
    answers, asked = iter(free_pages), []

    def statvfs(path: Path) -> SimpleNamespace:
        asked.append(path)
        answer = next(answers)
        if isinstance(answer, OSError):
            raise answer
        # Blocks that only the superuser may take are no room.
        return SimpleNamespace(f_frsize=4096, f_blocks=pages, f_bfree=answer + 3, f_bavail=answer)

    monkeypatch.setattr(shared_memory.os, "statvfs", statvfs)
    return asked


def test_the_least_room_between_blocks_is_kept_beside_what_was_there_before(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = readings(monkeypatch, 15, 4, 2, 9)
    shared, observations = SharedMemory(), Observations()
    for _ in range(3):
        shared.look()
    found = shared.quantities(observations)
    assert [one.name for one in found] == NAMES
    assert [one.value for one in found] == [16 * 4096, 15 * 4096, 2 * 4096]
    assert {(one.unit, one.source) for one in found} == {("bytes", "statvfs of /dev/shm")}
    assert asked == [Path("/dev/shm")] * 4 and not observations.gaps
    assert all(QUANTITIES[one.name][0] == one.unit for one in found)


def test_a_full_file_system_is_a_measured_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, 16, 0)
    shared = SharedMemory()
    shared.look()
    assert shared.quantities(Observations())[2].value == 0.0


def test_without_the_folder_there_is_a_gap_with_the_reason(tmp_path: Path) -> None:
    shared, observations = SharedMemory(tmp_path / "shm"), Observations()
    shared.look()
    assert shared.quantities(observations) == ()
    assert [(gap.signal, gap.why) for gap in observations.gaps] == [
        (name, f"{tmp_path / 'shm'} cannot be read: No such file or directory") for name in NAMES
    ]


def test_a_reading_that_fails_now_and_then_takes_nothing_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, 15, OSError(5, "Input/output error"), 7, OSError(5, "Input/output error"))
    shared = SharedMemory()
    for _ in range(3):
        shared.look()
    assert shared.quantities(Observations())[2].value == 7 * 4096


def test_what_nobody_looked_at_between_steps_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, 15)
    observations = Observations()
    assert SharedMemory().quantities(observations) == ()
    assert observations.gaps[2].why == "it was not looked at between steps"


def test_no_size_and_no_system_call_are_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    readings(monkeypatch, 0, pages=0)
    assert room(Path("/dev/shm")) == "/dev/shm states no size"
    monkeypatch.delattr(shared_memory.os, "statvfs")
    assert room(Path("/dev/shm")) == "this operating system has no statvfs"


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no /dev/shm here")
def test_what_a_process_writes_there_is_missing_from_the_room() -> None:
    before = room(Path("/dev/shm"))
    file = Path(f"/dev/shm/perf_diagnostics_test_{os.getpid()}")
    try:
        file.write_bytes(b"\1" * 4_000_000)
        during = room(Path("/dev/shm"))
    finally:
        file.unlink()
    assert isinstance(before, Room) and isinstance(during, Room)
    # Others may give room back meanwhile, but hardly just as much.
    assert before.total == during.total and before.free - during.free == pytest.approx(4_000_000, abs=1_000_000)
