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
no span is ``other``. A span (:mod:`.spans`) writes two marks (:mod:`.tape`); nothing is computed or waited for inside a
step.
"""

from __future__ import annotations

import gc
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.measure.steps.beside_steps import QUICK_NS, CompiledGraphs, MemoryReading, SpacedMemory
from perf_diagnostics.measure.steps.columns import (
    UNTOLD,
    DeviceRows,
    ToldRows,
    cpu_columns,
    device_columns,
    spread,
    told_columns,
)
from perf_diagnostics.measure.steps.device_clock import DeviceClock, DeviceStep, EventSource
from perf_diagnostics.measure.steps.device_losses import DeviceLosses
from perf_diagnostics.measure.steps.folding import Folding
from perf_diagnostics.measure.steps.moments import phases_at
from perf_diagnostics.measure.steps.reading import TapeSteps, read_tape
from perf_diagnostics.measure.steps.spans import AWAKE_NS, DOUBT_NS, Span, Wait, span
from perf_diagnostics.measure.steps.tape import (
    AT,
    BACKWARD,
    END,
    FORWARD,
    OPTIMIZER,
    START,
    TRANSFER,
    code_of,
    labels_of,
    new_tape,
    time_of,
)
from perf_diagnostics.records import ALL_PHASES, MEASURED_PHASES, StepTable

#: So far apart are readings of the CPU clock of a thread that runs without a break, at the ends of quick steps
#: (QUICK_NS); others have one each. A reading costs as much as all marks of a step.
SPACING_NS = 10_000_000

_END = AT[END]

#: Nothing is due before this time.
_NEVER_NS = 2**62

#: So many losses of a host's loop wait to be read. Each pins a piece of the heap between free ones: a healthy
#: training whose losses were kept for 240 steps grew by 0.4 MB a step.
MOST_LOSSES = 16


class Probe:
    """Collects one row a step; see the module's text for the loop it sits in.

    Args:
        clock: host clock in ns; must never run backwards.
        events: the device's event source, or None where the host's clock is the device's (CPU).
        thread_cpu: CPU time of the calling thread in ns, read around data_wait and at the ends of steps: in each where
            the thread sleeps now and then, or that is long, else every :data:`SPACING_NS`.
        memory: reads the memory in use, by the names in :data:`MEMORY_COLUMNS` or as a tuple in their order, NaN for
            what it has not; called at the ends of steps that lie 50 ms apart or more. It must not raise.
    """

    #: In slots, to touch as little memory as can be inside a step; LoopProbe has a dictionary beside them.
    __slots__ = (
        "_backward",
        "_block",
        "_block_start",
        "_clock",
        "_cpu",
        "_cpu_ns",
        "_data_wait",
        "_device",
        "_device_losses",
        "_device_rows",
        "_doubted_until_ns",
        "_ended_ns",
        "_folds",
        "_forward",
        "_gc_ns",
        "_gc_started",
        "_graphs",
        "_had_loss",
        "_last_told",
        "_loss_steps",
        "_loss_values",
        "_losses",
        "_mark",
        "_marks",
        "_memory",
        "_optimizer",
        "_origin",
        "_pauses",
        "_quiet_until_ns",
        "_read_ns",
        "_reads_cpu",
        "_running",
        "_same_epoch",
        "_same_samples",
        "_seen",
        "_step_cpu",
        "_step_epoch",
        "_step_mark",
        "_steps",
        "_thread_cpu",
        "_told",
        "_transfer",
        "_trusted_until_ns",
        "_wait_cpu_ns",
        "_waited",
        "blocks_wall_ns",
        "epoch",
        "warmup",
    )
    _bridged = False
    _recomputes = False
    #: Whether the CPU clock of a thread that runs without a break is read now and then only.
    _spaced = True

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
        self._marks = new_tape()
        self._mark = self._marks.append
        #: What marks add up to that were taken off the tape, in the order of their places there.
        self._folds: list[Folding] = []
        # What a step is told is kept where it changes, what is rarely there by the step's number.
        self._told = ToldRows()
        self._was_told(UNTOLD)
        #: One after another a step's number, what its waits' CPU time lacks of their wall time, and its reading.
        self._cpu = array("q")
        self._pauses: dict[int, int] = {}
        self._losses: dict[int, Any] = {}
        self._device_losses = DeviceLosses()
        self._loss_steps, self._loss_values = array("q"), array("d")
        self._steps = 0
        self._step_mark = 0
        self._had_loss = False
        self._graphs = CompiledGraphs()
        self._memory = None if memory is None else SpacedMemory(memory)
        self._device_rows = DeviceRows()
        self._device = None if events is None else DeviceClock(events, clock, self._add_device_step)
        mark = self._mark if self._device is None else self._mark_both_clocks
        self._data_wait: Span = Wait(mark, clock, self)
        self._transfer, self._forward, self._backward, self._optimizer = (
            span(mark, clock, code) for code in (TRANSFER, FORWARD, BACKWARD, OPTIMIZER)
        )
        self._origin: int | None = None
        self._running = False
        self._block = -1
        self.blocks_wall_ns: list[int] = []
        self.epoch = 0
        self.warmup = True
        self._seen = 0
        self._step_epoch = 0
        self._waited = False
        #: What goes into the readings for the waits of the step that is under way.
        self._wait_cpu_ns = 0
        #: The last reading of the thread's CPU clock, when it was, and until when none is needed, or some more are.
        self._cpu_ns = 0
        self._read_ns = 0
        self._trusted_until_ns = 0
        self._doubted_until_ns = 0
        #: Until when nothing is due at the end of a quick step: no reading of a clock or of the memory.
        self._quiet_until_ns = 0
        self._ended_ns = 0
        self._reads_cpu = True
        self._gc_started = 0
        self._gc_ns = 0
        self._block_start = 0

    # -- the spans of a step

    def data_wait(self) -> Span:
        """The host waits for the next batch."""
        return self._data_wait

    def transfer(self) -> Span:
        """Host-to-device copies."""
        return self._transfer

    def forward(self) -> Span:
        """Model and loss."""
        return self._forward

    def backward(self) -> Span:
        """Gradients."""
        return self._backward

    def optimizer(self) -> Span:
        """Unscaling, clipping, step, scheduler, zero_grad."""
        return self._optimizer

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
        self._was_told(UNTOLD)
        self._running = True
        self._cpu_ns = self._step_cpu()
        self._gc_ns = 0
        self._begin_step()
        now = self._clock()
        if self._origin is None:
            self._origin = now
        self._block_start = self._ended_ns = self._read_ns = now
        self._trusted_until_ns = now + AWAKE_NS if self._spaced else 0
        self._quiet_until_ns = self._next_due_ns()
        self._mark(now + AT[START])
        self._step_mark = len(self._marks)

    def end_block(self) -> None:
        """End a block after a whole step; the time until the next :meth:`start` belongs to no step."""
        if not self._running:
            raise RuntimeError("Probe.end_block() was called without start().")
        last = self._steps - 1
        if self._spaced and last >= 0 and (not self._cpu or self._cpu[-3] < last):
            # The loop ran from the last step's end to here.
            since_ns = self._clock() - self._ended_ns
            self._cpu.extend((last, 0, max(0, self._read_step_cpu(self._ended_ns) - since_ns)))
        end = time_of(self._marks[-1]) if self._device is None else self._device.close_block()
        self.blocks_wall_ns.append(end - self._block_start)
        self._running = False
        gc.callbacks.remove(self._on_gc)

    def phases_at(self, times_ns: Sequence[int]) -> list[tuple[str, str] | None]:
        """Where moments of the steps since the last take lie, as :func:`.moments.phases_at` says it."""
        how = {"bridged": self._bridged, "recomputes": self._recomputes}
        return phases_at(self._told_marks(), times_ns, folds=self._folds, **how)

    def read_memory_every(self, interval_ns: int) -> None:
        """From now on read the memory at the ends of steps that lie so far apart (0: of every step)."""
        if self._memory is not None:
            self._memory.interval_ns = interval_ns

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> int:
        """End the step here, and give its host time in ns.

        ``loss`` may be a device tensor; with a device's clock it is not read before the block has ended.
        """
        # What most steps need stands here in one piece, and compares numbers one by one: tuples would be shorter, but
        # comparing them is code that lies in no cache by now. What only some steps need is elsewhere.
        clock, mark = self._clock, self._mark
        now = clock()
        mark(now + _END)
        quick = now - self._ended_ns < QUICK_NS
        if now >= self._quiet_until_ns or not quick:
            self._read_beside(now, quick=quick)
        # A training's steps are mostly told the same; warmup and block change between blocks only.
        if (
            samples != self._same_samples
            or self._step_epoch != self._same_epoch
            or not quick
            or tokens is not None
            or padding_tokens is not None
        ):
            self._tell(samples, tokens, padding_tokens, quick=quick)
        if self._gc_ns:
            self._pauses[self._steps] = self._gc_ns
            self._gc_ns = 0
        if loss is not None:
            self._losses[self._steps] = loss
            if len(self._losses) >= MOST_LOSSES:
                self._let_go_of_losses()
        self._steps += 1
        self._step_epoch = self.epoch
        self._waited = False
        self._ended_ns = now
        return now

    def take(self) -> StepTable:
        """The steps since the last take, as a table; call it between blocks. Device scalars are read here."""
        if self._running:
            raise RuntimeError("Probe.take() inside a block would wait for the device; call end_block() first.")
        tape = TapeSteps.of(self._told_marks(), self._folds)
        stretches = read_tape(tape, bridged=self._bridged, recomputes=self._recomputes)
        self._seen |= stretches.seen
        columns: dict[str, NDArray[Any]] = {
            "start_ns": stretches.start_ns - (self._origin or 0),
            "wall_ns": stretches.wall_ns,
            **{f"host_{phase}_ns": stretches.phases_ns[:, i].copy() for i, phase in enumerate(MEASURED_PHASES)},
            "prepare_ns": stretches.prepare_ns,
            # Without bridges a phase is what the loop marks as it, and where its update begins is not known.
            **({"before_update_ns": stretches.before_update_ns} if self._bridged else {}),
            **told_columns(self._told, self._steps),
            "gc_ns": spread(self._pauses, np.zeros(self._steps, dtype=np.int64)),
        }
        waits_ns = columns["host_data_wait_ns"] if self._spaced else None
        columns |= cpu_columns(self._cpu, stretches.wall_ns, waits_ns)
        # Once there was a loss the column stays, or the tables of one trial would not have the same columns.
        self._read_losses()
        self._had_loss = self._had_loss or bool(self._loss_values)
        if self._had_loss:
            columns["loss"] = np.full(self._steps, np.nan)
            columns["loss"][np.array(self._loss_steps)] = self._loss_values
        if self._memory is not None:
            columns |= self._memory.take(self._steps)
        if self._device is not None:
            columns |= device_columns(self._device_rows)
            # The host may be a whole queue ahead of the device, so a step has ended when the device has ended it.
            columns["host_wall_ns"] = columns["wall_ns"]
            columns["wall_ns"] = np.rint(sum(columns[f"device_{phase}_ns"] for phase in ALL_PHASES))
        columns |= self._calls(tape)
        del stretches, tape
        del self._marks[:], self._cpu[:], self._loss_steps[:], self._loss_values[:]
        self._folds.clear()
        self._steps = 0
        self._told, self._pauses, self._device_rows = ToldRows(), {}, DeviceRows()
        self._was_told(UNTOLD)
        return StepTable(columns)

    # -- inside

    def _told_marks(self) -> array[int]:
        """The tape, with what is known of it beside its marks."""
        return self._marks

    def _calls(self, _tape: TapeSteps) -> Mapping[str, NDArray[Any]]:
        """What the steps called, where that is known."""
        return {}

    def _read_beside(self, now: int, *, quick: bool) -> None:
        """The step that ends now is one in whose end something is read beside its time."""
        if self._device is not None:
            self._device.border()
            self._device.end_step(now, *self._labels())
            self._step_mark = len(self._marks)
        if self._reads_cpu and (now >= self._trusted_until_ns or not quick):
            self._cpu.extend((self._steps, self._wait_cpu_ns, self._read_step_cpu(now)))
            self._wait_cpu_ns = 0
        if self._memory is not None and now >= self._memory.due_ns:
            self._memory.read(self._steps, now)
        self._quiet_until_ns = self._next_due_ns()

    def _next_due_ns(self) -> int:
        """When something is to be read again at the end of a step, be it quick or not."""
        if self._device is not None or (self._reads_cpu and not self._spaced):
            return 0
        cpu_ns = self._trusted_until_ns if self._reads_cpu else _NEVER_NS
        return cpu_ns if self._memory is None else min(cpu_ns, self._memory.due_ns)

    def _tell(self, samples: int, tokens: int | None, padding_tokens: int | None, *, quick: bool) -> None:
        """Keep what the step that ends now has been told, if it is something else than what the last one was."""
        last = self._last_told
        told = (
            samples,
            -1 if tokens is None else tokens,
            -1 if padding_tokens is None else padding_tokens,
            self.warmup,
            self._step_epoch,
            self._block,
            last[-1] if last is not UNTOLD and quick else self._graphs(),
        )
        if told != last:
            self._was_told(told)
            self._told.append((self._steps, told))

    def _was_told(self, told: tuple[int, ...]) -> None:
        """The last step was told this; if it is no more than samples and epoch, the next one is compared with these."""
        self._last_told = told
        samples, tokens, padding, _, self._same_epoch, _, _ = told
        self._same_samples = samples if tokens < 0 and padding < 0 else None

    def _begin_step(self) -> None:
        self._step_mark = len(self._marks)
        self._step_epoch = self.epoch
        self._waited = False
        self._wait_cpu_ns = 0

    def _read_losses(self) -> None:
        """Turn the losses that were kept into numbers, and let go of them."""
        for steps, numbers in self._device_losses.take():
            self._loss_values.extend(numbers)
            self._loss_steps.extend(steps)
        values = [float(loss) for loss in self._losses.values()]
        self._loss_values.extend(values)
        self._loss_steps.extend(self._losses)
        self._losses.clear()

    def _let_go_of_losses(self) -> None:
        """Many losses wait: on the host they are read, on a device those of steps that it has done are put together."""
        if self._device is None:
            self._read_losses()
        elif not self._device.capturing:
            self._device_losses.put(self._losses, done=len(self._device_rows))

    def _mark_both_clocks(self, mark: int) -> None:
        """What the spans mark with where there is a device, so that the others need not ask."""
        self._mark(mark)
        if self._device is not None:
            self._device.border()

    def _labels(self) -> tuple[Sequence[int], Sequence[float]]:
        """The phases of the stretches of the step that has just ended, and by phase what was read of it before."""
        codes = bytes(map(code_of, self._marks[self._step_mark :]))
        return labels_of(codes, bridged=self._bridged, recomputes=self._recomputes), ()

    def _on_gc(self, moment: str, _info: dict[str, int]) -> None:
        if moment == "start":
            self._gc_started = self._clock()
        else:
            self._gc_ns += self._clock() - self._gc_started

    def _read_step_cpu(self, now: int) -> int:
        """CPU time of the thread since the last reading, in ns.

        If it ran all the time since, and waited for no batch for long, it is trusted to run on for a while: the steps
        that end until then get their CPU time from the next reading (:func:`.cpu_of_steps`).
        """
        cpu_ns = self._step_cpu()
        used_ns = cpu_ns - self._cpu_ns
        if self._spaced:
            slept = now - self._read_ns - used_ns >= AWAKE_NS
            if slept and self._trusted_until_ns - self._read_ns > AWAKE_NS:
                self._doubted_until_ns = now + DOUBT_NS
            runs = self._trusted_until_ns and not slept
            self._trusted_until_ns = now + (SPACING_NS if runs else AWAKE_NS)
        self._read_ns = now
        self._cpu_ns = cpu_ns
        return used_ns

    def _add_device_step(self, step: DeviceStep) -> None:
        self._device_rows.append(step)
