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
no span is ``other``. A span writes two marks (:mod:`.tape`); nothing is computed or waited for inside a step.
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

from perf_diagnostics.measure.beside_steps import NO_GRAPHS, CompiledGraphs, MemoryReading, SpacedMemory
from perf_diagnostics.measure.device_clock import DeviceClock, DeviceStep, EventSource
from perf_diagnostics.measure.tape import BITS, END, LEAVE, START, labels_of, read_tape
from perf_diagnostics.records import ALL_PHASES, MEASURED_PHASES, Phase, StepTable

#: The int64 columns that most steps share with the step before; -1 stands for "not given" until Probe.take().
_TOLD = ("samples", "tokens", "padding_tokens", "warmup", "epoch", "block", "graphs")
_OPTIONAL = ("tokens", "padding_tokens")
_DEVICE_ROW = len(ALL_PHASES) + 4


class _Span:
    """One phase's context manager; made once, entered at every step."""

    __slots__ = ("_index", "_probe")

    def __init__(self, probe: Probe, phase: Phase) -> None:
        self._probe = probe
        self._index = ALL_PHASES.index(phase)

    def __enter__(self) -> None:
        probe = self._probe
        probe._mark(probe._clock() << BITS | self._index)
        if probe._device is not None:
            probe._device.border()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        probe = self._probe
        probe._mark(probe._clock() << BITS | LEAVE)
        if probe._device is not None:
            probe._device.border()


class _Wait(_Span):
    """The wait for data, around which the thread's CPU time is read as well."""

    __slots__ = ("_cpu_start",)

    def __enter__(self) -> None:
        probe = self._probe
        probe._mark(probe._clock() << BITS | self._index)
        if probe._device is not None:
            probe._device.border()
        self._cpu_start = probe._thread_cpu()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        probe = self._probe
        probe._wait_cpu_ns += probe._thread_cpu() - self._cpu_start
        if not probe._waited:
            # The step belongs to the epoch of its first batch, which a restart inside this wait may have begun.
            probe._waited = True
            probe._step_epoch = probe.epoch
        probe._mark(probe._clock() << BITS | LEAVE)
        if probe._device is not None:
            probe._device.border()


