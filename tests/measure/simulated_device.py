"""An asynchronous accelerator on a fake clock: the host enqueues work in no time, the device works it off later."""

from __future__ import annotations

from dataclasses import dataclass


class HostClock:
    """Host time in ns; it moves when the simulated program says so."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def spend(self, milliseconds: float) -> None:
        self.now_ns += round(milliseconds * 1e6)


@dataclass
class SimulatedEvent:
    device: SimulatedDevice
    at_ns: int

    def query(self) -> bool:
        self.device.must_not_capture()
        return self.device.host.now_ns >= self.at_ns

    def elapsed_time(self, end_event: SimulatedEvent, /) -> float:
        """Refuses, as CUDA does, events of two devices and such as are not complete."""
        if self.device is not end_event.device:
            raise RuntimeError("CUDA error: invalid resource handle")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        self.device.host.spend(self.device.reading_ms)
        return (end_event.at_ns - self.at_ns) / 1e6

    def synchronize(self) -> None:
        self.device.must_not_capture()
        self.device.host.now_ns = max(self.device.host.now_ns, self.at_ns)


class SimulatedDevice:
    """One stream. ``launch`` enqueues work; events complete when the work before them is done.

    ``reading_ms`` is what it takes the host to find out the time between two events.
    """

    kind = "cuda_event"

    def __init__(self, host: HostClock, *, reading_ms: float = 0.0) -> None:
        self.host = host
        self.reading_ms = reading_ms
        self.free_at_ns = 0
        self.synchronisations = 0
        self.recycled = 0
        self.captures = False

    def launch(self, milliseconds: float, *, enqueue_ms: float = 0.01) -> None:
        self.host.spend(enqueue_ms)
        self.free_at_ns = max(self.free_at_ns, self.host.now_ns) + round(milliseconds * 1e6)

    def choose_stream(self) -> None:
        """There is one."""

    def capturing(self) -> bool:
        return self.captures

    def must_not_capture(self) -> None:
        assert not self.captures, "the device was asked for something inside a capture, which breaks it"

    def record(self) -> SimulatedEvent:
        self.must_not_capture()
        return SimulatedEvent(self, max(self.free_at_ns, self.host.now_ns))

    def synchronize(self) -> None:
        self.must_not_capture()
        self.synchronisations += 1
        self.host.now_ns = max(self.host.now_ns, self.free_at_ns)

    def recycle(self, event: SimulatedEvent) -> None:
        self.recycled += 1
