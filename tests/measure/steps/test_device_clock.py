"""The events of a step lie on one stream, whatever is the current one meanwhile; test_probe.py looks at the rest."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from perf_diagnostics.measure.steps.device_clock import DeviceClock, DeviceStep, TorchEvents, event_source
from tests.measure.simulated_device import HostClock, SimulatedDevice

LATE = "a copy's stream that is still at work"


class Event:
    """Complete at once, but for those on the copy's stream; it refuses what c10/cuda/CUDAEvent.h refuses, in its words.

    A stream is named ``1:late`` by its device; one without a number is on the first.
    """

    recorded: ClassVar[list[Event]] = []

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self.timing = enable_timing
        self.on = ""
        self.device: int | None = None

    def record(self, stream: str) -> None:
        device = int(stream.partition(":")[0]) if ":" in stream else 0
        if self.device not in (None, device):
            raise RuntimeError(f"Event device {self.device} does not match recording stream's device {device}.")
        self.on, self.device = stream, device
        self.recorded.append(self)

    def query(self) -> bool:
        return self.on != LATE

    def synchronize(self) -> None:
        assert self.query(), "the loop was held up by a stream that is not its own"

    def elapsed_time(self, end_event: Event) -> float:
        if not (self.timing and end_event.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.device is None or end_event.device is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        if self.device != end_event.device:
            raise RuntimeError("CUDA error: invalid resource handle")
        return 1.0


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The current stream of a pretended device, in a list of one."""
    stream = ["the loop's"]
    Event.recorded = []

    def current_stream(device: torch.device | None = None) -> str:
        """Of that device, not of the current one, which is the first."""
        index = 0 if device is None or device.index is None else device.index
        return f"{index}:{stream[0]}" if index else stream[0]

    monkeypatch.setattr(torch.cuda, "current_stream", current_stream)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return stream


def clock_on(rows: list[DeviceStep], device: str = "cuda:0") -> DeviceClock:
    ticks = iter(range(0, 10**12, 10**6))
    return DeviceClock(TorchEvents(torch.device(device)), lambda: next(ticks), rows.append)


def test_a_loader_that_copies_ahead_on_a_stream_of_its_own_neither_waits_nor_breaks_a_step(current: list[str]) -> None:
    rows: list[DeviceStep] = []
    clock = clock_on(rows)
    clock.open_block()
    for _ in range(3):
        clock.border()
        current[0] = LATE  # with torch.cuda.stream(copies): batch.to(device, non_blocking=True)
        clock.border()
        clock.border()
        current[0] = "the loop's"
        clock.border()
        clock.end_step(0, (0, 1, 0, 2))
    clock.close_block()
    assert {event.on for event in Event.recorded} == {"the loop's"}
    assert [row.phases_ns[:3] for row in rows] == [[2e6, 1e6, 1e6]] * 3  # four stretches of 1 ms, two of them data_wait


def test_a_loop_inside_a_stream_of_its_own_is_timed_there_from_its_second_step_on(current: list[str]) -> None:
    rows: list[DeviceStep] = []
    clock = clock_on(rows)
    clock.open_block()
    current[0] = "another"  # with torch.cuda.stream(another): for batch in loader: …
    streams: list[Any] = []
    for _ in range(2):
        clock.border()
        streams.append(Event.recorded[-1].on)
        clock.end_step(0, (0,))
    assert streams == ["the loop's", "another"]
    clock.close_block()
    assert len(rows) == 2


def test_a_model_on_another_than_the_current_device_is_timed_on_its_own(current: list[str]) -> None:
    rows: list[DeviceStep] = []
    clock = clock_on(rows, "cuda:1")
    for _ in range(2):  # events of the first block are recorded again in the second
        clock.open_block()
        for _ in range(4):
            clock.border()
            clock.border()
            clock.end_step(0, (0, 1))
        clock.close_block()
    assert {event.on for event in Event.recorded} == {"1:the loop's"}
    assert len(Event.recorded) > len(set(map(id, Event.recorded)))
    assert [row.phases_ns[:2] for row in rows] == [[1e6, 1e6]] * 8


def test_reading_a_blocks_events_is_no_time_of_the_blocks() -> None:
    """Thirty events of 2 µs each, as CUDA takes; the device's clock and the host's still agree."""
    host = HostClock()
    device = SimulatedDevice(host, reading_ms=0.002)
    rows: list[DeviceStep] = []
    clock = DeviceClock(device, host, rows.append)
    clock.open_block()
    began_ns = host()
    for _ in range(30):
        device.launch(10, enqueue_ms=0)
        clock.border()
        clock.end_step(host(), (0,))
    assert clock.close_block() - began_ns == 300_000_000
    assert clock.drifts == [0.0]
    assert host() - began_ns > 300_000_000  # they were read, though
    assert len(rows) == 30


def test_where_there_are_no_timing_events_no_stream_is_asked_for() -> None:
    source = event_source(torch.device("meta"), lambda: 5)
    assert source is None or source.kind == "synchronised"
