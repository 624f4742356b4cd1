"""Looks, many times a second and from another thread, at which line of the user's code a training's thread stands.

What is seen is the host: on an accelerator the line that waits for it, or queues work for it. Where the times of a step
are known, only the division of a phase among lines is taken from the looks, not its length.

A look needs Python's lock. Where nobody else can notice, the thread that is looked at has to give it away 50 us after
it was asked for (:mod:`.prompt_lock`), or when the call ends that keeps it: the look sees where the thread stands. Else
the look takes place when the thread gives the lock away: in long operations and waits at once, in Python code after
``sys.getswitchinterval()`` (5 ms), wherever it stands by then. In between it is *late*: the thread was in Python code
for a while, and came to an operation or a wait, where it is seen. A late look belongs to the moment at which it was
due, and the line it saw is an upper bound for that line's time.

The thread that is looked at may have to wait until the look is over, so that does no more than write down the code
objects of the frames, and the places in them; what they are is worked out by whoever takes the looks.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import NamedTuple

from perf_diagnostics.measure.code.frame_walk import frames_of_threads, walked
from perf_diagnostics.measure.code.own_code import OwnCode
from perf_diagnostics.measure.code.prompt_lock import PromptLock
from perf_diagnostics.measure.code.stacks import Stack, Stacks, Walk

#: Mean time between two looks, and after how many of them it becomes the second one: a short training is to be seen
#: often enough, and a long one little disturbed. A look keeps Python's lock for 70 to 90 us on a crowded machine, where
#: nothing of it is in the caches; with waking up it takes 150 to 200 us of a processor (CPython 3.11).
INTERVAL_NS = 25_000_000
RARE_INTERVAL_NS = 100_000_000
OFTEN_LOOKS = 400

#: The time between two looks is drawn evenly from this part of the mean to the rest of it, or looks at a fixed rate
#: could fall into step with a training of as fixed a rate, and see the same place of each step.
_LEAST = 0.5

#: So many of these times are drawn at once.
_DRAWS = 64

#: A look that comes so much behind the time at which it was due is late; waking up takes less.
_LATE_NS = 500_000

#: Unless it comes behind by about the time after which Python takes its lock away from a thread.
_FORCED = (0.9, 1.4)

#: Looks that wait for their block to end. In a block that goes on for longer (the night of an evaluation, a notebook
#: that nobody touches) every second one goes, and those that are left and that come count twice.
MOST_WAITING = 8192

#: Walks that wait to be worked out; the thread that looks does so itself where nobody takes them.
_MOST_WALKS_WAITING = 256


class Look(NamedTuple):
    """One look: at which moment (ns of the host clock) it belongs to a phase, when it took place, and what it saw.

    ``stack`` is a number, for which :attr:`CodeSampling.stacks` has the stack; a ``rare`` look stands for
    :data:`RARE_INTERVAL_NS` of the thread's time, any other one for :data:`INTERVAL_NS`, and of a block that took very
    long for ``weight`` times that.
    """

    at_ns: int
    seen_ns: int
    stack: int
    rare: bool
    late: bool
    weight: int = 1


class _Seen(NamedTuple):
    """A look that is not worked out yet."""

    at_ns: int
    seen_ns: int
    walk: Walk
    rare: bool
    late: bool
    weight: int


class CodeSampling:
    """Looks at one thread's stack; what it saw is taken from time to time by whoever knows the phases.

    Args:
        clock: host clock in ns, the steps'.
        own_code: which files are the user's.
        thread: whose stack, by ``threading.get_ident()``.
        thread_cpu: CPU time of the thread that looks, in ns.
        lock: how Python's lock is asked for; None: as any thread does.
        part_of: gives the frames of a walk that count, or None where that look sees nothing; default: all count.
        intervals_ns: the mean time between two looks, first and after :data:`OFTEN_LOOKS`.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        own_code: OwnCode,
        thread: int,
        *,
        thread_cpu: Callable[[], int] = time.thread_time_ns,
        lock: PromptLock | None = None,
        part_of: Callable[[Walk], Walk | None] | None = None,
        intervals_ns: tuple[int, int] = (INTERVAL_NS, RARE_INTERVAL_NS),
    ) -> None:
        self._intervals_ns = intervals_ns
        self._part_of = part_of
        self._clock = clock
        self._watched = thread
        self._thread_cpu = thread_cpu
        self._lock = lock
        self._seen: list[_Seen] = []
        self._looked: list[Look] = []
        self._looks = 0
        self._due_ns: int | None = None
        switch_ns = sys.getswitchinterval() * 1e9
        self._forced_ns = _FORCED[0] * switch_ns, _FORCED[1] * switch_ns
        self._stacks = Stacks(own_code)
        self._working_out = threading.Lock()
        self._random = random.Random(thread)  # noqa: S311 - no secret, and the script's own draws stay as they are
        self._draws: list[float] = []
        self._threads_before_ns = self._last_cpu_ns = 0

    @property
    def stacks(self) -> tuple[Stack, ...]:
        """What the numbers that :meth:`take` gives stand for."""
        self._work_out()
        return self._stacks.all

    @property
    def cpu_ns(self) -> int:
        """CPU time that looking has taken so far, waking up included."""
        return self._threads_before_ns + self._last_cpu_ns

    def tick(self) -> int:
        """Look, and give in how many ns to look again."""
        self.look()
        cpu_ns = self._thread_cpu()
        if cpu_ns < self._last_cpu_ns:  # another thread looks now
            self._threads_before_ns += self._last_cpu_ns
        self._last_cpu_ns = cpu_ns
        mean_ns = self._intervals_ns[self._rare]
        if not self._draws:
            self._draws = [self._random.uniform(_LEAST, 2 - _LEAST) for _ in range(_DRAWS)]
        wait_ns = int(self._draws.pop() * mean_ns)
        self._due_ns = self._clock() + wait_ns
        return wait_ns

    @property
    def _rare(self) -> bool:
        return self._looks >= OFTEN_LOOKS

    def take(self) -> list[Look]:
        """The looks since the last time."""
        self._work_out()
        taken, self._looked = self._looked, []
        return taken

    def look(self) -> None:
        """See where the thread stands now."""
        weight = self._weight()
        if self._looks % weight:
            self._looks += 1  # the one before stands for it
            return
        frames = frames_of_threads()
        threads = tuple(frames)
        frame: FrameType | None = frames.get(self._watched)
        del frames  # our own is among them: a cycle, which would keep all frames, and what they hold
        if frame is None:
            return
        now = self._clock()
        codes, places = walked(frame)
        if frame.f_lasti != places[0] and self._lock is not None:
            return  # it ran on meanwhile: the lock was taken away from us, and what was walked belongs to no moment
        if self._lock is not None:
            self._lock.saw(threads)
        at_ns, late = self._moment(now)
        walk = (codes, places) if self._part_of is None else self._part_of((codes, places))
        if walk is None:
            self._looks += 1
            return
        seen = _Seen(at_ns, now, walk, self._rare, late, weight)
        self._seen.append(seen)  # in one go: the loop's thread may take the list at any moment before
        self._looks += 1

    def _moment(self, now: int) -> tuple[int, bool]:
        """To which moment a look belongs that takes place now, and whether it is late."""
        due, self._due_ns = self._due_ns, None
        behind_ns = 0 if due is None else now - due
        if behind_ns <= _LATE_NS:
            return now, False
        # A call that kept the lock was on its way when the look was due, and is what was seen.
        sure = self._lock is not None and self._lock.was_refused(behind_ns)
        late = not sure and not self._forced_ns[0] <= behind_ns <= self._forced_ns[1]
        return (now - behind_ns if late else now), late

    def _weight(self) -> int:
        """For how many looks the next one stands; where too many wait, every second one of them goes."""
        if len(self._seen) >= _MOST_WALKS_WAITING or len(self._looked) + len(self._seen) >= MOST_WAITING:
            self._work_out()
        looked = self._looked
        if len(looked) >= MOST_WAITING:
            left = [look._replace(weight=2 * look.weight) for look in looked[::2]]
            # The loop's thread may have taken them by now; a lock would hold it up, in a signal's handler for ever.
            if self._looked is looked:
                self._looked = looked = left
        return looked[0].weight if looked else 1

    def _work_out(self) -> None:
        """Number the stacks of the looks so far, unless that is being done: then they are left for the next time."""
        if self._working_out.acquire(blocking=False):
            try:
                seen, self._seen = self._seen, []
                number = self._stacks.number
                looks = [Look(one.at_ns, one.seen_ns, number(one.walk), one.rare, one.late, one.weight) for one in seen]
                self._looked.extend(looks)
            finally:
                self._working_out.release()