class Probe:
    """Collects one row a step; see the module's text for the loop it sits in.

    Args:
        clock: host clock in ns; must never run backwards.
        events: the device's event source, or None where the host's clock is the device's (CPU).
        thread_cpu: CPU time of the calling thread in ns, read around data_wait and at the ends of steps.
        memory: reads the memory in use, by the names in :data:`MEMORY_COLUMNS` or as a tuple in their order, NaN for
            what it has not; called at the ends of steps that lie 50 ms apart or more. It must not raise.
    """

    _bridged = False
    _recomputes = False

    def __init__(
        self,
        *,
        clock: Callable[[], int] = time.perf_counter_ns,
        events: EventSource | None = None,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
        memory: Callable[[], MemoryReading] | None = None,
    ) -> None:
        self._clock = clock
        self._thread_cpu = self._step_cpu = thread_cpu
        self._marks = array("q")
        self._mark = self._marks.append
        # What a step is told is kept where it changes, what is rarely there by the step's number.
        self._told: list[tuple[int, tuple[int, ...]]] = []
        self._last_told: tuple[int, ...] = ()
        self._cpu = array("q")
        self._pauses: dict[int, int] = {}
        self._losses: dict[int, Any] = {}
        self._steps = 0
        self._step_mark = 0
        self._had_loss = False
        self._graphs = CompiledGraphs()
        self._memory = None if memory is None else SpacedMemory(memory)
        self._device_rows = array("d")
        self._device = None if events is None else DeviceClock(events, clock, self._add_device_step)
        self._spans = {p: (_Wait if p is Phase.DATA_WAIT else _Span)(self, p) for p in MEASURED_PHASES}
        self._origin: int | None = None
        self._running = False
        self._block = -1
        self.blocks_wall_ns: list[int] = []
        self.epoch = 0
        self.warmup = True
        self._seen = 0
        self._step_epoch = 0
        self._waited = False
        self._wait_cpu_ns = 0
        self._cpu_ns = 0
        self._reads_cpu = True
        self._gc_started = 0
        self._gc_ns = 0
        self._block_start = 0

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
        self._cpu_ns = self._step_cpu()
        self._gc_ns = 0
        self._begin_step()
        now = self._clock()
        if self._origin is None:
            self._origin = now
        self._block_start = now
        self._mark(now << BITS | START)
        self._step_mark = len(self._marks)

    def end_block(self) -> None:
        """End a block after a whole step; the time until the next :meth:`start` belongs to no step."""
        if not self._running:
            raise RuntimeError("Probe.end_block() was called without start().")
        end = self._marks[-1] >> BITS if self._device is None else self._device.close_block()
        self.blocks_wall_ns.append(end - self._block_start)
        self._running = False
        gc.callbacks.remove(self._on_gc)

    def read_memory_every(self, interval_ns: int) -> None:
        """From now on read the memory at the ends of steps that lie so far apart (0: of every step)."""
        if self._memory is not None:
            self._memory.interval_ns = interval_ns

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> int:
        """End the step here, and give its host time in ns.

        ``loss`` may be a device tensor; it is not read before the block has ended.
        """
        now = self._clock()
        self._mark(now << BITS | END)
        if self._device is not None:
            self._device.border()
            self._device.end_step(now, self._labels())
        told = (
            samples,
            -1 if tokens is None else tokens,
            -1 if padding_tokens is None else padding_tokens,
            self.warmup,
            self._step_epoch,
            self._block,
            self._graphs(),
        )
        if told != self._last_told:
            self._last_told = told
            self._told.append((self._steps, told))
        if self._reads_cpu:
            cpu_ns = self._step_cpu()
            self._cpu.extend((self._wait_cpu_ns, cpu_ns - self._cpu_ns))
            self._cpu_ns = cpu_ns
            self._wait_cpu_ns = 0
        if self._gc_ns:
            self._pauses[self._steps] = self._gc_ns
            self._gc_ns = 0
        if loss is not None:
            self._losses[self._steps] = loss
        if self._memory is not None and now >= self._memory.due_ns:
            self._memory.read(self._steps, now)
        self._steps += 1
        self._step_mark = len(self._marks)
        self._step_epoch = self.epoch
        self._waited = False
        return now

    def take(self) -> StepTable:
        """The steps since the last take, as a table; call it between blocks. Device scalars are read here."""
        if self._running:
            raise RuntimeError("Probe.take() inside a block would wait for the device; call end_block() first.")
        stretches = read_tape(self._marks, bridged=self._bridged, recomputes=self._recomputes)
        self._seen |= stretches.seen
        columns: dict[str, NDArray[Any]] = {
            "start_ns": stretches.start_ns - (self._origin or 0),
            "wall_ns": stretches.wall_ns,
            **{f"host_{phase}_ns": stretches.phases_ns[:, i].copy() for i, phase in enumerate(MEASURED_PHASES)},
            "prepare_ns": stretches.prepare_ns,
            **self._row_columns(),
        }
        # Once there was a loss the column stays, or the tables of one trial would not have the same columns.
        self._had_loss = self._had_loss or bool(self._losses)
        if self._had_loss:
            columns["loss"] = np.full(self._steps, np.nan)
            for step, loss in self._losses.items():
                columns["loss"][step] = float(loss)
        if self._memory is not None:
            columns |= self._memory.take(self._steps)
        if self._device is not None:
            columns |= self._device_columns()
            # The host may be a whole queue ahead of the device, so a step has ended when the device has ended it.
            columns["host_wall_ns"] = columns["wall_ns"]
            columns["wall_ns"] = np.rint(sum(columns[f"device_{phase}_ns"] for phase in ALL_PHASES))
        del stretches
        del self._marks[:], self._cpu[:], self._device_rows[:]
        self._steps = 0
        self._told, self._last_told, self._pauses, self._losses = [], (), {}, {}
        return StepTable(columns)

    # -- inside

    def _begin_step(self) -> None:
        self._step_mark = len(self._marks)
        self._step_epoch = self.epoch
        self._waited = False
        self._wait_cpu_ns = 0

    def _labels(self) -> tuple[int, ...]:
        """The phases of the stretches of the step that has just ended."""
        codes = bytes(mark & (1 << BITS) - 1 for mark in self._marks[self._step_mark :])
        return labels_of(codes, bridged=self._bridged, recomputes=self._recomputes)

    def _on_gc(self, moment: str, _info: dict[str, int]) -> None:
        if moment == "start":
            self._gc_started = self._clock()
        else:
            self._gc_ns += self._clock() - self._gc_started

    def _row_columns(self) -> dict[str, NDArray[Any]]:
        first = np.array([step for step, _ in self._told], dtype=np.int64)
        told = np.array([values for _, values in self._told], dtype=np.int64).reshape(-1, len(_TOLD))
        rows = np.repeat(told, np.diff(first, append=self._steps), axis=0)
        columns = {name: rows[:, i].copy() for i, name in enumerate(_TOLD)}
        for name in _OPTIONAL:
            if (columns[name] < 0).any():
                del columns[name]
        if (columns["graphs"] == NO_GRAPHS).all():
            del columns["graphs"]
        else:  # before torch's compiler was imported nothing was compiled
            columns["graphs"] = np.maximum(columns["graphs"], 0)
        columns["gc_ns"] = np.zeros(self._steps, dtype=np.int64)
        for step, pause_ns in self._pauses.items():
            columns["gc_ns"][step] = pause_ns
        cpu = np.zeros((self._steps, 2), dtype=np.int64)
        read = np.array(self._cpu, dtype=np.int64).reshape(-1, 2)
        cpu[: len(read)] = read
        columns["data_wait_cpu_ns"], columns["thread_cpu_ns"] = cpu[:, 0].copy(), cpu[:, 1].copy()
        return columns

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
        rows = np.array(self._device_rows, dtype=np.float64).reshape(-1, _DEVICE_ROW)
        names = (*(f"device_{phase}_ns" for phase in ALL_PHASES), "starved", "host_lead_ns", "borders", "borders_idle")
        return {name: rows[:, i].copy() for i, name in enumerate(names)}
