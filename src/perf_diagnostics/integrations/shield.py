"""What keeps a fault of ours inside somebody's training away from the training, at no cost while there is none."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType

from perf_diagnostics.measure.observation import Attempt, Observations, in_words


class LoopObservations(Observations):
    """What could not be seen around a loop of the user's: its guard lets through what a signal's handler raised."""

    @contextmanager
    def guard(self, *signals: str) -> Iterator[Attempt]:
        """As :meth:`Observations.guard`; Python may run the user's handler in the midst of our reading and writing."""
        of_the_user: Exception | None = None
        with super().guard(*signals) as attempt:
            try:
                yield attempt
            except Exception as problem:
                if not _raised_in(problem, _handlers()):
                    raise
                of_the_user = problem
        if of_the_user is not None:
            raise of_the_user


class Shield:
    """Takes the first fault, which ends the measuring: a watch that has lost count would measure wrongly.

    What was measured until then is kept, and a gap says why the rest is missing. What a signal's handler of the user's
    raised, which Python may run in the midst of our code, is no fault of ours, and goes on to where it belongs.
    """

    def __init__(self, observations: Observations, stop: Callable[[], None]) -> None:
        self._observations = observations
        self._stop = stop

    def take(self, fault: Exception) -> None:
        """Note the fault down, and stop measuring."""
        self._stop()
        self._observations.note("steps", f"measuring ended early: {in_words(fault)}")
        if _raised_in(fault, _handlers()):
            raise fault


def _handlers() -> set[CodeType]:
    """The code of the functions that handle signals."""
    handlers = (signal.getsignal(number) for number in signal.valid_signals())
    codes = (getattr(getattr(handler, "__func__", handler), "__code__", None) for handler in handlers)
    return {code for code in codes if code is not None}


def _raised_in(fault: Exception, codes: set[CodeType]) -> bool:
    trace = fault.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
