"""The events of a step lie on one stream, whatever is the current one meanwhile; test_probe.py looks at the rest."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
import torch

from perf_diagnostics.measure.steps.device_clock import DeviceClock, DeviceStep, TorchEvents, event_source

LATE = "a copy's stream that is still at work"


class Event:
    """Complete at once, but for those on the copy's stream; CUDA refuses the time of one that is not complete."""

    recorded: ClassVar[list[Event]] = []

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing
        self.on = ""

    def record(self, stream: str) -> None:
        self.on = stream
        self.recorded.append(self)

    def query(self) -> bool:
        return self.on != LATE

    def synchronize(self) -> None:
        assert self.query(), "the loop was held up by a stream that is not its own"

    def elapsed_time(self, end: Event) -> float:
        if not (self.query() and end.query()):
            raise RuntimeError("CUDA error: device not ready")
        return 1.0


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The current stream of a pretended device, in a list of one."""
    stream = ["the loop's"]
    Event.recorded = []
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _device: stream[0])
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch.cuda, "Event", Event)
    return stream


def clock_on(rows: list[DeviceStep]) -> DeviceClock:
    ticks = iter(range(0, 10**12, 10**6))
    return DeviceClock(TorchEvents(torch.device("cuda:0")), lambda: next(ticks), rows.append)


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


def test_where_there_are_no_timing_events_no_stream_is_asked_for() -> None:
    source = event_source(torch.device("meta"), lambda: 5)
    assert source is None or source.kind == "synchronised"
