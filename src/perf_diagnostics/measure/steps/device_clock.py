"""Times phases on an accelerator's own stream, with events that are read only when they are already complete.

At every phase border the probe asks for one event, on the stream that was current when the step began: a loader that
copies ahead on a stream of its own is inside one while it does. A step's events wait in a ring
(:data:`RING_STEPS` sets) until the device has passed the last of them; only then are the times between
*neighbouring* events read, because an event's float32 milliseconds lose microseconds against a far base. Nothing
waits for the device inside a step, unless the ring is full: then the oldest set is waited for and counted in
``forced_syncs``. The borders of a block of steps are the only places that synchronise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol

from perf_diagnostics.records import ALL_PHASES

#: Steps whose events may be in flight. The host rarely leads by more than the driver's launch queue, about a thousand
#: kernels; 64 steps cover that even for steps of a few dozen launches.
RING_STEPS = 64

#: A synchronisation returns some tens of microseconds late; over a shorter block that would look like drift.
_DRIFT_WINDOW_NS = 100_000_000

_PHASES = len(ALL_PHASES)
_NS_PER_MS = 1e6


class Event(Protocol):
    """A timing event that has been recorded on a stream (the part of ``torch.cuda.Event`` that is used here)."""

    def query(self) -> bool:
        """Whether the device has passed the event."""

    def elapsed_time(self, end_event: Any, /) -> float:
        """Milliseconds on the device from this event to ``end_event``; both must have completed."""

    def synchronize(self) -> None:
        """Wait until the device has passed the event."""


class EventSource(Protocol):
    """Where events come from: one stream of a device."""

    kind: str

    def choose_stream(self) -> None:
        """From now on record on the stream that is the current one at this moment."""

    def record(self) -> Event:
        """A new event, recorded now."""

    def synchronize(self) -> None:
        """Wait for everything on the device."""

    def recycle(self, event: Any) -> None:
        """The event's time has been read; it may be recorded again."""

    def capturing(self) -> bool:
        """Whether what is queued now goes into a graph; the device must then be asked for nothing."""


@dataclass
class DeviceStep:
    """What the device's clock says about one step; all times in ns, device phases in :data:`ALL_PHASES` order."""

    phases_ns: list[float]
    starved: bool | None
    lead_ns: float | None
    borders: int
    borders_idle: int


@dataclass
class _Pending:
    """The events of one step: ``events[i]`` and ``events[i + 1]`` enclose a stretch of phase ``labels[i]``."""

    first: Event
    host_end_ns: int = 0
    starved: bool | None = None
    borders: int = 0
    borders_idle: int = 0
    labels: Sequence[int] = ()
    events: list[Event] = field(default_factory=list)
    #: Of a long step the event that it began with; then ``first`` is that of the last border that was read before the
    #: step ended, ``folded_ns`` the time up to there, and ``folded_phases_ns`` that by phase.
    begun: Event | None = None
    folded_ns: float = 0.0
    folded_phases_ns: Sequence[float] = ()


