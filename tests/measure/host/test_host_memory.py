"""Host memory of this process and its children as it is now: real readings, and files of pretended machines."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perf_diagnostics.measure.host import host_memory
from perf_diagnostics.measure.host.host_memory import HostMemoryReader, swapped_bytes, tree_footprint
from perf_diagnostics.measure.observation import Observations, Unreadable
from tests.measure.kernel_files import machine

PAGE = os.sysconf("SC_PAGE_SIZE")


def test_resident_memory_is_read_in_pages(tmp_path: Path) -> None:
    root = machine(tmp_path, {"/proc/self/statm": "90000 1234 500 1 0 700 0\n"})
    reader = HostMemoryReader(Observations(), root=root)
    assert reader() == 1234 * PAGE
    (root / "proc/self/statm").write_text("90000 1300 500 1 0 700 0\n")
    assert reader() == 1300 * PAGE  # the same open file, read again
    reader.close()
    assert reader() is None


def test_this_process_grows_by_what_it_touches() -> None:
    reader = HostMemoryReader(Observations())
    before = reader()
    held = mmap.mmap(-1, 64 * 2**20)  # new pages; a bytearray may get some that an earlier test has touched
    held.write(os.urandom(1) * len(held))
    after = reader()
    assert before is not None and after is not None
    assert after - before > 0.9 * len(held)
    reader.close()


def test_without_such_a_file_there_is_a_gap_and_no_zero(tmp_path: Path) -> None:
    observations = Observations()
    assert HostMemoryReader(observations, root=tmp_path)() is None
    (gap,) = observations.gaps
    assert gap.signal == "host_rss_bytes"
    assert "No such file" in gap.why


def test_a_file_that_says_nonsense_is_given_up_after_three_readings(tmp_path: Path) -> None:
    observations = Observations()
    reader = HostMemoryReader(observations, root=machine(tmp_path, {"/proc/self/statm": "\n"}))
    assert [reader() for _ in range(4)] == [None] * 4
    assert observations.gaps[0].why.endswith("failed 3 times")


ROLLUP = "55-7f ---p 00000000 00:00 0 [rollup]\nRss: 900 kB\nPss: 500 kB\nPrivate_Clean: 10 kB\nPrivate_Dirty: 290 kB\n"


def test_the_tree_is_summed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_memory, "_members", lambda pid: [pid, pid + 1])
    root = machine(
        tmp_path,
        {
            "/proc/5/smaps_rollup": ROLLUP,
            "/proc/6/smaps_rollup": ROLLUP,
            "/proc/5/status": "Name:\tpython\nVmSwap:\t 12 kB\n",
            "/proc/6/status": "Name:\tpython\nVmSwap:\t 0 kB\n",
        },
    )
    found = tree_footprint(5, root=root)
    assert (found.uss_bytes, found.pss_bytes) == (2 * 300 * 1024, 2 * 500 * 1024)
    assert [(q.name, q.value) for q in found.quantities()] == [
        ("host_memory_uss", 600 * 1024),
        ("host_memory_pss", 1000 * 1024),
    ]
    assert swapped_bytes(5, root=root) == 12 * 1024


def test_a_worker_that_has_ended_is_left_out_and_one_that_cannot_be_read_is_no_sum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "_members", lambda pid: [pid, pid + 1])
    root = machine(tmp_path, {"/proc/5/smaps_rollup": ROLLUP, "/proc/5/status": "VmSwap:\t 0 kB\n"})
    assert tree_footprint(5, root=root).uss_bytes == 300 * 1024
    assert swapped_bytes(5, root=root) == 0  # measured
    machine(tmp_path, {"/proc/6/status": "Name:\tpython\n"})
    with pytest.raises(Unreadable, match="process 6 cannot be read"):
        tree_footprint(5, root=root)
    with pytest.raises(Unreadable, match="process 6 has no VmSwap"):
        swapped_bytes(5, root=root)


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux")
def test_a_real_child_counts() -> None:
    alone = tree_footprint(os.getpid()).uss_bytes
    code = "held = bytearray(b'x') * (50 * 2**20); print('ready', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert tree_footprint(os.getpid()).uss_bytes - alone > 45 * 2**20
        child.communicate(b"\n")
