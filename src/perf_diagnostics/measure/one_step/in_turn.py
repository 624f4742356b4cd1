"""Tries ways of doing the same in turn, once a step is over, as long as a budget lasts."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from perf_diagnostics.measure.faults import FAULTS

#: How often each way is tried: once where that would take too long.
_TRIES = 3

T = TypeVar("T")


class InTurn:
    """Has so many seconds of the thread in all.

    Args:
        budget_s: these seconds.
    """

    def __init__(self, budget_s: float) -> None:
        self._left_s = budget_s

    def tried(self, ways: Sequence[Callable[[], T]], *, once_s: float) -> list[list[T]] | None:
        """What each way gave, try by try; None where time does not suffice to try each once, and where one fails.

        Args:
            ways: of doing the same.
            once_s: what the dearest of them takes, about.
        """
        a_try = len(ways) * once_s
        tries = _TRIES if _TRIES * a_try <= self._left_s else 1
        if tries * a_try > self._left_s:
            return None
        began = time.thread_time()
        gave: list[list[T]] = [[] for _ in ways]
        try:
            for _ in range(tries):
                for way, given in zip(ways, gave, strict=True):
                    given.append(way())
        except FAULTS:
            return None
        finally:
            self._left_s -= time.thread_time() - began
        return gave
