"""How often the loop's thread was seen to wait in a phase of steady steps, and for what.

How long it was blocked in all the scheduler tells (``run_delay.py``); the looks say how that divides. A look needs
Python's lock. Where the thread held that when the look was due, whatever the look then sees, at the moment at which the
lock was given away, came after: such a look is only counted as late. One that is late because the looking thread had no
core, which the scheduler counts, says nothing of that: it is counted apart.

A thread that waits for a lock may wait for another one that works for it. So at such a look the others are looked at:
where none of them runs or wants to, it waits for nobody's work. Threads of OpenMP's team that wait for work spin for a
while, and look as if they ran; who waits for them waits inside of their library, and is told apart by that. Those that
were ever seen to wait in there are the team's, unless they are Python's own, which may have teams themselves.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from perf_diagnostics.measure.code.thread_waits import OwnDelay, ThreadWaits, Waits
from perf_diagnostics.records import Json

#: A look that comes so much behind the time at which it was due had to wait for Python's lock, or for a core.
_LATE_NS = 500_000

#: Looking at another thread takes some 20 us: so many looks are given to so many threads at most.
_MOST_LOOKS_AT_OTHERS, _MOST_OTHERS = 400, 64

#: Who is seen so computes, or will when it can; of Python's threads also one that waits for a team of its own.
_AT_WORK = (Waits.RUNS, Waits.PYTHON, Waits.TEAM, Waits.OTHER)

#: A look that came too late to see anything, and one that did for want of a core.
LATE, NO_CORE = "late", "no core"

#: So much of the time by which it is late the looking thread had no core then.
_FOR_WANT_OF_A_CORE = 0.9

#: A wait for a lock while other threads were at work, which may have been its reason.
LOCK_AND_OTHERS_WORK = "lock, and others work"


#: A look takes 60 us, and 40 more with the scheduler's count, where nothing of it is in the caches, in which the loop's
#: thread may wait for Python's lock. So one in four is taken, and without that count, while none of the last so many
#: has seen the thread wait for anything; one that comes late then is held to be so for Python's lock.
_ONE_IN, _AFTER_LOOKS = 4, 40

#: What is no wait of the thread's.
_NO_WAIT = ("runs", "python", LATE, NO_CORE)

#: Looks that wait for their block to end; those that come after are left out.
_MOST_WAITING = 8192


class _Look(NamedTuple):
    at_ns: int
    waits: str
    busy: frozenset[int] = frozenset()


class WaitLooks:
    """Looks at one thread, from another one that is told when to; the phases are known when a block has ended.

    Args:
        clock: host clock in ns, the steps'.
        thread: what is known of the thread.
        own_delay_ns: how long the thread that looks had no core so far; None: nobody knows.
    """

    def __init__(
        self,
        clock: Callable[[], int],
        thread: ThreadWaits,
        own_delay_ns: Callable[[], int | None] | None = None,
    ) -> None:
        self._clock = clock
        self._thread = thread
        self._own = OwnDelay()
        self._own_delay_ns = own_delay_ns or self._own.now_ns
        self._delay_before_ns: int | None = None
        self._due_ns: int | None = None
        self._calls = self._since_wait = 0
        self._looked: list[_Look] = []
        self._seen: Counter[tuple[str, str, frozenset[int]]] = Counter()
        self._team: set[int] = set()
        self._looks_at_others = 0

    @classmethod
    def of_this_thread(cls, clock: Callable[[], int]) -> WaitLooks | None:
        """At the calling thread; None where the kernel does not say what threads wait for."""
        try:
            return cls(clock, ThreadWaits(threading.get_native_id()))
        except OSError:
            return None

    def before(self, tick: Callable[[], int]) -> Callable[[], int]:
        """A tick that looks first, and then does what ``tick`` does, which gives in how many ns to look again."""

        def both() -> int:
            self.look()
            wait_ns = tick()
            self._delay_before_ns = self._own_delay_ns() if self._each else None
            self._due_ns = self._clock() + wait_ns
            return wait_ns

        return both

    @property
    def _each(self) -> bool:
        """Whether each look is taken, and how long there was no core is read before and after."""
        return self._since_wait < _AFTER_LOOKS

    def look(self) -> None:
        """See what it waits for now, unless this look is late."""
        now = self._clock()
        due, self._due_ns = self._due_ns, None
        self._calls += 1
        if due is None or len(self._looked) >= _MOST_WAITING or (not self._each and self._calls % _ONE_IN):
            return
        self._since_wait += 1
        if now - due > _LATE_NS:
            before = self._delay_before_ns
            delay = None if before is None else self._own_delay_ns()
            lacked = 0 if delay is None or before is None else max(0, delay - before)
            self._looked.append(_Look(due, NO_CORE if lacked >= _FOR_WANT_OF_A_CORE * (now - due) else LATE))
            return
        waits = self._thread.now()
        if waits not in _NO_WAIT:
            self._since_wait = 0
        self._looked.append(_Look(now, str(waits), self._busy() if waits is Waits.LOCK else frozenset()))

    def take(self, phases_at: Callable[[Sequence[int]], Sequence[tuple[str, str] | None]], *, counts: bool) -> None:
        """The looks since the last time lie in a block of steps that has ended; ``counts`` where it is steady."""
        taken, self._looked = self._looked, []
        looks = tuple(taken)  # one more may be on its way into the list
        if not counts or not looks:
            return
        for look, where in zip(looks, phases_at([look.at_ns for look in looks]), strict=True):
            if where is not None:
                self._seen[where[0], look.waits, look.busy] += 1

    def close(self) -> None:
        """Nobody looks any more."""
        self._thread.close()
        self._own.close()

    def told(self) -> dict[str, Json]:
        """How often it was looked at, by phase and by what it waited for, or ``runs``, ``late``, ``no core``."""
        self._learn(self._thread.others(threading.get_native_id()))
        found: dict[str, Counter[str]] = {}
        for (phase, waits, busy), count in self._seen.items():
            kind = LOCK_AND_OTHERS_WORK if busy - self._team else waits
            found.setdefault(phase, Counter())[kind] += count
        return {phase: dict(counts) for phase, counts in found.items()}

    def _busy(self) -> frozenset[int]:
        """The other threads that run or want to; -1 stands for those that were not looked at."""
        self._looks_at_others += 1
        if self._looks_at_others > _MOST_LOOKS_AT_OTHERS:
            return frozenset({-1})
        others = self._thread.others(threading.get_native_id())
        self._learn(others)
        busy = {tid for tid, waits in others.items() if waits in _AT_WORK and tid not in self._team}
        return frozenset(busy if len(others) <= _MOST_OTHERS else {-1})

    def _learn(self, others: Mapping[int, Waits]) -> None:
        pythons = {thread.native_id for thread in threading.enumerate()}
        self._team |= {tid for tid, waits in others.items() if waits is Waits.TEAM and tid not in pythons}
