"""Memory by step in a training of the user's own: what is read, what is not, and that a leak is found by it."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.steps.loop_memory import LoopMemory
from perf_diagnostics.integrations.steps.loop_probe import FORWARD, LoopProbe
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.beside_steps import MEMORY_COLUMNS, MEMORY_INTERVAL_NS
from tests.measure.simulated_device import HostClock

MB = 1e6


def test_on_a_cpu_the_process_is_read_and_there_is_no_allocator() -> None:
    observations = Observations()
    reading = dict(zip(MEMORY_COLUMNS, LoopMemory(observations, torch.device("cpu"))(), strict=True))
    resident = reading.pop("host_rss_bytes")
    assert resident == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)
    assert all(math.isnan(value) for value in reading.values())
    assert observations.gaps == ()


def test_what_cannot_be_read_is_a_gap_and_is_not_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuses(_process: object) -> None:
        asked.append(1)
        raise psutil.AccessDenied

    monkeypatch.setattr(psutil.Process, "memory_info", refuses)
    observations = Observations()
    memory = LoopMemory(observations)
    readings = [memory() for _ in range(9)]
    assert all(math.isnan(reading[-1]) for reading in readings) and len(asked) == 3
    (gap,) = observations.gaps
    assert gap.signal == "host_rss_bytes"


class Device:
    """A device's allocator that holds some, and a kind of device that keeps statistics."""

    type = "cuda"


def test_on_a_device_its_allocator_is_read_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    counters = {
        "allocated_bytes": {"all": {"current": 5}},
        "reserved_bytes": {"all": {"current": 7}},
        "num_alloc_retries": 1,
        "num_device_alloc": 3,
    }
    monkeypatch.setattr(torch.cuda, "memory_stats_as_nested_dict", lambda _device: counters)
    reading = dict(zip(MEMORY_COLUMNS, LoopMemory(Observations(), Device())(), strict=True))
    assert reading.pop("host_rss_bytes") > 0
    assert reading == {"allocated_bytes": 5, "reserved_bytes": 7, "alloc_retries": 1, "device_allocs": 3}


def test_a_reader_that_is_put_in_later_reads_at_the_next_step() -> None:
    host = HostClock()
    probe = LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0, memory=lambda: {"host_rss_bytes": 1.0})
    probe.read_memory_every(10 * MEMORY_INTERVAL_NS)

    def step() -> None:
        probe.enter(FORWARD)
        host.spend(1)
        probe.leave()
        probe.end_step(samples=1)

    step()
    probe.read_memory(lambda: {"host_rss_bytes": 2.0, "allocated_bytes": 3.0})
    for _ in range(3):
        step()
    probe.end_block()
    table = probe.take()
    np.testing.assert_array_equal(table.columns["allocated_bytes"], [math.nan, 3.0, math.nan, math.nan])
    np.testing.assert_array_equal(table.columns["host_rss_bytes"], [math.nan, 2.0, math.nan, math.nan])


def test_watched_and_marked_loops_read_it_at_most_every_fifty_milliseconds(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for _ in range(40):
            model(torch.randn(2, 4)).sum().backward()
            optimizer.step()
    result = seen.run.results[0]
    assert result.gap("host_rss_bytes") is None
    table = result.steps[0]
    read = ~np.isnan(table.columns["host_rss_bytes"])
    at_ns = (table.columns["start_ns"] + table.wall_ns)[read]
    assert read.any() and (np.diff(at_ns) >= MEMORY_INTERVAL_NS).all()


@pytest.mark.parametrize("leak_mb", [0.0, 0.5])
def test_a_leak_is_found_and_its_healthy_twin_is_cleared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leak_mb: float
) -> None:
    host = HostClock()
    held = [400 * MB]
    monkeypatch.setattr(LoopMemory, "_resident", lambda _self: held[0])
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in range(400):  # of 60 ms: each is read; 400 x 0.5 MB = 200 MB, half of what there was
            with loop.step(samples=4), loop.forward():
                host.spend(60)
                held[0] += leak_mb * MB
    table = loop.run.results[0].steps[0]
    assert np.isfinite(table.columns["host_rss_bytes"]).all()
    diagnosis = diagnose(loop.run)
    found = [one for one in diagnosis.findings if one.code == "MEM004"]
    assert bool(found) is (leak_mb > 0)
    assert any(one.code == "MEM004" for one in diagnosis.cleared) is (leak_mb == 0)
    if found:
        assert "0.500 MB a step" in found[0].summary
