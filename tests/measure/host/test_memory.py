"""Host memory and CPU time of a trial's processes, with real processes and with pretended ones."""

import mmap
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.host.memory import (
    MemoryFootprint,
    ProcessCounters,
    ProcessTree,
    ProcessTreeCpu,
    ProcessTreeMemory,
    memory_footprint,
    memory_limit_bytes,
    process_tree,
    reset_peak_rss,
    rss_bytes,
    vm_hwm_bytes,
)
from perf_diagnostics.measure.observation import Unreadable
from tests.measure.kernel_files import VERSION_2, machine

MIB = 2**20
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux")


class Pretended:
    """A process of psutil with set numbers; ``gone`` raises as one that has ended does."""

    def __init__(self, *, rss: int = 0, user: float = 0.0, reaped: float = 0.0, gone: bool = False) -> None:
        self.rss, self.user, self.reaped, self.gone = rss, user, reaped, gone

    def memory_info(self) -> "Pretended":
        if self.gone:
            raise psutil.NoSuchProcess(1)
        return self

    def cpu_times(self) -> "Pretended":
        if self.gone:
            raise psutil.NoSuchProcess(1)
        return self

    system = children_system = 0.0

    @property
    def children_user(self) -> float:
        return self.reaped


@pytest.fixture
def tree(monkeypatch: pytest.MonkeyPatch) -> list[Pretended]:
    processes: list[Pretended] = []
    monkeypatch.setattr(memory, "process_tree", lambda pid: list(processes))
    return processes


def s(seconds: float) -> int:
    return int(seconds * 1e9)


def test_memory_of_the_tree_is_summed_and_its_peak_kept(tree: list[Pretended]) -> None:
    instrument = ProcessTreeMemory()
    instrument.start(1)
    tree[:] = [Pretended(rss=100), Pretended(rss=50)]
    instrument.sample(s(0))
    tree.append(Pretended(rss=30))
    instrument.sample(s(1))
    tree[:] = [Pretended(rss=90)]
    instrument.sample(s(2))
    (series,), (peak,) = instrument.stop()
    assert series.values.tolist() == [150, 180, 90]
    assert (series.name, series.unit, series.source) == ("host_memory", "bytes", "psutil rss")
    assert (peak.name, peak.value) == ("host_tree_memory_peak", 180)


def test_a_process_that_vanishes_mid_read_is_left_out(tree: list[Pretended]) -> None:
    tree[:] = [Pretended(rss=100), Pretended(rss=50, gone=True)]
    instrument = ProcessTreeMemory()
    instrument.start(1)
    instrument.sample(0)
    (series,), _ = instrument.stop()
    assert series.values.tolist() == [100]


def test_a_trial_that_has_ended_gives_no_sample_and_not_zero(tree: list[Pretended]) -> None:
    instrument = ProcessTreeMemory()
    instrument.start(4321)
    tree[:] = [Pretended(rss=100)]
    instrument.sample(s(0))
    tree.clear()
    instrument.sample(s(1))
    (series,), _ = instrument.stop()
    assert series.times_ns.tolist() == [0]


def test_a_trial_that_was_never_seen_is_unreadable(tree: list[Pretended]) -> None:
    instrument = ProcessTreeMemory()
    instrument.start(4321)
    instrument.sample(0)
    with pytest.raises(Unreadable, match="process 4321 could not be read"):
        instrument.stop()


def test_a_zombie_of_zero_bytes_is_a_measured_zero(tree: list[Pretended]) -> None:
    tree[:] = [Pretended(rss=0)]
    instrument = ProcessTreeMemory()
    instrument.start(1)
    instrument.sample(0)
    (series,), (peak,) = instrument.stop()
    assert series.values.tolist() == [0]
    assert peak.value == 0


def test_new_processes_are_looked_for_at_most_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(memory, "process_tree", lambda pid: looked.append(pid) or [Pretended(rss=1)])
    instrument = ProcessTreeMemory()
    instrument.start(9)
    for tenth in range(21):
        instrument.sample(s(tenth / 10))
    assert len(looked) == 5  # at 0, 0.5, 1, 1.5 and 2 s


