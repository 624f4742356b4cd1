"""A thread that reads now and then beside somebody's script, and is not there at the moment at which the process forks.

Python 3.12 warns of a fork while another thread runs; of ours a script must not be warned.
"""

from __future__ import annotations

import os
import signal
import threading
import weakref
from collections.abc import Callable

from perf_diagnostics.measure.observation import Observations

#: How long a reading under way is waited for; a driver call that takes longer is taken to hang.
JOIN_S = 0.5


class _End:
    """An event, whose waiting is one call of C: what ``threading.Event`` does in Python when it wakes up (some 80 us
    where nothing of it is in the caches) it does while the script's thread waits for Python's lock.
    """

    def __init__(self) -> None:
        self._set = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        if not self._set:
            self._set = True
            self._lock.release()

    def wait(self, seconds: float) -> bool:
        """Until it is set, but no longer than this; whether it is. Only one thread waits."""
        if not self._set and self._lock.acquire(timeout=seconds):
            self._lock.release()
        return self._set


class PausingThread:
    """Calls ``tick`` again and again, until :meth:`stop`; what it raises ends the thread and becomes a gap.

    Args:
        tick: reads, and gives in how many ns it is to be called again; None: never.
        observations: where it is noted why there is nothing.
        signals: the names of what is missing then.
        after: called in the thread when it ends, also before a fork.
    """

    def __init__(
        self,
        tick: Callable[[], int | None],
        observations: Observations,
        *signals: str,
        after: Callable[[], None] = lambda: None,
    ) -> None:
        self._tick = tick
        self._observations = observations
        self._signals = signals
        self._after = after
        self._ended = _End()
        self._thread: threading.Thread | None = None
        self._paused = False

    @property
    def runs(self) -> bool:
        """Whether it reads, or may be in the midst of a reading that is not waited for."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin, with a first call of ``tick`` from the thread."""
        _RUNNING.add(self)
        _follow_forks()
        self._start()

    def tell(self) -> None:
        """End as soon as the reading under way is over, without waiting for it."""
        _RUNNING.discard(self)
        self._paused = False
        self._ended.set()

    def stop(self) -> bool:
        """End; false where a reading under way did not return in time."""
        self.tell()
        if self._thread is not None:
            self._thread.join(JOIN_S)
        return not self.runs

    def pause(self) -> None:
        """The process forks."""
        if self.runs and not self._ended.is_set() and self._thread is not threading.current_thread():
            self._paused = True
            self._ended.set()
            if self._thread is not None:
                self._thread.join(JOIN_S)

    def resume(self) -> None:
        """It has forked, and this is the process that did."""
        if self._paused and not self.runs:
            self._start()
        self._paused = False

    def _start(self) -> None:
        self._ended = _End()
        self._thread = threading.Thread(
            target=self._run, args=(self._ended,), name="perf_diagnostics readings", daemon=True
        )
        self._thread.start()

    def _run(self, ended: _End) -> None:
        with self._observations.guard(*self._signals):
            if hasattr(signal, "pthread_sigmask"):
                signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # they are the training's
            try:
                wait_ns: int | None = 0
                while wait_ns is not None and not ended.wait(wait_ns / 1e9):
                    wait_ns = self._tick()
            finally:
                self._after()


_RUNNING: weakref.WeakSet[PausingThread] = weakref.WeakSet()
_following = False


def _follow_forks() -> None:
    """Have every such thread pause at forks; Python has no way to take such a hook back."""
    global _following  # noqa: PLW0603 - the hook is the process's
    if not _following and hasattr(os, "register_at_fork"):
        _following = True
        os.register_at_fork(before=_pause_all, after_in_parent=_resume_all, after_in_child=_RUNNING.clear)


def _pause_all() -> None:
    for one in list(_RUNNING):
        one.pause()


def _resume_all() -> None:
    for one in list(_RUNNING):
        one.resume()
