"""The probe of a loop that is not ours, on clocks whose every tick is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.integrations import OwnLoop, marked
from perf_diagnostics.integrations.steps.loop_probe import (
    BACKWARD,
    DATA_WAIT,
    FORWARD,
    OPTIMIZER,
    OTHER,
    TRAINS,
    TRANSFER,
    LoopProbe,
)
from perf_diagnostics.measure.steps.steady import cut_transient
from perf_diagnostics.records import ALL_PHASES, Phase, StepTable
from tests.measure.simulated_device import HostClock, SimulatedDevice

MS = 1_000_000


def bridged(host: HostClock) -> LoopProbe:
    return LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0)


def spend(probe: LoopProbe, host: HostClock, phase: int, milliseconds: float) -> None:
    probe.enter(phase)
    host.spend(milliseconds)
    probe.leave()


def only_row(probe: LoopProbe) -> dict[str, int]:
    probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    return {str(phase): int(table.host_ns(phase)[0]) // MS for phase in ALL_PHASES if table.host_ns(phase)[0]}


def test_the_loss_is_forward_and_clipping_is_optimizer() -> None:
    host = HostClock()
    probe = bridged(host)
    for phase, milliseconds, after in ((FORWARD, 10, 2), (BACKWARD, 20, 3), (OPTIMIZER, 5, 4)):
        spend(probe, host, phase, milliseconds)
        host.spend(after)
    assert only_row(probe) == {"forward": 12, "backward": 20, "optimizer": 8, "other": 4}


def test_what_follows_a_forward_or_backward_that_leads_nowhere_is_other() -> None:
    host = HostClock()
    probe = bridged(host)
    for phase in (FORWARD, DATA_WAIT, BACKWARD, FORWARD, OTHER, BACKWARD, OPTIMIZER):
        spend(probe, host, phase, 1)
        host.spend(2)
    # Seven gaps of 2 ms, of which only the one before the optimizer is bridged, and 1 ms that is marked as other.
    assert only_row(probe) == {"data_wait": 1, "forward": 2, "backward": 2, "optimizer": 3, "other": 13}


def test_a_bridge_inside_a_closure_does_not_rename_the_optimizer_around_it() -> None:
    host = HostClock()
    probe = bridged(host)
    probe.enter(OPTIMIZER)
    host.spend(1)
    spend(probe, host, FORWARD, 10)
    host.spend(2)  # the loss
    spend(probe, host, BACKWARD, 20)
    host.spend(4)
    probe.leave()
    assert only_row(probe) == {"forward": 12, "backward": 20, "optimizer": 5}


def test_a_forward_inside_a_backward_is_backward() -> None:
    host = HostClock()
    probe = bridged(host)
    probe.enter(BACKWARD)
    spend(probe, host, FORWARD, 7)
    host.spend(3)
    probe.leave()
    assert only_row(probe) == {"backward": 10}


def test_a_wait_that_is_given_back_is_other_and_one_that_was_used_stays() -> None:
    host = HostClock()
    probe = bridged(host)
    spend(probe, host, DATA_WAIT, 5)
    spend(probe, host, TRAINS, 1)
    spend(probe, host, DATA_WAIT, 40)
    probe.give_back_wait()
    assert only_row(probe) == {"data_wait": 5, "forward": 1, "other": 40}


def test_the_copy_of_a_batch_that_is_given_back_is_other_too() -> None:
    host = HostClock()
    probe = bridged(host)
    for used in (True, False):
        spend(probe, host, DATA_WAIT, 5)
        spend(probe, host, TRANSFER, 3)
        if used:
            spend(probe, host, TRAINS, 1)
    probe.give_back_wait()
    assert only_row(probe) == {"data_wait": 5, "transfer": 3, "forward": 1, "other": 8}


def test_lost_ends_leave_the_time_since_the_last_border_to_other() -> None:
    host = HostClock()
    probe = bridged(host)
    probe.enter(OPTIMIZER)
    spend(probe, host, FORWARD, 4)
    host.spend(9)
    probe.abandon()
    probe.leave()  # an end that comes late does nothing
    assert probe.depth == 0
    assert only_row(probe) == {"forward": 4, "other": 9}


def test_on_a_device_bridges_have_the_same_names_and_close() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = bridged(host)
    spend(probe, host, FORWARD, 1)  # before anybody knew of the device: dropped
    probe.end_step(samples=1)
    probe.use_events(device)
    for _ in range(3):
        probe.enter(FORWARD)
        device.launch(10)
        probe.leave()
        device.launch(2)  # the loss
        probe.enter(BACKWARD)
        device.launch(20)
        probe.leave()
        device.launch(3)  # clipping
        probe.enter(OPTIMIZER)
        device.launch(5)
        probe.leave()
        probe.end_step(samples=1)
    synchronised = device.synchronisations
    probe.end_block()
    table = probe.take()
    assert len(table) == 3 and synchronised == 1
    per_step = {phase: round(float(table.device_ns(phase)[-1]) / MS) for phase in ALL_PHASES}
    assert per_step[Phase.FORWARD] == 12 and per_step[Phase.BACKWARD] == 20 and per_step[Phase.OPTIMIZER] == 8
    total = np.sum([table.phase_ns(phase) for phase in ALL_PHASES], axis=0)
    assert total == pytest.approx(table.wall_ns, abs=2)


def test_an_own_loop_on_a_device_records_its_clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    monkeypatch.setattr(marked, "event_source", lambda *_: device)
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in range(8):
            with loop.step(samples=2), loop.forward():
                device.launch(30)
    result = loop.run.results[0]
    assert len(result.steps[0]) == 7  # the first step showed which device it is
    assert result.provenance["device_clock"] == "cuda_event"
    assert result.steps[0].steady.columns["device_forward_ns"] == pytest.approx(30 * MS, rel=0.01)
    assert result.steps[0].get("device_backward_ns") is None
    assert result.value("measured_wall_s") == pytest.approx(result.steps[0].steady.wall_ns.sum() / 1e9, rel=0.005)
    assert result.value("first_step_s") is None


def table_of(times_ns: list[int]) -> StepTable:
    return StepTable({"wall_ns": times_ns, "samples": [1] * len(times_ns), "warmup": [False] * len(times_ns)})


def test_a_transient_over_several_parts_is_cut_and_a_level_series_is_not() -> None:
    falling = [table_of([900] * 10), table_of([800] * 10), table_of([100, 101] * 100)]
    parts, steady, _ = cut_transient(falling)
    assert [int(part.columns["warmup"].sum()) for part in parts] == [10, 10, 0] and steady
    level, steady, _ = cut_transient([table_of([100, 101, 102, 103] * 25)])
    assert int(level[0].columns["warmup"].sum()) == 0 and steady


def test_a_series_that_never_levels_is_said_to_be_unsteady() -> None:
    parts, steady, _ = cut_transient([table_of([1000 - number for number in range(200)])])
    assert not steady and int(parts[0].columns["warmup"].sum()) == 0


def test_a_block_does_not_begin_inside_a_capture() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0)
    assert not probe.capturing  # no device, no graph
    probe.use_events(device)
    probe.end_block()
    device.captures = True
    probe.enter(FORWARD)  # the mark that would begin a block, and with it a synchronisation
    probe.leave()
    assert probe.capturing and not probe.running
    device.captures = False
    probe.enter(FORWARD)
    assert probe.running and not probe.capturing


def test_an_own_loop_that_captures_a_step_is_left_alone_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    monkeypatch.setattr(marked, "event_source", lambda *_: device)
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for number in range(12):
            device.captures = number in (2, 3)  # the first steps are those that end a block each
            with loop.step(samples=2), loop.forward():
                host.spend(1) if device.captures else device.launch(30)
            device.captures = False
    result = loop.run.results[0]
    assert len(result.steps[0]) == 11 and not [gap for gap in result.gaps if "capture" in gap.why]
    times = result.steps[0].columns["device_forward_ns"] / MS
    assert sorted(np.round(times).tolist()) == [0, 0, *[30] * 9]


def test_an_own_loop_whose_first_step_is_a_capture_asks_for_the_device_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = HostClock()
    device = SimulatedDevice(host)

    def events(*_: object) -> SimulatedDevice:
        assert not device.captures  # finding the events out records and synchronises, which would break the capture
        return device

    monkeypatch.setattr(marked, "event_source", events)
    monkeypatch.setattr(marked, "captures", lambda _: device.captures)
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for number in range(8):
            device.captures = number == 0
            with loop.step(samples=2), loop.forward():
                host.spend(1) if device.captures else device.launch(30)
    result = loop.run.results[0]
    assert result.provenance["device_clock"] == "cuda_event"
    assert len(result.steps[0]) == 6  # the capture, and the step after it that showed the device
    assert result.steps[0].columns["device_forward_ns"] == pytest.approx(30 * MS, rel=0.01)
