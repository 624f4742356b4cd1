"""What a thread is blocked in, by the kernel's word: texts as it writes them, and real threads that wait."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perf_diagnostics.measure.code.thread_waits import Ranges, ThreadWaits, Waits, waits_in

RANGES = Ranges(team=((0x7000, 0x8000),), runtime=(0x100000, 0x200000))


def test_the_call_says_what_is_waited_for() -> None:
    def of(text: str, machine: str = "x86_64") -> Waits:
        return waits_in(text, RANGES, machine=machine)

    assert of("running\n") is Waits.RUNS
    assert of("230 0x1 0x1 0x7fff450d7980 0x0 0x0 0x0 0x7fff450d7940 0x7ff2f9ced545\n") is Waits.SLEEP
    assert of("115 0x1 0x1 0x7fff450d7980 0x0 0x0 0x0 0x7fff450d7940 0x7ff2f9ced545\n", "aarch64") is Waits.SLEEP
    assert of("232 0x4 0x7ff 0x1 0x5 0x0 0x0 0x7ff 0x7f2\n") is Waits.SOCKET
    assert of("61 0xffffffff 0x0 0x0 0x0 0x0 0x0 0x7ff 0x7f2\n") is Waits.PROCESS
    assert of("-1 0x7fff450d7940 0x7ff2f9ced545\n") is Waits.MEMORY
    assert of("9999 0x1 0x1 0x7ff 0x0 0x0 0x0 0x7ff 0x7f2\n") is Waits.OTHER
    assert of("230 0x1 0x1 0x7ff 0x0 0x0 0x0 0x7ff 0x7f2\n", "riscv64") is Waits.OTHER
    assert of("") is Waits.OTHER and of("nonsense\n") is Waits.OTHER


@pytest.mark.parametrize(
    ("address", "program", "waits"),
    [
        (0x5000, 0x9000, Waits.LOCK),
        (0x100010, 0x9000, Waits.PYTHON),
        (0x5000, 0x7100, Waits.TEAM),
        (0x5000, 0x8000, Waits.LOCK),
    ],
)
def test_a_futex_is_told_by_its_address_and_by_whose_code_asks(address: int, program: int, waits: Waits) -> None:
    text = f"202 {address:#x} 0x189 0x0 0x0 0x0 0xffffffff 0x7fff450d7820 {program:#x}\n"
    assert waits_in(text, RANGES, machine="x86_64") is waits
    assert waits_in(text, None, machine="x86_64") is Waits.OTHER


@pytest.mark.parametrize(
    ("target", "waits"),
    [("socket:[123]", Waits.SOCKET), ("pipe:[77]", Waits.PIPE), ("anon_inode:[eventfd]", Waits.OTHER)],
)
def test_a_read_is_told_by_what_it_reads_from(tmp_path: Path, target: str, waits: Waits) -> None:
    (tmp_path / "4").symlink_to(target)
    (tmp_path / "5").symlink_to(tmp_path / "data.bin")
    for number in (0, 1):  # read, write
        text = f"{number} 0x4 0x7ff2f9aacfb0 0x1 0x5562c3859990 0x0 0x0 0x7fff450d7900 0x7ff2f9d162ec\n"
        assert waits_in(text, RANGES, machine="x86_64", links=tmp_path) is waits
        assert waits_in(text.replace("0x4", "0x5"), RANGES, machine="x86_64", links=tmp_path) is Waits.FILE
        assert waits_in(text.replace("0x4", "0x6"), RANGES, machine="x86_64", links=tmp_path) is Waits.OTHER


def test_the_code_of_openmp_is_found_among_what_is_mapped(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    maps.write_text(
        "7f00-7f10 r--p 00000000 fe:00 1   /site/torch.libs/libgomp-a34b3233.so.1\n"
        "7f10-7f20 r-xp 00010000 fe:00 1   /site/torch.libs/libgomp-a34b3233.so.1\n"
        "7f30-7f40 r-xp 00010000 fe:00 2   /opt/intel/libiomp5.so\n"
        "7f50-7f60 r-xp 00010000 fe:00 3   /site/libompi_private/libc.so.6\n"
        "7f70-7f80 rw-p 00000000 00:00 0 \n"
    )
    found = Ranges.here(maps)
    assert found is not None and found.team == ((0x7F10, 0x7F20), (0x7F30, 0x7F40))
    assert found.runtime[1] > found.runtime[0] > 0
    assert Ranges.here(tmp_path / "none") is None


def seen(wait: Callable[[], object], end: Callable[[], object]) -> set[Waits]:
    """What a thread that calls ``wait`` is seen in until ``end`` has let it go; the first tenth of a second is not."""
    tids: list[int] = []
    thread = threading.Thread(target=lambda: (tids.append(threading.get_native_id()), wait()), daemon=True)
    thread.start()
    time.sleep(0.1)
    looks = ThreadWaits(tids[0])
    found = {looks.now() for _ in range(20)}
    looks.close()
    end()
    thread.join(5)
    return found


@pytest.mark.skipif(not Path("/proc/self/syscall").exists(), reason="this kernel does not tell the calls of threads")
def test_real_threads_that_wait_are_seen_in_what_they_wait_for() -> None:
    # Only the kinds that need no second thread's help: none of them can be missed, and nothing depends on speed.
    ended, reading, writing = threading.Event(), *os.pipe()
    assert seen(lambda: time.sleep(0.3), lambda: None) == {Waits.SLEEP}
    assert seen(lambda: os.read(reading, 1), lambda: os.write(writing, b"x")) == {Waits.PIPE}
    assert seen(ended.wait, ended.set) == {Waits.LOCK}
    os.close(reading)
    os.close(writing)
