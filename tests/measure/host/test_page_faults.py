"""Pages from the kernel: counted around blocks of steps in the loop's own thread, priced where there are many."""

from __future__ import annotations

import mmap
import subprocess
import sys
import textwrap
import threading

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.host.freed_memory import keep_freed_memory
from perf_diagnostics.measure.host.memory import ProcessCounters
from perf_diagnostics.measure.host.page_faults import FEW_A_SECOND, LoopFaults, page_fault_s
from perf_diagnostics.measure.observation import Observations, Unreadable

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="counts for threads, and glibc, are Linux's")


def counters(faults: int, system_s: float = 0.0) -> ProcessCounters:
    return ProcessCounters(faults, 0, 0, 0, 0.0, system_s)


class Kernel:
    """A clock, a thread, and what has been counted for it."""

    def __init__(self) -> None:
        self.ns = 0
        self.thread = 1
        self.faults, self.system_s, self.process_system_s = 500, 1.0, 3.0
        self.resident: int | None = 10**9
        self.observations = Observations()
        self.asked = 0
        self.counting = LoopFaults(
            self.observations,
            of_thread=lambda: counters(self.faults, self.system_s),
            of_process=lambda: counters(10**9, self.process_system_s),
            resident=lambda: self.resident,
            thread=lambda: self.thread,
            clock=lambda: self.ns,
            cost=self.cost,
        )

    def cost(self) -> float:
        self.asked += 1
        return 2e-6

    def passes(self, seconds: float, *, faults: int = 0, system_s: float = 0.0, others_s: float = 0.0) -> None:
        self.ns += round(seconds * 1e9)
        self.faults += faults
        self.system_s += system_s
        self.process_system_s += system_s + others_s

    def told(self) -> dict[str, float]:
        return {quantity.name: quantity.value for quantity in self.counting.finish()}


def test_what_lies_between_blocks_does_not_count() -> None:
    kernel = Kernel()
    for _ in range(2):
        kernel.passes(5, faults=10**6, system_s=4.0)
        kernel.counting.begin()
        kernel.passes(2, faults=40_000, system_s=0.1, others_s=0.3)
        kernel.counting.end()
    kernel.counting.end()
    assert kernel.told() == {
        "loop_page_faults_per_s": 20_000,
        "resident_growth_pages_per_s": 0.0,
        "loop_system_share": pytest.approx(0.05),
        "process_system_share": pytest.approx(0.2),
        "page_fault_s": 2e-6,
    }
    assert not kernel.observations.gaps


def test_the_last_block_may_still_be_open() -> None:
    kernel = Kernel()
    kernel.counting.begin()
    kernel.passes(1, faults=5_000)
    assert kernel.told()["loop_page_faults_per_s"] == 5_000


@pytest.mark.parametrize(("grown", "told"), [((40, 60), 50.0), ((40, -100), 0.0), ((None, 60), None)])
def test_what_the_memory_grew_by_in_the_blocks_is_told_beside(
    grown: tuple[int | None, int], told: float | None
) -> None:
    """In pages, two blocks of a second each; between them it may do what it likes."""
    kernel = Kernel()
    for pages in grown:
        kernel.resident = 10**9
        kernel.counting.begin()
        kernel.passes(1, faults=100)
        kernel.resident = None if pages is None else 10**9 + pages * mmap.PAGESIZE
        kernel.counting.end()
    assert kernel.told().get("resident_growth_pages_per_s") == told


def test_what_ends_in_another_thread_is_not_known() -> None:
    kernel = Kernel()
    kernel.counting.begin()
    kernel.passes(1, faults=5_000)
    kernel.thread = 2
    assert kernel.told() == {}


def test_the_price_of_a_few_pages_is_not_asked_for() -> None:
    kernel = Kernel()
    kernel.counting.begin()
    kernel.passes(1, faults=int(FEW_A_SECOND) - 1)
    assert "page_fault_s" not in kernel.told() and not kernel.asked


def test_what_cannot_be_counted_is_a_gap_and_no_zero() -> None:
    def refuses() -> ProcessCounters:
        raise Unreadable("this operating system keeps no resource counters of a thread", lasting=True)

    observations = Observations()
    counting = LoopFaults(observations, of_thread=refuses)
    counting.begin()
    counting.end()
    assert counting.finish() == ()
    told = {gap.signal: gap.why for gap in observations.gaps}
    assert set(told) == {
        *("loop_page_faults_per_s", "resident_growth_pages_per_s", "loop_system_share", "process_system_share")
    }
    assert "no resource counters of a thread" in told["loop_system_share"]


def test_a_page_costs_what_the_quickest_round_took_of_as_many_as_were_counted() -> None:
    times = iter([0, 9_000_000, 0, 4_000_000, 0, 8_000_000])
    counts = iter([0, 2_000, 10, 2_010, 50, 50])  # the last round found them all there
    assert page_fault_s(lambda: counters(next(counts)), lambda: next(times)) == pytest.approx(2e-6)


def test_where_the_kernel_counts_no_page_none_is_priced() -> None:
    with pytest.raises(Unreadable, match="counted no page fault"):
        page_fault_s(lambda: counters(7))


@LINUX
def test_fresh_memory_is_counted_for_the_thread_that_touches_it() -> None:
    counted: list[int] = []

    def touch() -> None:
        before = ProcessCounters.of_this_thread()
        with mmap.mmap(-1, 48 * 2**20) as memory:  # new pages, whatever earlier tests have touched
            memory.write(b"x" * (48 * 2**20))
        counted.append((ProcessCounters.of_this_thread() - before).minor_faults)

    before = ProcessCounters.of_this_thread()
    other = threading.Thread(target=touch)
    other.start()
    other.join()
    assert counted[0] >= 24  # 48 MiB are at least 24 huge pages
    assert (ProcessCounters.of_this_thread() - before).minor_faults < counted[0]
    assert 1e-8 < page_fault_s() < 1e-3


def test_mallopt_is_told_to_give_nothing_back_and_to_map_nothing_apart() -> None:
    calls = []

    def mallopt(parameter: int, value: int) -> int:
        calls.append((parameter, value))
        return 1

    keep_freed_memory(mallopt)
    assert calls == [(-1, 2**31 - 1), (-4, 0)]


def test_a_c_library_that_refuses_is_told_as_such() -> None:
    with pytest.raises(InvalidSettings, match="keep_freed_memory=True: mallopt refused"):
        keep_freed_memory(lambda _parameter, _value: 0)


@LINUX
def test_kept_memory_is_faulted_in_once() -> None:
    """In a process of its own: it stays so for the rest of a process."""
    script = """
        import numpy as np
        from perf_diagnostics.measure.host.freed_memory import keep_freed_memory
        from perf_diagnostics.measure.host.memory import ProcessCounters

        def faults():
            before = ProcessCounters.of_this_thread().minor_faults
            for _ in range(4):
                np.empty(6_000_000).fill(1.0)
            return ProcessCounters.of_this_thread().minor_faults - before

        anew = faults()
        keep_freed_memory()
        faults()
        print(anew, faults())
    """
    said = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, timeout=120
    )
    anew, kept = map(int, said.stdout.split())
    assert anew >= 4 * 24 and kept < anew / 20
