"""The spans of a step: context managers that are made once, and write a mark where they are entered and left.

A step of a training leaves little of anything else in the caches, so what counts here is not how long a line takes in a
tight loop but how much memory it touches, and how many instructions: few Python frames, few objects, as few system
calls as the columns allow. What is called is first put into a local name: ``self._mark(...)`` looks for a method of the
class before it takes what the slot holds, which CPython 3.11 does anew each time, through dictionaries and descriptors.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat, starmap
from operator import add
from types import TracebackType
from typing import Any, Protocol

from perf_diagnostics.measure.steps.tape import AT, LEAVE

#: For so long a thread is taken to have run, and its CPU clock is not asked: to be put to sleep and woken takes longer.
#: Of 14,574 reads of a pipe that put a thread to sleep (Linux, a virtual machine) one in a thousand was quicker, and in
#: these it slept for 7 us.
AWAKE_NS = 20_000

#: A wait of so long has its CPU time read at its end, also where the thread is known to run. What a DataLoader without
#: workers takes for a batch that lies ready is 10 to 20 us between steps of a millisecond, and seldom 40.
LONG_NS = 50_000

#: For so long after a thread that was known to run turned out to have slept, waits of :data:`AWAKE_NS` are read, too.
DOUBT_NS = 100_000_000

_LEAVE = AT[LEAVE]


class Span(Protocol):
    """One phase's context manager."""

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def span(mark: Callable[[int], None], clock: Callable[[], int], code: int) -> Span:
    """A context manager that marks its code where it is entered, and LEAVE where it is left.

    Each has a class of its own, for it is there that ``with`` looks. It is entered without a Python frame: iterators
    that never end ask the clock, add the code, and mark. What it needs to be left lies in cells, and not in slots. Of
    3,200 instructions that a span took beside those of any ``with`` 1,600 are left (CPython 3.11), a third of them the
    clock's.
    """
    leave = _LEAVE

    def __exit__(  # noqa: N807 - becomes a class's own
        _self: object, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        mark(clock() + leave)

    entered: Any = map(mark, map(add, starmap(clock, repeat(())), repeat(AT[code])))
    kind = type("Span", (), {"__slots__": (), "__enter__": entered.__next__, "__exit__": __exit__})
    made: Span = kind()
    return made


class Waiting(Protocol):
    """What a wait needs to know of its probe, and leaves there; see :class:`.Probe`."""

    epoch: int
    _step_epoch: int
    _waited: bool
    _wait_cpu_ns: int
    _cpu_ns: int
    _read_ns: int
    _trusted_until_ns: int
    _doubted_until_ns: int
    _quiet_until_ns: int
    _thread_cpu: Callable[[], int]


class Wait:
    """The wait for data, whose CPU time is wanted as well.

    A reading is a system call, 3 us where nothing of it is in the caches, and as much for what is done with it. So a
    wait of less than :data:`AWAKE_NS` ends without one, and all of it counts as CPU time. Where the thread is known to
    run (:meth:`Probe._read_step_cpu`) a wait begins without one, ends without one below :data:`LONG_NS`, and one that
    turns out to have run leaves all as it was. What the thread slept since the last reading is the longer wait's,
    unless it is more than all of that; from then on there are readings at each step's end, and it is exact to
    microseconds.
    """

    __slots__ = ("_began_ns", "_clock", "_cpu_ns", "_mark", "_probe")

    def __init__(self, mark: Callable[[int], None], clock: Callable[[], int], probe: Waiting) -> None:
        self._mark = mark
        self._clock = clock
        self._probe = probe
        self._began_ns = self._cpu_ns = 0

    def __enter__(self) -> None:
        clock, mark, probe = self._clock, self._mark, self._probe
        self._began_ns = now = clock()
        mark(now)  # AT[DATA_WAIT] is 0
        if now >= probe._trusted_until_ns:
            self._cpu_ns = probe._thread_cpu()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        clock, mark, probe = self._clock, self._mark, self._probe
        now = clock()
        if now - self._began_ns >= AWAKE_NS:
            now = self._was_long(now)
        if not probe._waited:
            # The step belongs to the epoch of its first batch, which a restart inside this wait may have begun.
            probe._waited = True
            probe._step_epoch = probe.epoch
        mark(now + _LEAVE)

    def _was_long(self, now: int) -> int:
        """A wait ends now in which the thread may have slept: ask, if need be; gives the time of its end."""
        probe, began_ns = self._probe, self._began_ns
        ran = began_ns < probe._trusted_until_ns
        unread = ran and probe._trusted_until_ns - probe._read_ns > AWAKE_NS  # else it has only just been asked
        if unread and now - began_ns < LONG_NS and now >= probe._doubted_until_ns:
            return now
        before_ns = probe._cpu_ns + began_ns - probe._read_ns if ran else self._cpu_ns
        used_ns = probe._thread_cpu() - before_ns
        now = self._clock()  # the reading is part of the wait, and not of what is done with the batch
        slept_ns = now - began_ns - max(0, used_ns)
        if slept_ns >= AWAKE_NS:
            probe._trusted_until_ns = probe._quiet_until_ns = 0
        elif unread:
            return now
        if used_ns > -AWAKE_NS:  # else the thread lost its core before: more is missing than all of this wait
            probe._wait_cpu_ns += slept_ns
        return now
