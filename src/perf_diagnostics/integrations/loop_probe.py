"""A probe for a loop that is not ours: it starts itself, bridges the gaps between phases, and survives lost ends."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from perf_diagnostics.measure.beside_steps import MemoryReading
from perf_diagnostics.measure.device_clock import DeviceClock, EventSource
from perf_diagnostics.measure.probe import Probe
from perf_diagnostics.measure.tape import (
    ABANDON,
    BACKWARD,
    BITS,
    DATA_WAIT,
    FORWARD,
    GIVE_BACK,
    LEAVE,
    OPTIMIZER,
    OTHER,
    TRAINS,
    TRANSFER,
)

__all__ = ["BACKWARD", "DATA_WAIT", "FORWARD", "OPTIMIZER", "OTHER", "TRAINS", "TRANSFER", "LoopProbe"]


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
        #: Whether the thread's CPU time is read around waits, and at the ends of steps.
        self.cpu_clock = self.step_clock = True

    @property
    def running(self) -> bool:
        return self._running

    @property
    def depth(self) -> int:
        """How many phases are open."""
        return len(self.open)

    @property
    def phase(self) -> int:
        """The innermost open phase, as an index into ALL_PHASES."""
        return self.open[-1] if self.open else OTHER

    @property
    def block_began_ns(self) -> int:
        """Host clock at the start of the block of steps that is under way."""
        return self._block_start

    @property
    def seen(self) -> int:
        """The phases that were ever entered in a step that ended, as bits by their index; as of the last take."""
        return self._seen

    def has_seen(self, index: int) -> bool:
        """Whether the phase was ever entered, as of the last take."""
        return bool(self._seen >> index & 1)

    def enter(self, code: int) -> None:
        """A phase begins, as an index into ALL_PHASES; OTHER marks what must not count as the phase around it.

        TRAINS is a forward that makes use of the batches waited for so far. Runs several times in each step of
        somebody's training, hence in one piece: calls are what Python is slow at.
        """
        if not self._running:
            self.start()
        self._mark(self._clock() << BITS | code)
        if self._device is not None:
            self._device.border()
        if code == TRAINS:
            self.unused_wait = False
            code = FORWARD
        if code == FORWARD and self.open and self.open[-1] == BACKWARD:
            code = BACKWARD
        self.open.append(code)
        if code == DATA_WAIT and self.cpu_clock:
            self._wait_cpu_start = self._thread_cpu()

    def leave(self) -> int:
        """The innermost phase ends, and is given as an index; without one nothing happens, and that is OTHER."""
        if not self.open:
            return OTHER
        ended = self.open.pop()
        if ended == DATA_WAIT:
            if self.cpu_clock:
                self._wait_cpu_ns += self._thread_cpu() - self._wait_cpu_start
            if not self._waited:
                self._waited = True
                self._step_epoch = self.epoch
            self.unused_wait = True
        self._mark(self._clock() << BITS | LEAVE)
        if self._device is not None:
            self._device.border()
        return ended

    def abandon(self) -> None:
        """Forget all open phases, for their ends got lost (an exception); the time since the last border is other."""
        self.open.clear()
        self._put(ABANDON)

    def give_back_wait(self) -> None:
        """The waits for the batches that were fetched last were for an evaluation: they are other."""
        self.unused_wait = False
        self._put(GIVE_BACK)

    def stop_wait_clock(self) -> None:
        """Read the thread's CPU time around waits no more: a system call at both ends of each. Between blocks only."""
        self.cpu_clock = False
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

    def _put(self, code: int) -> None:
        self._mark(self._clock() << BITS | code)
        if self._device is not None:
            self._device.border()
