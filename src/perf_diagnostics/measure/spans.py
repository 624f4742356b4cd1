"""The spans of a step: context managers that are made once, and write a mark where they are entered and left.

A step of a training leaves little of anything else in the caches, so what counts here is not how long a line takes in a
tight loop but how much memory it touches: few Python frames, few objects, as few system calls as the columns allow.
What is called is first put into a local name: ``self._mark(...)`` looks for a method of the class before it takes what
the slot holds, which CPython 3.11 does anew each time, through dictionaries and descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Protocol

from perf_diagnostics.measure.tape import BITS, DATA_WAIT, LEAVE

#: For so long a thread is taken to have run, and its CPU clock is not asked: to be put to sleep and woken takes longer.
#: Of 14,574 reads of a pipe that put a thread to sleep (Linux, a virtual machine) one in a thousand was quicker, and in
#: these it slept for 7 us.
AWAKE_NS = 20_000


class Span:
    """One phase's context manager. All that it touches is in its slots."""

    __slots__ = ("_clock", "_code", "_mark")

    def __init__(self, mark: Callable[[int], None], clock: Callable[[], int], code: int) -> None:
        self._mark = mark
        self._clock = clock
        self._code = code

    def __enter__(self) -> None:
        clock, mark = self._clock, self._mark
        mark(clock() << BITS | self._code)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock, mark = self._clock, self._mark
        mark(clock() << BITS | LEAVE)


class Waiting(Protocol):
    """What a wait needs to know of its probe, and leaves there; see :class:`.Probe`."""

    epoch: int
    _step_epoch: int
    _waited: bool
    _wait_cpu_ns: int
    _cpu_ns: int
    _read_ns: int
    _trusted_until_ns: int
    _thread_cpu: Callable[[], int]


class Wait(Span):
    """The wait for data, whose CPU time is wanted as well.

    A reading is a system call, 3 us where nothing of it is in the caches. So a wait of less than :data:`AWAKE_NS` ends
    without one and all of it counts as CPU time, and a wait begins without one where the thread is known to run
    (:meth:`Probe._read_step_cpu`). Where a longer wait comes after steps without one, what the thread slept since the
    last reading is the wait's; from then on there are readings at each step's end, and it is exact to microseconds.
    """

    __slots__ = ("_began_ns", "_cpu_ns", "_probe")

    def __init__(self, mark: Callable[[int], None], clock: Callable[[], int], probe: Waiting) -> None:
        super().__init__(mark, clock, DATA_WAIT)
        self._probe = probe
        self._began_ns = self._cpu_ns = 0

    def __enter__(self) -> None:
        clock, mark, probe = self._clock, self._mark, self._probe
        self._began_ns = now = clock()
        mark(now << BITS | DATA_WAIT)
        if now >= probe._trusted_until_ns:
            self._cpu_ns = probe._thread_cpu()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock, mark, probe = self._clock, self._mark, self._probe
        now = clock()
        if now - self._began_ns >= AWAKE_NS:
            now = self._was_long()
        if not probe._waited:
            # The step belongs to the epoch of its first batch, which a restart inside this wait may have begun.
            probe._waited = True
            probe._step_epoch = probe.epoch
        mark(now << BITS | LEAVE)

    def _was_long(self) -> int:
        """Read the CPU clock at the end of a wait in which the thread may have slept; gives the time of this end."""
        probe, began_ns = self._probe, self._began_ns
        ran = began_ns < probe._trusted_until_ns
        before_ns = probe._cpu_ns + began_ns - probe._read_ns if ran else self._cpu_ns
        used_ns = max(0, probe._thread_cpu() - before_ns)
        now = self._clock()  # the reading is part of the wait, and not of what is done with the batch
        probe._wait_cpu_ns += now - began_ns - used_ns
        probe._trusted_until_ns = 0
        return now
