"""Cuts the wall time of a training loop into steps and phases, on the host's clock and on the device's.

::

    probe.start()
    while training:
        with probe.data_wait(): batch = next(batches)
        with probe.transfer():  batch = move(batch)
        with probe.forward():   loss = model(batch)
        with probe.backward():  loss.backward()
        with probe.optimizer(): optimizer.step()
        probe.end_step(samples=len(batch))
    table = probe.stop()

Spans may nest (an optimizer that calls the forward in a closure): time belongs to the innermost one only. What lies in
no span is ``other``. A span costs two clock reads; nothing is computed, written or waited for inside a step.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.device_clock import DeviceClock, DeviceStep, EventSource
from perf_diagnostics.records import ALL_PHASES, MEASURED_PHASES, Phase, StepTable

_INDEX = {phase: index for index, phase in enumerate(ALL_PHASES)}
_DATA_WAIT = _INDEX[Phase.DATA_WAIT]
_OTHER = _INDEX[Phase.OTHER]

#: The int64 columns of a step in the order in which they are appended; -1 stands for "not given" until Probe.take().
_ROW = (
    "start_ns",
    "wall_ns",
    *(f"host_{phase}_ns" for phase in MEASURED_PHASES),
    "samples",
    "tokens",
    "padding_tokens",
    "warmup",
    "epoch",
    "block",
    "data_wait_cpu_ns",
    "gc_ns",
)
_OPTIONAL = ("tokens", "padding_tokens")
_DEVICE_ROW = len(ALL_PHASES) + 4


class _Span:
    """One phase's context manager; made once, entered at every step."""

    __slots__ = ("_index", "_probe")

    def __init__(self, probe: Probe, phase: Phase) -> None:
        self._probe = probe
        self._index = _INDEX[phase]

    def __enter__(self) -> None:
        self._probe._enter(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._probe._leave()


class Probe:
    """Collects one row a step; see the module's text for the loop it sits in.

    Args:
        clock: host clock in ns; must never run backwards.
        events: the device's event source, or None where the host's clock is the device's (CPU).
        thread_cpu: CPU time of the calling thread in ns, read around data_wait only.
    """

    _spent: list[int]
    _stack: list[int]
    _phase: int
    _last: int
    _step_start: int
    _step_epoch: int
    _waited: bool
    _wait_cpu_ns: int

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        events: EventSource | None = None,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._clock = clock
        self._thread_cpu = thread_cpu
        self._rows = array("q")
        self._losses: list[Any] = []
        self._device_rows = array("d")
        self._device = None if events is None else DeviceClock(events, clock, self._add_device_step)
        self._spans = {phase: _Span(self, phase) for phase in MEASURED_PHASES}
        self._origin: int | None = None
        self._running = False
        self._block = -1
        self.blocks_wall_ns: list[int] = []
        self.epoch = 0
        self.warmup = True
        self._gc_started = 0
        self._gc_ns = 0
        self._block_start = 0
        self._wait_cpu_start = 0
        self._begin_step(0)

    # -- the spans of a step

    def data_wait(self) -> _Span:
        """The host waits for the next batch."""
        return self._spans[Phase.DATA_WAIT]

    def transfer(self) -> _Span:
        """Host-to-device copies."""
        return self._spans[Phase.TRANSFER]

    def forward(self) -> _Span:
        """Model and loss."""
        return self._spans[Phase.FORWARD]

    def backward(self) -> _Span:
        """Gradients."""
        return self._spans[Phase.BACKWARD]

    def optimizer(self) -> _Span:
        """Unscaling, clipping, step, scheduler, zero_grad."""
        return self._spans[Phase.OPTIMIZER]

    # -- blocks

    @property
    def device_clock(self) -> str:
        """What the device's times come from: ``host`` on a CPU, else the event source's kind."""
        return "host" if self._device is None else self._device.kind

    @property
    def forced_syncs(self) -> int | None:
        return None if self._device is None else self._device.forced_syncs

    @property
    def clock_drift(self) -> float | None:
        """Largest disagreement of host and device clock over a block, as a share of it; None without a device."""
        if self._device is None or not self._device.drifts:
            return None
        return max(self._device.drifts, key=abs)

    def start(self) -> None:
        """Begin a block of steps: synchronise the device once, then start the clock."""
        if self._running:
            raise RuntimeError("Probe.start() was called twice without stop().")
        if self._device is not None:
            self._device.open_block()
        gc.callbacks.append(self._on_gc)
        self._block += 1
        self._running = True
        now = self._clock()
        if self._origin is None:
            self._origin = now
        self._block_start = now
        self._gc_ns = 0
        self._begin_step(now)

    def end_block(self) -> None:
        """End a block after a whole step; the time until the next :meth:`start` belongs to no step."""
        if not self._running:
            raise RuntimeError("Probe.end_block() was called without start().")
        end = self._last if self._device is None else self._device.close_block()
        self.blocks_wall_ns.append(end - self._block_start)
        self._running = False
        gc.callbacks.remove(self._on_gc)

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        """End the step here. ``loss`` may be a device tensor; it is not read before the block has ended."""
        now = self._clock()
        spent = self._spent
        spent[self._phase] += now - self._last
        self._last = now
        if self._device is not None:
            self._device.border(self._phase)
            self._device.end_step(now)
        start = self._step_start
        self._rows.extend(
            (
                start - (self._origin or 0),
                now - start,
                *spent[:_OTHER],
                samples,
                -1 if tokens is None else tokens,
                -1 if padding_tokens is None else padding_tokens,
                self.warmup,
                self._step_epoch,
                self._block,
                self._wait_cpu_ns,
                self._gc_ns,
            )
        )
        self._losses.append(loss)
        self._gc_ns = 0
        self._begin_step(now)

    def take(self) -> StepTable:
        """The steps since the last take, as a table; call it between blocks. Device scalars are read here."""
        if self._running:
            raise RuntimeError("Probe.take() inside a block would wait for the device; call end_block() first.")
        width = len(_ROW)
        rows = np.frombuffer(self._rows, dtype=np.int64).reshape(-1, width) if self._rows else np.empty((0, width))
        columns: dict[str, NDArray[Any]] = {name: rows[:, i].copy() for i, name in enumerate(_ROW)}
        for name in _OPTIONAL:
            if (columns[name] < 0).any():
                del columns[name]
        losses = np.array([float("nan") if loss is None else float(loss) for loss in self._losses], dtype=np.float64)
        if not all(loss is None for loss in self._losses):
            columns["loss"] = losses
        if self._device is not None:
            columns |= self._device_columns()
            # The host may be a whole queue ahead of the device, so a step has ended when the device has ended it.
            columns["host_wall_ns"] = columns["wall_ns"]
            columns["wall_ns"] = np.rint(sum(columns[f"device_{phase}_ns"] for phase in ALL_PHASES))
        del rows
        self._rows = array("q")
        self._losses = []
        self._device_rows = array("d")
        return StepTable(columns)

    # -- inside

    def _begin_step(self, now: int) -> None:
        self._spent = [0] * len(ALL_PHASES)
        self._stack = []
        self._phase = _OTHER
        self._last = now
        self._step_start = now
        self._step_epoch = self.epoch
        self._waited = False
        self._wait_cpu_ns = 0

    def _enter(self, index: int) -> None:
        self._stack.append(self._phase)
        self._switch(index)
        if index == _DATA_WAIT:
            self._wait_cpu_start = self._thread_cpu()

    def _leave(self) -> None:
        if self._phase == _DATA_WAIT:
            self._wait_cpu_ns += self._thread_cpu() - self._wait_cpu_start
            if not self._waited:
                # The step belongs to the epoch of its first batch, which a restart inside this wait may have begun.
                self._waited = True
                self._step_epoch = self.epoch
        self._switch(self._stack.pop())

    def _switch(self, index: int) -> None:
        now = self._clock()
        self._spent[self._phase] += now - self._last
        self._last = now
        if self._device is not None:
            self._device.border(self._phase)
        self._phase = index

    def _on_gc(self, moment: str, _info: dict[str, int]) -> None:
        if moment == "start":
            self._gc_started = self._clock()
        else:
            self._gc_ns += self._clock() - self._gc_started

    def _add_device_step(self, step: DeviceStep) -> None:
        nan = float("nan")
        self._device_rows.extend(
            (
                *step.phases_ns,
                nan if step.starved is None else float(step.starved),
                nan if step.lead_ns is None else step.lead_ns,
                float(step.borders),
                float(step.borders_idle),
            )
        )

    def _device_columns(self) -> dict[str, NDArray[Any]]:
        rows = np.frombuffer(self._device_rows, dtype=np.float64).reshape(-1, _DEVICE_ROW)
        names = (*(f"device_{phase}_ns" for phase in ALL_PHASES), "starved", "host_lead_ns", "borders", "borders_idle")
        return {name: rows[:, i].copy() for i, name in enumerate(names)}
