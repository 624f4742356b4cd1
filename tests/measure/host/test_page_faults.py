"""Pages from the kernel: counted around blocks of steps in the loop's own thread, priced where there are many."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.host.freed_memory import keep_freed_memory
from perf_diagnostics.measure.host.page_faults import FEW_A_SECOND, LoopFaults, ThreadUsage, page_fault_s
from perf_diagnostics.measure.observation import Observations, Unreadable

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="counts for threads, and glibc, are Linux's")


class Kernel:
    """A clock, a thread, and what has been counted for it."""

    def __init__(self) -> None:
        self.ns = 0
        self.thread = 1
        self.usage = ThreadUsage(500, 1.0, 3.0)
        self.observations = Observations()
        self.asked = 0
        self.counting = LoopFaults(
            self.observations,
            usage=lambda: self.usage,
            thread=lambda: self.thread,
            clock=lambda: self.ns,
            cost=self.cost,
        )

    def cost(self) -> float:
        self.asked += 1
        return 2e-6

    def passes(self, seconds: float, *, faults: int = 0, system_s: float = 0.0, others_s: float = 0.0) -> None:
        self.ns += round(seconds * 1e9)
        self.usage += ThreadUsage(faults, system_s, system_s + others_s)

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
    def refuses() -> ThreadUsage:
        raise Unreadable("this operating system counts page faults for no thread", lasting=True)

    observations = Observations()
    counting = LoopFaults(observations, usage=refuses)
    counting.begin()
    counting.end()
    assert counting.finish() == ()
    told = {gap.signal: gap.why for gap in observations.gaps}
    assert set(told) == {"loop_page_faults_per_s", "loop_system_share", "process_system_share"}
    assert "counts page faults for no thread" in told["loop_system_share"]


def test_a_page_costs_what_the_quickest_round_took_of_as_many_as_were_counted() -> None:
    times = iter([0, 9_000_000, 0, 4_000_000, 0, 8_000_000])
    counts = iter([0, 2_000, 10, 2_010, 50, 50])  # the last round found them all there
    assert page_fault_s(lambda: ThreadUsage(next(counts), 0.0, 0.0), lambda: next(times)) == pytest.approx(2e-6)


def test_where_the_kernel_counts_no_page_none_is_priced() -> None:
    with pytest.raises(Unreadable, match="counted no page fault"):
        page_fault_s(lambda: ThreadUsage(7, 0.0, 0.0))


@LINUX
def test_fresh_memory_is_counted_for_the_thread_that_touches_it() -> None:
    before = ThreadUsage.now()
    memory = bytearray(b"1") * (48 * 2**20)
    spent = ThreadUsage.now() - before
    assert len(memory) == 48 * 2**20
    assert spent.minor_faults >= 24  # 48 MiB are at least 24 huge pages
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
        from perf_diagnostics.measure.host.page_faults import ThreadUsage

        def faults():
            before = ThreadUsage.now().minor_faults
            for _ in range(4):
                np.empty(6_000_000).fill(1.0)
            return ThreadUsage.now().minor_faults - before

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
