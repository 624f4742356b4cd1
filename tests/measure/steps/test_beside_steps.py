"""Memory now and then, CPU time and compiled graphs beside a step's times."""

from __future__ import annotations

import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from perf_diagnostics.measure.steps.beside_steps import UNREAD, cpu_of_steps
from perf_diagnostics.measure.steps.probe import Probe
from tests.measure.simulated_device import HostClock

MS = 1_000_000


def steps(probe: Probe, host: HostClock, count: int, milliseconds: float) -> None:
    probe.start()
    for _ in range(count):
        host.spend(milliseconds)
        probe.end_step(samples=1)
    probe.end_block()


def test_memory_is_read_at_steps_that_lie_fifty_milliseconds_apart() -> None:
    host, calls = HostClock(), [0]

    def reader() -> tuple[float, ...]:
        calls[0] += 1
        return (100.0 * calls[0], math.nan, 0.0, math.nan, 5.0)

    probe = Probe(clock=host, thread_cpu=lambda: 0, memory=reader)
    steps(probe, host, 7, 20)
    table = probe.take()
    # Steps end at 20, 40, 60, 80 ... ms: read at 20, 80, 140.
    nan = math.nan
    np.testing.assert_array_equal(table.columns["allocated_bytes"], [100, nan, nan, 200, nan, nan, 300])
    assert table.get("reserved_bytes") is None and table.get("device_allocs") is None  # never had a value
    assert np.nansum(table.columns["alloc_retries"]) == 0 and table.get("alloc_retries") is not None  # a measured zero
    steps(probe, host, 1, 1)  # a block too short for a reading has the same columns
    assert np.isnan(probe.take().columns["allocated_bytes"]).all() and calls[0] == 3


def test_a_mapping_does_as_well_and_no_reader_no_columns() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0, memory=lambda: {"host_rss_bytes": 7.0})
    steps(probe, host, 1, 1)
    assert probe.take().columns["host_rss_bytes"].tolist() == [7.0]
    bare = Probe(clock=host, thread_cpu=lambda: 0)
    steps(bare, host, 1, 1)
    assert bare.take().get("host_rss_bytes") is None


def test_the_threads_cpu_time_is_that_of_the_step() -> None:
    host, cpu = HostClock(), HostClock()
    probe = Probe(clock=host, thread_cpu=cpu)
    probe.start()
    for milliseconds in (3, 0, 5):
        host.spend(10)
        cpu.spend(milliseconds)
        probe.end_step(samples=1)
    probe.end_block()
    cpu.spend(100)  # between blocks
    steps(probe, host, 1, 1)
    assert probe.take().columns["thread_cpu_ns"].tolist() == [3 * MS, 0, 5 * MS, 0]


def test_graphs_are_counted_where_torchs_compiler_was_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostClock()
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    steps(probe, host, 2, 1)
    assert probe.take().get("graphs") is None
    assert "torch._dynamo.utils" not in sys.modules
    counters: dict[str, dict[str, int]] = {}
    monkeypatch.setitem(sys.modules, "torch._dynamo.utils", SimpleNamespace(counters=counters))  # type: ignore[arg-type]
    probe.start()
    probe.end_step(samples=1)  # nothing compiled: a measured zero
    counters["stats"] = {"unique_graphs": 2}
    host.spend(3)  # compiling takes milliseconds; the count is not asked for after a step that is quicker than any
    probe.end_step(samples=1)
    probe.end_step(samples=1)
    probe.end_block()
    assert probe.take().columns["graphs"].tolist() == [0, 2, 2]
    later = Probe(clock=host, thread_cpu=lambda: 0)  # what others compiled is not this probe's
    steps(later, host, 1, 1)
    assert later.take().columns["graphs"].tolist() == [0]


def test_what_most_steps_share_is_kept_once() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)
    probe.start()
    for samples in (8, 8, 8, 5, 8):
        host.spend(1)
        probe.end_step(samples=samples, tokens=samples * 10)
    probe.end_block()
    assert len(probe._told) == 3
    table = probe.take()
    assert table.samples.tolist() == [8, 8, 8, 5, 8] and table.columns["tokens"].tolist() == [80, 80, 80, 50, 80]


def test_what_changes_while_the_samples_stay_is_told_too() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: 0)

    def step(*, in_wait: int | None = None, after: int | None = None, tokens: int | None = None) -> None:
        with probe.data_wait():
            probe.epoch = probe.epoch if in_wait is None else in_wait
        host.spend(0.1)
        probe.epoch = probe.epoch if after is None else after
        probe.end_step(samples=8, tokens=tokens)

    for warmup in (True, False):
        probe.warmup = warmup
        probe.start()
        step()
        step(in_wait=1)  # the epoch of the step's first batch
        step(after=2)  # of the next step's
        step(tokens=0)
        probe.end_block()
        probe.epoch = 0
    columns = probe.take().columns
    assert columns["epoch"].tolist() == [0, 1, 1, 2] * 2
    assert columns["warmup"].tolist() == [True] * 4 + [False] * 4 and columns["block"].tolist() == [0] * 4 + [1] * 4
    assert "tokens" not in columns  # some steps have none
    probe.start()
    step(tokens=0)
    step(tokens=5)
    probe.end_block()
    assert probe.take().columns["tokens"].tolist() == [0, 5]
    probe.start()
    step(tokens=5)
    step()
    probe.end_block()
    assert [told[1] for _, told in probe._told] == [5, -1]
    assert "tokens" not in probe.take().columns


def test_steps_without_a_reading_have_no_row_of_their_own() -> None:
    host = HostClock()
    probe = Probe(clock=host, thread_cpu=lambda: round(host.now_ns))
    probe.start()
    for _ in range(100):
        with probe.data_wait():
            host.spend(0.01)
        host.spend(0.29)
        probe.end_step(samples=1)
    probe.end_block()
    # After 0.3 ms, after each 10.2 of the 29.7 ms that follow, and for the last steps: 4 readings of three numbers.
    assert len(probe._cpu) == 3 * 4
    columns = probe.take().columns
    assert columns["thread_cpu_ns"].tolist() == [300_000] * 100
    assert columns["data_wait_cpu_ns"].tolist() == [10_000] * 100


def test_a_reading_is_shared_by_the_steps_since_the_one_before() -> None:
    def shared(wall: list[int], read: list[int]) -> list[int]:
        return cpu_of_steps(np.array(wall, dtype=np.int64), np.array(read, dtype=np.int64)).tolist()

    none = UNREAD
    assert shared([], []) == []
    assert shared([10, 20], [9, 0]) == [9, 0]  # each step has its own, and a measured zero is one
    assert shared([10, 20, 10], [none, none, 40]) == [10, 20, 10]  # the thread ran all the time
    assert shared([10, 20, 10], [none, none, 25]) == [10, 5, 10]  # 15 are missing: the longest step's
    assert shared([10, 20, 10], [none, none, 10]) == [2, 5, 2]  # 30 are missing, more than it took: a quarter each
    assert shared([10, 10, 30, 5], [none, 18, 29, 5]) == [8, 10, 29, 5]  # of equally long ones the first
    assert shared([10, 10], [none, 21]) == [10, 10]  # two clocks differ by a little
    assert shared([0, 0], [none, 0]) == [0, 0]
