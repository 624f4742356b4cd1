"""While a CUDA graph is captured the device is asked for nothing; on a device that breaks like a real one if it is."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Phase
from tests.measure.simulated_device import HostClock, SimulatedDevice

MS = 1_000_000


def step(probe: Probe, device: SimulatedDevice, *, captured: bool = False) -> None:
    """Forward 10 ms and backward 20 ms on the device; what is captured does not run."""
    with probe.data_wait():
        device.host.spend(1)
    device.captures = captured
    with probe.forward():
        device.host.spend(0.1) if captured else device.launch(10)
    with probe.backward():
        device.host.spend(0.1) if captured else device.launch(20)
    probe.end_step(samples=8)
    device.captures = False


@pytest.mark.parametrize("at", [0, 3, 9])
def test_a_captured_step_takes_no_time_on_the_device_and_the_others_theirs(at: int) -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    probe.start()
    for number in range(10):
        step(probe, device, captured=number == at)
    probe.end_block()
    table = probe.take()
    assert len(table) == 10
    for phase, milliseconds in ((Phase.FORWARD, 10), (Phase.BACKWARD, 20)):
        times = table.device_ns(phase) / MS
        assert times[at] == 0.0
        assert np.delete(times, at) == pytest.approx(np.full(9, milliseconds), rel=0.02)
    assert np.isnan(table.columns["starved"][at])  # nobody may look
    # Borders at which the queue was looked at: both ends of three phases and the step's, or of the wait alone.
    assert sorted(table.columns["borders"].tolist()) == [2, *[7] * 9]


def test_an_event_that_stands_for_several_borders_is_used_again_once() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    free: list[object] = []
    device.recycle = free.append  # type: ignore[assignment, method-assign]
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    probe.start()
    for number in range(6):
        step(probe, device, captured=number in (2, 3))
    probe.end_block()
    assert len(free) == len({id(event) for event in free}) > 10