class DeviceClock:
    """Device time per phase, starvation, host lead and idle borders, step by step.

    Resolved steps are handed to ``sink`` in their order; each exactly once, at the latest when their block closes.
    """

    def __init__(self, source: EventSource, clock: Callable[[], int], sink: Callable[[DeviceStep], None]) -> None:
        self._source = source
        self._clock = clock
        self._sink = sink
        self._ring: deque[_Pending] = deque()
        self._current: _Pending | None = None
        self._previous_end: Event | None = None
        self._last: Event | None = None
        self._anchor: tuple[Event, int] | None = None
        self._since_anchor_ns = 0.0
        self.forced_syncs = 0
        self.drifts: list[float] = []

    @property
    def kind(self) -> str:
        return self._source.kind

    @property
    def capturing(self) -> bool:
        """Whether a graph is being captured: nothing may be synchronised, recorded or asked for now."""
        return self._source.capturing()

    def open_block(self) -> None:
        """Synchronise and pin the device's time line to the host's, before the first step of a block."""
        self._anchor = self._synchronised_event()
        self._since_anchor_ns = 0.0
        self._previous_end = None
        self._last = self._anchor[0]
        self._current = _Pending(first=self._last)

    def close_block(self) -> int:
        """Synchronise after the last step of a block, resolve what is waiting, and see how far the clocks drifted.

        Returns the host's time, in ns, at which the device had done all of the block's work.
        """
        event, now = self._synchronised_event()
        if self._anchor is not None and self._current is not None:
            step = self._current
            device_ns = self._since_anchor_ns + step.folded_ns + step.first.elapsed_time(event) * _NS_PER_MS
            host_ns = now - self._anchor[1]
            if host_ns >= _DRIFT_WINDOW_NS:
                self.drifts.append((device_ns - host_ns) / host_ns)
        self._current = None
        return now

    def _synchronised_event(self) -> tuple[Event, int]:
        self._source.synchronize()
        self._source.choose_stream()
        event = self._source.record()
        event.synchronize()
        now = self._clock()
        # Only now, for reading a ring of events takes up to a millisecond, which is no time of the block's.
        self._resolve(everything=True)
        return event, now

    def border(self) -> None:
        """A stretch of some phase ends for the host; costs one record and one query."""
        step = self._current
        if step is None or self._last is None:
            raise RuntimeError("DeviceClock.border() was called outside a block; call open_block() first.")
        if self._source.capturing():
            # What is captured runs later, and a query or an event of ours would break the capture: no time passes.
            step.events.append(self._last)
            return
        step.borders += 1
        step.borders_idle += self._last.query()
        event = self._source.record()
        step.events.append(event)
        self._last = event

    def fold(self, borders: int) -> list[float] | None:
        """Read the first borders of the step that is under way; their events are free again.

        Returns:
            The device's time in ns before each of them; None where it has not come so far, or must not be asked.
        """
        step = self._current
        if step is None or self._source.capturing() or not 0 < borders < len(step.events):
            return None
        gone = [step.first, *step.events[:borders]]
        if not (step.first.query() and gone[-1].query()):
            return None
        took_ns = [before.elapsed_time(event) * _NS_PER_MS for before, event in pairwise(gone)]
        # The step's own first event is also the last one of the step before, which may have to be read yet.
        keep = [step.begun or step.first, (self._anchor or (None,))[0]]
        for event, following in pairwise(gone):
            if event is not following and all(event is not one for one in keep):
                self._source.recycle(event)
        step.begun, step.first = step.begun or step.first, gone[-1]
        step.folded_ns += sum(took_ns)
        del step.events[:borders]
        return took_ns

    def end_step(self, host_end_ns: int, labels: Sequence[int], folded_ns: Sequence[float] = ()) -> None:
        """The last border of a step has been recorded; the next step begins at its event.

        Args:
            host_end_ns: host time at that border.
            labels: the phase of the stretch before each of the step's borders, as indices into ALL_PHASES.
            folded_ns: by phase, the time of those borders that were read by :meth:`fold`.
        """
        step = self._current
        if step is None or not step.events:
            raise RuntimeError("DeviceClock.end_step() needs at least one border in the step.")
        step.labels = labels
        step.folded_phases_ns = folded_ns
        step.host_end_ns = host_end_ns
        capturing = self._source.capturing()
        if self._previous_end is not None and not capturing:
            step.starved = self._previous_end.query()
        self._previous_end = step.events[-1]
        # Events of two streams complete in any order, and reading one that has not raises: so a step has one stream.
        if not capturing:
            self._source.choose_stream()
        self._ring.append(step)
        self._current = _Pending(first=step.events[-1])
        if not capturing:
            self._resolve(everything=False)

    def _resolve(self, *, everything: bool) -> None:
        """Read the steps whose last event has completed; the newest one stays, for its end is the next one's start."""
        keep = 0 if everything else 1
        while len(self._ring) > keep:
            step = self._ring[0]
            if not step.events[-1].query():
                if len(self._ring) <= RING_STEPS and not everything:
                    return
                self.forced_syncs += not everything
                step.events[-1].synchronize()
            self._ring.popleft()
            self._sink(self._read(step))

    def _read(self, step: _Pending) -> DeviceStep:
        phases_ns = list(step.folded_phases_ns) or [0.0] * _PHASES
        self._since_anchor_ns += step.folded_ns
        before = step.first
        for label, event in zip(step.labels, step.events, strict=True):
            elapsed_ns = before.elapsed_time(event) * _NS_PER_MS
            phases_ns[label] += elapsed_ns
            self._since_anchor_ns += elapsed_ns
            before = event
        lead_ns = None
        if self._anchor is not None:
            lead_ns = self._anchor[1] + self._since_anchor_ns - step.host_end_ns
        # The step's last event is the next one's first, so only the events before it are free again; one that stands
        # for several borders (of a capture) is free once.
        free = (step.first, *step.events) if step.begun is None else (step.begun, step.first, *step.events)
        for event, following in pairwise(free):
            if event is not following and event is not (self._anchor or (None,))[0]:
                self._source.recycle(event)
        return DeviceStep(phases_ns, step.starved, lead_ns, step.borders, step.borders_idle)