def test_instruments_that_share_a_tree_look_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    monkeypatch.setattr(memory, "process_tree", lambda pid: looked.append(pid) or [Pretended(rss=1, user=2.0)])
    tree = ProcessTree()
    resident, cpu = ProcessTreeMemory(tree), ProcessTreeCpu(tree)
    for instrument in (resident, cpu):
        instrument.start(9)
    for now in (s(0), s(1)):
        resident.sample(now)
        cpu.sample(now)
    assert looked == [9, 9]
    tree.follow(10)  # the next trial's processes are others, however soon it comes
    tree.at(s(1))
    assert looked == [9, 9, 10]


def test_cpu_use_is_time_over_time_in_percent_of_one_core(tree: list[Pretended]) -> None:
    parent, worker = Pretended(user=10.0), Pretended(user=2.0)
    tree[:] = [parent, worker]
    instrument = ProcessTreeCpu()
    instrument.start(1)
    instrument.sample(s(0))
    parent.user, worker.user = 11.0, 2.5
    instrument.sample(s(1))
    (series,), _ = instrument.stop()
    assert series.values.tolist() == [pytest.approx(150.0)]  # 1.0 s + 0.5 s in 1 s
    assert (series.name, series.unit) == ("cpu_utilization", "%")


def test_a_child_that_ends_moves_its_time_to_its_parent(tree: list[Pretended]) -> None:
    parent, worker = Pretended(user=10.0), Pretended(user=2.0)
    tree[:] = [parent, worker]
    instrument = ProcessTreeCpu()
    instrument.start(1)
    instrument.sample(s(0))
    tree[:] = [parent]
    parent.user, parent.reaped = 10.2, 2.3  # the worker used 0.3 s more before it ended
    instrument.sample(s(1))
    (series,), _ = instrument.stop()
    assert series.values.tolist() == [pytest.approx(50.0)]  # 0.2 s + 0.3 s in 1 s


def test_a_child_nobody_waits_for_costs_a_reading_and_is_never_negative(tree: list[Pretended]) -> None:
    parent, orphan = Pretended(user=10.0), Pretended(user=5.0)
    tree[:] = [parent, orphan]
    instrument = ProcessTreeCpu()
    instrument.start(1)
    instrument.sample(s(0))
    tree[:] = [parent]
    instrument.sample(s(1))
    parent.user = 11.0
    instrument.sample(s(2))
    (series,), _ = instrument.stop()
    assert series.times_ns.tolist() == [s(2)]
    assert series.values.tolist() == [pytest.approx(100.0)]


def test_an_idle_tree_uses_a_measured_zero(tree: list[Pretended]) -> None:
    tree[:] = [Pretended(user=10.0)]
    instrument = ProcessTreeCpu()
    instrument.start(1)
    instrument.sample(s(0))
    instrument.sample(s(1))
    (series,), _ = instrument.stop()
    assert series.values.tolist() == [0.0]


def test_a_trial_shorter_than_one_interval_has_no_cpu_use(tree: list[Pretended]) -> None:
    tree[:] = [Pretended(user=10.0)]
    instrument = ProcessTreeCpu()
    instrument.start(1)
    instrument.sample(s(0))
    instrument.sample(s(0.3))
    with pytest.raises(Unreadable, match=r"shorter than the 0.5 s"):
        instrument.stop()


def test_a_real_child_is_in_the_tree_and_its_memory_in_the_sum() -> None:
    code = "import sys; hold = bytearray(64 * 2**20); print('ready', flush=True); sys.stdin.read()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdin is not None and child.stdout is not None
    with child:
        child.stdout.readline()
        assert child.pid in {process.pid for process in process_tree(os.getpid())}
        alone = ProcessTreeMemory()
        alone.start(child.pid)
        alone.sample(0)
        whole = ProcessTreeMemory()
        whole.start(os.getpid())
        whole.sample(0)
        child.stdin.close()
    (_,), (child_peak,) = alone.stop()
    (_,), (tree_peak,) = whole.stop()
    assert child_peak.value >= 64 * MIB
    assert tree_peak.value >= child_peak.value + 10 * MIB  # this interpreter itself holds more than 10 MiB


@linux
def test_the_kernels_lists_and_psutil_agree_on_grandchildren(tmp_path: Path) -> None:
    sleeper = [sys.executable, "-c", "import time; time.sleep(60)"]
    code = f"import subprocess, time; subprocess.Popen({sleeper!r}); print('ready', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        by_kernel = process_tree(child.pid)
        by_psutil = process_tree(child.pid, root=tmp_path)  # without the kernel's lists
        for process in by_kernel:
            process.kill()
    assert len(by_kernel) == 2
    assert by_kernel[0].pid == child.pid
    assert by_kernel == by_psutil


