"""A sampler for days: it reads half as often after every so many samplings, and tells meanwhile what was read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from perf_diagnostics.measure.observation import Instrument, Observations, Sampler

T = TypeVar("T")

#: Rarer than around a trial, whose idle parent samples: here the thread takes turns with the training's own.
INTERVAL_NS = 200_000_000

#: After every so many samplings (the first time after 67 minutes) it reads half as often: a day's samples stay 10 MB.
SAMPLINGS_A_RATE = 20_000


class SlowingSampler(Sampler):
    """Reads half as often after every so many samplings, but never more rarely than asked for.

    Args:
        instruments: what to read.
        observations: where failures are collected.
        clock: host clock in ns.
        longest_ns: the longest time between two samplings; None: no bound.
    """

    def __init__(
        self,
        instruments: Sequence[Instrument],
        observations: Observations,
        *,
        clock: Callable[[], int],
        longest_ns: int | None = None,
    ) -> None:
        super().__init__(instruments, observations, clock=clock, interval_ns=INTERVAL_NS)
        self._slower_at = SAMPLINGS_A_RATE
        self._longest_ns = longest_ns
        self._reading = threading.Lock()

    def tick(self, now_ns: int | None = None) -> int:
        with self._reading:
            if self.samplings >= self._slower_at:
                self._slower_at += SAMPLINGS_A_RATE
                self._interval_ns = min(2 * self._interval_ns, self._longest_ns or 2 * self._interval_ns)
            return super().tick(now_ns)

    def meanwhile(self, read: Callable[[], T]) -> T | None:
        """What ``read`` gives while no reading is under way; None where one is, which may take 20 ms or hang."""
        if not self._reading.acquire(blocking=False):
            return None
        try:
            return read()
        finally:
            self._reading.release()
