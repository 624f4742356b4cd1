"""Gets a thread of ours Python's lock soon after it has asked for it, where no other thread of the process can notice.

A thread that waits for the lock has it taken away from who holds it only after ``sys.getswitchinterval()`` (5 ms); till
then it gets it where the holder gives it away by itself: in an operation or a wait, never in Python code. A look at the
holder that has to wait so sees the next operation in place of the Python code before it: of 3 ms of Python code and a
short operation six to nine looks in ten saw the operation, which takes a fiftieth of the time.

So the interval is short while we sleep and then ask, and as it was before from when we have the lock on: who works for
us holds it undisturbed. It counts for nobody but those that wait for the lock. As that may be any thread, it is short
only while there is none but the one that is looked at and our own, and only where nobody has chosen an interval.
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
from collections.abc import Callable, Iterable

#: So short that Python code of a millisecond is seen where it stands (one look in 25 sees what follows; of half a
#: millisecond one in eight), and so long that a wait for a call that keeps the lock (a sort of 5 ms) is fifty short
#: sleeps, not a thousand.
SHORT_S = 100e-6

#: What Python begins with. Who has set another one has a reason.
_USUAL_S = 0.005

#: One refusal takes the interval and the way to sleep and back: so long, and no more, on a machine that has cores.
_A_REFUSAL_NS = 3 * SHORT_S * 1e9

#: Names of our own threads begin so; they ask for the lock seldom, and hold it shortly.
_OUR_THREADS = ("perf_diagnostics", "perf-diagnostics")

#: Classes of threads that next to never run: tqdm's looks at its bars every 10 s.
_IDLE_THREADS = ("TMonitor",)

#: ``PR_SET_TIMERSLACK`` of Linux's prctl, and by how much our thread's timers may be late; the kernel's choice is
#: 50 us, as much again as the interval.
_SET_TIMER_SLACK, _TIMER_SLACK_NS = 29, 1000


class PromptLock:
    """Shortens the switch interval while a thread of ours sleeps and waits for the lock.

    Args:
        watched: the thread that is looked at, by ``threading.get_ident()``.
        unharmed: names of other threads that lose nothing if they get the lock sooner, as a regular expression.
    """

    def __init__(self, watched: int, *, unharmed: str = "(?!)") -> None:
        self._watched = watched
        self._unharmed = re.compile(unharmed)
        self._threads: frozenset[int] = frozenset()
        self._alone = False
        self._shortened_s: float | None = None
        self._tid = self._sleeps = 0
        self._was_short = False

    def around(self, tick: Callable[[], int]) -> Callable[[], int]:
        """A tick that does the same, with the interval as it was, and leaves a short one for the wait behind it."""

        def promptly() -> int:
            self.had()
            wait_ns = tick()
            self.ask()
            return wait_ns

        return promptly

    def saw(self, threads: Iterable[int]) -> None:
        """All threads that run Python code now, by their idents."""
        found = frozenset(threads)
        if found != self._threads:
            self._threads = found
            unharmed = {one.ident for one in threading.enumerate() if not self._may_notice(one)}
            self._alone = found <= {self._watched, threading.get_ident(), *unharmed}

    def _may_notice(self, thread: threading.Thread) -> bool:
        ours = thread.name.startswith(_OUR_THREADS) or type(thread).__name__ in _IDLE_THREADS
        return not ours and self._unharmed.fullmatch(thread.name) is None

    def had(self) -> None:
        """We have the lock: the interval is again what it was, unless somebody else has set it meanwhile."""
        shortened, self._shortened_s = self._shortened_s, None
        self._was_short = shortened is not None and sys.getswitchinterval() == shortened
        if self._was_short:
            sys.setswitchinterval(_USUAL_S)

    def was_refused(self, behind_ns: int) -> bool:
        """Whether the lock, which we have so much later than it was due, was asked for all that time.

        Each time is a sleep, and who has no core does not sleep. So the holder was inside of one call that kept it:
        with the first refusal it was told to give the lock away, which it does at the end of a call at the latest.
        """
        return self._was_short and (_sleeps() - self._sleeps) * _A_REFUSAL_NS >= behind_ns

    def ask(self) -> None:
        """The lock will be asked for: make the interval short where that disturbs nobody."""
        if self._alone and sys.getswitchinterval() == _USUAL_S:
            if self._tid != threading.get_ident():
                self._tid = threading.get_ident()
                _wake_in_time()
            self._sleeps = _sleeps()
            sys.setswitchinterval(SHORT_S)
            self._shortened_s = sys.getswitchinterval()  # whole microseconds, as Python keeps it


def _sleeps() -> int:
    """How often the calling thread has given its core away by itself; 0 where the system does not count it."""
    return 0 if _USAGE is None else _USAGE()


def _usage_of_threads() -> Callable[[], int] | None:
    try:
        import resource  # there is none on Windows
    except ImportError:
        return None
    thread = getattr(resource, "RUSAGE_THREAD", None)  # Linux
    return None if thread is None else lambda: resource.getrusage(thread).ru_nvcsw


_USAGE = _usage_of_threads()


def _wake_in_time() -> None:
    """Let the calling thread's timers be late by less than the interval."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_TIMER_SLACK, ctypes.c_ulong(_TIMER_SLACK_NS), 0, 0, 0)
