"""A probe for a loop that is not ours: it starts itself, bridges the gaps between phases, and survives lost ends."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.integrations.steps.step_state import NOTHING, UNSURE, StepState
from perf_diagnostics.measure.steps.beside_steps import MemoryReading, SpacedMemory
from perf_diagnostics.measure.steps.calls import read_calls
from perf_diagnostics.measure.steps.device_clock import DeviceClock, EventSource
from perf_diagnostics.measure.steps.folding import Folding
from perf_diagnostics.measure.steps.long_step import MOST_MARKS, LongStep, long_step
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.measure.steps.reading import TapeSteps
from perf_diagnostics.measure.steps.tails import Tails, with_tails
from perf_diagnostics.measure.steps.tape import (
    ABANDON,
    AT,
    BACKWARD,
    BEGUN,
    CALLED,
    DATA_WAIT,
    FOLDED,
    FORWARD,
    GIVE_BACK,
    LEAVE,
    NEXT_BATCH,
    NO_STEPS,
    OPTIMIZER,
    OTHER,
    STEPPED,
    TRAINS,
    TRANSFER,
    code_of,
    labels_of,
    times_and_codes,
)
from perf_diagnostics.records import ALL_PHASES, StepTable

__all__ = ["BACKWARD", "DATA_WAIT", "FORWARD", "OPTIMIZER", "OTHER", "TRAINS", "TRANSFER", "LoopProbe"]


#: Beside the phases in :attr:`LoopProbe.seen`: whether a call of a model was ever seen.
CALLS_SEEN = len(ALL_PHASES)

#: What is written on the tape alone.
_NO_BORDERS = bytes((*CALLED.values(), STEPPED, NEXT_BATCH))


#: So many of the last marks may be of work that the device has not done yet: a launch queue holds a thousand kernels.
_IN_FLIGHT = 4096


def _no_time() -> int:
    return 0


class LoopProbe(Probe):
    """The probe with what an unknown loop needs on top.

    - The first phase that is entered starts the clock: building data and model is no step.
    - With ``bridged`` the stretch between forward and backward counts as forward (the loss), and between backward and
      optimizer as optimizer (unscale, clip); without, both are ``other``.
    - A forward inside a backward (activation checkpointing) is backward.
    - Waits for batches that turn out to be evaluated on, not trained on, can be given back (:meth:`give_back_wait`).

    Inside a step it keeps no more than which phases are open; times are looked at when the block is over.

    Args:
        bridged: as above.
        clock: host clock in ns.
        thread_cpu: CPU time of the calling thread in ns.
        memory: as :class:`Probe` takes it.
    """

    _recomputes = True
    _spaced = False  # here readings belong to marks that are made into a step's end only later

    def __init__(
        self,
        *,
        bridged: bool,
        clock: Callable[[], int] = time.perf_counter_ns,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
        memory: Callable[[], MemoryReading] | None = None,
    ) -> None:
        super().__init__(clock=clock, thread_cpu=thread_cpu, memory=memory)
        self._bridged = bridged
        self._wait_cpu_start = 0
        #: The open phases around :attr:`StepState.inside`, outermost first.
        self.open: list[int] = []
        #: Whether the thread's CPU time is read at the ends of steps.
        self.step_clock = True
        #: Whether the loop updates its parameters by hand: of what follows a backward it is not known what is update.
        self.by_hand = False
        #: What writes the marks, and what a watch knows of the step.
        self.state = StepState(self._mark_first, thread_cpu)
        self.state.full, self.state.full_at = self.fold, MOST_MARKS
        #: What is known of the ends of stretches between forwards and what follows them.
        self.tails: Tails = {}
        #: What was read so far of a long step on the device's clock.
        self._device_folding: Folding | None = None

    @property
    def running(self) -> bool:
        return self._running

    @property
    def marks(self) -> Sequence[int]:
        """The tape, which is always the same object: who marks by itself looks how long it is (``StepState.full``)."""
        return self._marks

    @property
    def bridged(self) -> bool:
        """Whether what lies between phases is counted to the one that follows or went before."""
        return self._bridged

    @property
    def cpu_clock(self) -> bool:
        """Whether the thread's CPU time is read around waits."""
        return self.state.wait_cpu is not None

    @property
    def depth(self) -> int:
        """How many phases are open."""
        return 0 if self.state.inside == NOTHING else 1 + len(self.open)

    @property
    def block_began_ns(self) -> int:
        """Host clock at the start of the block of steps that is under way."""
        return self._block_start

    @property
    def origin_ns(self) -> int:
        """Host clock at 0 of the steps' ``start_ns``."""
        return self._origin or 0

    @property
    def seen(self) -> int:
        """The phases that were ever entered in a step that ended, as bits by their index; as of the last take."""
        return self._seen

    def has_seen(self, index: int) -> bool:
        """Whether the phase was ever entered, as of the last take."""
        return bool(self._seen >> index & 1)

    def entered_so_far(self, code: int) -> int:
        """How often the phase was entered since the last take, steps that have not ended included."""
        _, codes = times_and_codes(self._marks)
        begins = [mark for mark, phase in BEGUN.items() if phase == code and mark not in NO_STEPS]
        gone = sum(int(folding.gone[begins].sum()) for folding in self._folds)
        return gone + int(np.count_nonzero(np.isin(codes, begins)))

    def enter(self, code: int) -> None:
        """A phase begins, as an index into ALL_PHASES; OTHER marks what must not count as the phase around it.

        TRAINS is a forward that makes use of the batches waited for so far. Other codes of the tape that begin a phase
        tell what is called.
        """
        if len(self._marks) >= self.state.full_at:
            self.state.full()
        self.state.mark(self._clock() + AT[code])
        inside, self.state.expect = self.state.inside, UNSURE
        code = BEGUN[code]
        if code == FORWARD and inside == BACKWARD:
            code = BACKWARD
        if inside != NOTHING:
            self.open.append(inside)
        self.state.inside = code
        if code == DATA_WAIT and self.state.wait_cpu is not None:
            self._wait_cpu_start = self.state.wait_cpu()

    def leave(self) -> int:
        """The innermost phase ends, and is given as an index; without one nothing happens, and that is OTHER."""
        ended = self.state.inside
        if ended == NOTHING:
            return OTHER
        self.state.inside = self.open.pop() if self.open else NOTHING
        if ended == DATA_WAIT:
            if self.state.wait_cpu is not None:
                self.add_wait_cpu(self.state.wait_cpu() - self._wait_cpu_start)
            if not self._waited:
                self._waited = True
                self._step_epoch = self.epoch
        self.state.mark(self._clock() + AT[LEAVE])
        return ended

    def add_wait_cpu(self, cpu_ns: int) -> None:
        """The thread used so much CPU time in a wait for a batch."""
        self._wait_cpu_ns += cpu_ns

    @property
    def plain(self) -> bool:
        """Whether there is nothing to a step's end but its time."""
        return self._device is None and not self._reads_cpu

    @property
    def memory_due_ns(self) -> int:
        """Host clock from which on the memory is read at the end of the next step; 0 where nobody reads it."""
        return 0 if self._memory is None else max(0, self._memory.due_ns)

    def read_memory(self, memory: Callable[[], MemoryReading]) -> None:
        """From now on read the memory in this way, at the end of the next step first. Between blocks or steps."""
        spaced = SpacedMemory(memory)
        if self._memory is not None:
            spaced.interval_ns = self._memory.interval_ns
        self._memory, self._quiet_until_ns = spaced, 0

    def ended(self, steps: int) -> None:
        """So many steps more were ended on the tape, and are like the one before them."""
        self._steps += steps

    def epoch_begins(self, epoch: int, *, of_step: bool) -> None:
        """A pass over the data begins; ``of_step`` where the step that is under way has no batch of an earlier one."""
        self.epoch = epoch
        self.state.same = None
        if of_step:
            self._step_epoch = epoch

    def abandon(self) -> None:
        """Forget all open phases, for their ends got lost (an exception); the time since the last border is other."""
        self._close_all()
        self.state.mark(self._clock() + AT[ABANDON])

    def give_back_wait(self) -> None:
        """The waits for the batches that were fetched last were for an evaluation: they are other."""
        self.state.mark(self._clock() + AT[GIVE_BACK])

    def stop_wait_clock(self) -> None:
        """Read the thread's CPU time around waits no more: a system call at both ends of each. Between blocks only."""
        self.state.wait_cpu = None
        self._reads_cpu = self.step_clock

    def stop_step_clock(self) -> None:
        """Read the thread's CPU time at the ends of steps no more. Between blocks only."""
        self.step_clock = False
        self._step_cpu = _no_time
        self._reads_cpu = self.cpu_clock

    def pass_ended(self) -> None:
        """The wait that has just ended brought no batch: the step's epoch is still to be seen."""
        self._waited = False

    def use_events(self, events: EventSource) -> None:
        """Go on with the device's clock as the second one; what was recorded without it is dropped."""
        if self._running:
            self.end_block()
        self.take()
        self._device = DeviceClock(events, self._clock, self._add_device_step)
        self.start()

    def keep_losses(self, step_losses: dict[int, Any]) -> None:
        """Put losses beside the steps since the last take, by the step's number since then."""
        self._losses |= {number: loss for number, loss in step_losses.items() if number < self._steps}

    @property
    def has_loss(self) -> bool:
        """Whether some step has a loss, as of the last take."""
        return self._had_loss

    @property
    def steps_on_tape(self) -> int:
        """Steps since the last take."""
        return self._steps

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> int:
        now = super().end_step(samples=samples, tokens=tokens, padding_tokens=padding_tokens, loss=loss)
        self._close_all()
        return now

    def start(self) -> None:
        super().start()
        self._device_folding = None
        self._close_all()
        self.state.same = None
        self.state.mark = self._mark if self._device is None else self._mark_both

    def end_block(self) -> None:
        super().end_block()
        self.state.mark, self.state.sequence, self.state.expect = self._mark_first, -1, UNSURE

    def take(self) -> StepTable:
        table = super().take()
        self.state.full_at = MOST_MARKS
        return table

    def _calls(self, tape: TapeSteps) -> Mapping[str, NDArray[Any]]:
        calls = read_calls(tape, marked=not self._bridged)
        if calls["forwards"].any() or calls["forwards_without_gradients"].any():
            self._seen |= 1 << CALLS_SEEN
        return calls

    def _told_marks(self) -> array[int]:
        # A device's times lie beside the marks, one by one.
        return with_tails(self._marks, self.tails) if self.tails and self._device is None else self._marks

    def _labels(self) -> tuple[Sequence[int], Sequence[float]]:
        # A call inside a phase that the loop marks has no border on the device.
        codes = bytes(map(code_of, self._marks[self._step_mark :]))
        folding, self._device_folding = self._device_folding, None
        if folding is not None:
            rest = codes[codes.index(FOLDED) + 1 :].translate(None, _NO_BORDERS)
            phases_ns = folding.ended_by(rest, np.zeros(len(rest))).phases_ns[: len(ALL_PHASES)]
            return folding.labels(rest), phases_ns.tolist()
        return labels_of(codes.translate(None, _NO_BORDERS), bridged=self._bridged, recomputes=self._recomputes), ()

    def fold(self, until: int | None = None) -> int:
        """Many marks have come: if the step under way has most of them, they are added up and taken off the tape.

        What they tell of the step stays as it is (:mod:`perf_diagnostics.measure.steps.folding`), but for the moments
        at which they were made.

        Args:
            until: the place on the tape of the first mark that has to stay; None: all may go.

        Returns:
            By how much the places of all marks that stay, from there on, have become smaller.
        """
        step, how = self.long_step(until), {"bridged": self._bridged, "recomputes": self._recomputes}
        if step is None:
            return 0
        if self._device is not None:
            codes = step.codes.tobytes().translate(None, _NO_BORDERS)
            took_ns = self._device.fold(len(codes))
            if took_ns is None:
                return 0
            self._device_folding = self._device_folding or Folding(**how, dtype=np.float64)
            self._device_folding.add(codes, np.array(took_ns))
        shorter = step.fold(self._marks, self._folds, **how)
        self.state.full_at -= shorter
        return shorter

    def long_step(self, until: int | None = None) -> LongStep | None:
        """What can be added up of the step under way, if it has many marks; :meth:`fold` does it. It is asked again
        when as many more have come."""
        self.state.full_at = len(self._marks) + MOST_MARKS
        until = len(self._marks) if until is None else until
        on_device = self._device is not None
        return long_step(self._marks, until - _IN_FLIGHT * on_device) if self._running else None

    def _on_gc(self, moment: str, info: dict[str, int]) -> None:
        super()._on_gc(moment, info)
        self.state.same = None

    @property
    def capturing(self) -> bool:
        """Whether the loop is capturing a CUDA graph, into which nothing of ours may come."""
        return self._device is not None and self._device.capturing

    def _mark_first(self, mark: int) -> None:
        """The first phase that is entered starts the clock, and what was read before it is no time of the block's."""
        if self.capturing:
            return
        self.start()
        self.state.mark(self._clock() + AT[code_of(mark)])

    def _close_all(self) -> None:
        self.state.inside, self.state.expect = NOTHING, UNSURE
        self.open.clear()

    def _mark_both(self, mark: int) -> None:
        """A border on the host's clock and on the device's."""
        self._mark(mark)
        if self._device is not None:
            self._device.border()