class _Pool:
    """Events that have been read, to be recorded again: creating one costs more than recording it."""

    def __init__(self, create: Callable[[], Any]) -> None:
        self._create = create
        self._free: list[Any] = []

    def take(self) -> Any:
        return self._free.pop() if self._free else self._create()

    def give(self, event: Any) -> None:
        self._free.append(event)


class TorchEvents:
    """Timing events of a torch device: ``torch.cuda.Event`` on CUDA and ROCm, ``torch.Event`` elsewhere."""

    def __init__(self, device: Any) -> None:
        import torch

        self._device = device
        self._torch = torch
        if device.type == "cuda":
            self.kind = "cuda_event"
            make_event: Any = torch.cuda.Event
            self._pool = _Pool(lambda: make_event(enable_timing=True))
        else:
            self.kind = "device_event"
            make_event = torch.Event
            self._pool = _Pool(lambda: make_event(device=device, enable_timing=True))
        self._stream: Any = None

    def choose_stream(self) -> None:
        streams = self._torch.cuda if self.kind == "cuda_event" else self._torch.accelerator
        self._stream = streams.current_stream(self._device)

    def record(self) -> Event:
        if self._stream is None:
            self.choose_stream()
        event = self._pool.take()
        event.record(self._stream)
        timed: Event = event
        return timed

    def synchronize(self) -> None:
        if self.kind == "cuda_event":
            self._torch.cuda.synchronize(self._device)
        else:
            self._torch.accelerator.synchronize(self._device)

    def recycle(self, event: Any) -> None:
        self._pool.give(event)

    def capturing(self) -> bool:
        return self.kind == "cuda_event" and bool(self._torch.cuda.is_current_stream_capturing())


class HostTimeEvents:
    """For devices without timing events: every record waits for the device and reads the host's clock.

    That removes the overlap of host and device, so the record says ``synchronised`` and so do reports.
    """

    kind = "synchronised"

    def __init__(self, synchronize: Callable[[], None], clock: Callable[[], int]) -> None:
        self._synchronize = synchronize
        self._clock = clock

    def choose_stream(self) -> None:
        """Every record waits for all of them."""

    def record(self) -> Event:
        self._synchronize()
        return _Instant(self._clock())

    def synchronize(self) -> None:
        self._synchronize()

    def recycle(self, event: Any) -> None:
        """An instant holds nothing worth keeping."""

    def capturing(self) -> bool:
        return False


@dataclass(frozen=True)
class _Instant:
    at_ns: int

    def query(self) -> bool:
        return True

    def elapsed_time(self, end_event: _Instant, /) -> float:
        return (end_event.at_ns - self.at_ns) / _NS_PER_MS

    def synchronize(self) -> None:
        """Recorded after a synchronisation: nothing is left to wait for."""


def captures(device: Any) -> bool:
    """Whether a graph is being captured on this ``torch.device``: finding its events out would break the capture."""
    if device.type != "cuda":
        return False
    import torch

    return bool(torch.cuda.is_current_stream_capturing())


def event_source(device: Any, clock: Callable[[], int]) -> EventSource | None:
    """The best event source of a ``torch.device``: its own timing events, else synchronised host time; None for CPU.

    Whether a back end has timing events is found out by recording one, not from a list of names.
    """
    if device.type == "cpu":
        return None
    import torch

    source = TorchEvents(device)
    try:
        first = source.record()
        second = source.record()
        source.synchronize()
        first.elapsed_time(second)
    except (RuntimeError, NotImplementedError, TypeError, ValueError, AttributeError):
        if hasattr(torch, "accelerator"):
            return HostTimeEvents(lambda: torch.accelerator.synchronize(device), clock)
        return HostTimeEvents(getattr(torch, device.type).synchronize, clock)
    return source
