"""A probe for a loop that is not ours: it starts itself, bridges the gaps between phases, and survives lost ends."""

from __future__ import annotations

import time
from collections.abc import Callable

from perf_diagnostics.measure.device_clock import DeviceClock, EventSource
from perf_diagnostics.measure.probe import Probe
from perf_diagnostics.records import ALL_PHASES, Phase

DATA_WAIT, TRANSFER, FORWARD, BACKWARD, OPTIMIZER, OTHER = (ALL_PHASES.index(phase) for phase in Phase)

_NOTHING = -1

#: What lies between two phases that nobody marked: from the end of the first, if one of the next begins, to its name.
#: The loss is part of ``forward``, and unscaling and clipping are part of ``optimizer``.
_BRIDGES: dict[int, tuple[tuple[int, ...], int]] = {
    FORWARD: ((BACKWARD, FORWARD), FORWARD),
    BACKWARD: ((OPTIMIZER,), OPTIMIZER),
}


def _no_time() -> int:
    return 0


class LoopProbe(Probe):
    """The probe with what an unknown loop needs on top.

    - The first phase that is entered starts the clock: building data and model is no step.
    - With ``bridged`` the stretch between forward and backward counts as forward (the loss), and between backward and
      optimizer as optimizer (unscale, clip); without, both are ``other``.
    - A forward inside a backward (activation checkpointing) is backward.
    - Waits for batches that turn out to be evaluated on, not trained on, can be given back (:meth:`give_back_wait`).

    Args:
        bridged: as above.
        clock: host clock in ns.
        thread_cpu: CPU time of the calling thread in ns.
    """

    _tail: int
    #: Waited in this step for batches that nothing was trained on yet, in ns; whoever trains on them sets it to 0.
    unused_wait_ns: int

    def __init__(
        self,
        *,
        bridged: bool,
        clock: Callable[[], int] = time.perf_counter_ns,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
    ) -> None:
        self._seen = 0
        #: Whether CPU time inside the waits is read.
        self.cpu_clock = True
        self._bridged = bridged
        super().__init__(clock=clock, thread_cpu=thread_cpu)

    @property
    def running(self) -> bool:
        return self._running

    @property
    def depth(self) -> int:
        """How many phases are open."""
        return len(self._stack)

    @property
    def phase(self) -> int:
        """The innermost open phase, as an index into ALL_PHASES."""
        return self._phase

    @property
    def step_began_ns(self) -> int:
        """Host clock at the end of the last step, which is the start of this one."""
        return self._step_start

    @property
    def seen(self) -> int:
        """The phases that were ever entered, as bits by their index."""
        return self._seen

    def has_seen(self, index: int) -> bool:
        """Whether the phase was ever entered."""
        return bool(self._seen >> index & 1)

    def enter(self, index: int) -> None:
        """A phase begins, as an index into ALL_PHASES; OTHER marks what must not count as the phase around it.

        Runs several times in each step of somebody's training, hence in one piece: calls are what Python is slow at.
        """
        if not self._running:
            self.start()
        self._seen |= 1 << index
        parent = ending = self._phase
        if self._tail >= 0:
            followers, label = _BRIDGES[self._tail]
            if index in followers:
                ending = label  # the stretch that ends now gets this name; the phase around it keeps its own
            self._tail = _NOTHING
        if index == FORWARD and parent == BACKWARD:
            index = BACKWARD
        self._stack.append(parent)
        now = self._clock()
        self._spent[ending] += now - self._last
        self._last = now
        if self._device is not None:
            self._device.border(ending)
        self._phase = index
        if index == DATA_WAIT:
            self._wait_cpu_start = self._thread_cpu()

    def leave(self) -> None:
        """The innermost phase ends; without one nothing happens."""
        if not self._stack:
            return
        ending = self._phase
        if ending == DATA_WAIT:
            self._wait_cpu_ns += self._thread_cpu() - self._wait_cpu_start
            if not self._waited:
                self._waited = True
                self._step_epoch = self.epoch
        now = self._clock()
        passed = now - self._last
        self._spent[ending] += passed
        self._last = now
        if self._device is not None:
            self._device.border(ending)
        self._phase = self._stack.pop()
        if ending == DATA_WAIT:
            self.unused_wait_ns += passed
        elif self._bridged and ending in _BRIDGES:
            self._tail = ending

    def abandon(self) -> None:
        """Forget all open phases, for their ends got lost (an exception); the time since the last border is other."""
        self._phase = OTHER
        self._stack = []
        self._tail = _NOTHING
        self._switch(OTHER)

    def give_back_wait(self) -> None:
        """The wait for the batches that were fetched last was for an evaluation: it is other."""
        self._spent[DATA_WAIT] -= self.unused_wait_ns
        self._spent[OTHER] += self.unused_wait_ns
        self.unused_wait_ns = 0

    def stop_cpu_clock(self) -> None:
        """Read the thread's CPU time no more: a system call at both ends of every wait."""
        self.cpu_clock = False
        self._thread_cpu = _no_time

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

    def _begin_step(self, now: int) -> None:
        super()._begin_step(now)
        self._tail = _NOTHING
        self.unused_wait_ns = 0