def test_a_process_that_has_ended_has_no_tree() -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert process_tree(child.pid) == []


def test_peak_and_resident_memory_are_read_in_bytes(tmp_path: Path) -> None:
    status = "Name:\tpython\nVmPeak:\t  900 kB\nVmHWM:\t  613 kB\nVmRSS:\t   13 kB\nThreads:\t1\n"
    root = machine(tmp_path, {"/proc/self/status": status})
    assert vm_hwm_bytes(root=root) == 613 * 1024
    assert rss_bytes(root=root) == 13 * 1024


def test_a_kernel_thread_or_missing_process_has_no_peak(tmp_path: Path) -> None:
    root = machine(tmp_path, {"/proc/self/status": "Name:\tkthreadd\n"})
    assert vm_hwm_bytes(root=root) is None
    assert vm_hwm_bytes(root=tmp_path / "nothing") is None


def test_a_peak_of_zero_is_zero(tmp_path: Path) -> None:
    assert vm_hwm_bytes(root=machine(tmp_path, {"/proc/self/status": "VmHWM:\t0 kB\n"})) == 0


def test_the_footprint_adds_what_only_this_process_holds(tmp_path: Path) -> None:
    rollup = "00400000-7fff [rollup]\nRss: 100 kB\nPss: 60 kB\nPrivate_Clean: 5 kB\nPrivate_Dirty: 40 kB\n"
    root = machine(tmp_path, {"/proc/self/smaps_rollup": rollup})
    assert memory_footprint(root=root) == MemoryFootprint(60 * 1024, 45 * 1024)
    assert memory_footprint(5, root=root) is None


@linux
def test_a_child_of_a_large_parent_has_a_peak_of_its_own() -> None:
    ballast = bytearray(b"x" * (96 * MIB))
    code = (
        "import resource; from perf_diagnostics.measure.host.memory import vm_hwm_bytes;"
        "print(vm_hwm_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    hwm, _inherited = map(int, out.split())
    assert len(ballast) == 96 * MIB
    assert hwm < 96 * MIB


@linux
def test_a_reset_peak_forgets_memory_that_was_given_back() -> None:
    with mmap.mmap(-1, 64 * MIB) as ballast:  # a bytearray may get, and leave, pages that the process keeps
        ballast.write(b"x" * (64 * MIB))
        high = vm_hwm_bytes()
    if not reset_peak_rss():
        pytest.skip("this kernel does not permit it")
    now = vm_hwm_bytes()
    assert high is not None and now is not None
    assert now < high - 32 * MIB


def test_a_refused_reset_says_so(tmp_path: Path) -> None:
    assert reset_peak_rss(root=tmp_path) is False


def test_the_limit_is_the_lesser_of_machine_and_groups(tmp_path: Path) -> None:
    meminfo = {"/proc/meminfo": "MemTotal: 1000 kB\nMemFree: 5 kB\n"}
    below = machine(tmp_path / "below", {**VERSION_2, **meminfo, "/sys/fs/cgroup/memory.max": "512000\n"})
    assert memory_limit_bytes(root=below) == 512_000
    above = machine(tmp_path / "above", {**VERSION_2, **meminfo, "/sys/fs/cgroup/memory.max": "9223372036854771712\n"})
    assert memory_limit_bytes(root=above) == 1_024_000


def test_counters_subtract_and_become_quantities() -> None:
    before = ProcessCounters(10, 1, 5, 2, 0.5, 0.1)
    after = ProcessCounters(30, 1, 9, 6, 1.5, 0.2)
    spent = after - before
    assert spent == ProcessCounters(20, 0, 4, 4, 1.0, pytest.approx(0.1))  # type: ignore[arg-type]
    assert {(q.name, q.value) for q in spent.quantities()} == {("major_faults", 0), ("involuntary_switches", 4)}


@linux
def test_touching_fresh_memory_counts_as_faults() -> None:
    before = ProcessCounters.now()
    ballast = mmap.mmap(-1, 32 * MIB)  # new pages; a bytearray may get some that an earlier test has touched
    ballast.write(b"x" * (32 * MIB))
    spent = ProcessCounters.now() - before
    assert len(ballast) == 32 * MIB
    assert spent.minor_faults >= 16  # 32 MiB are at least 16 huge pages
    assert spent.user_s + spent.system_s > 0
