"""How long a scoring run still takes: by what its runs took so far, and by a prior before there are any."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

#: What a run of a real arm takes on two quiet cores, in s, and how many measured ones outweigh that.
PRIOR_S, PRIOR_RUNS = 7.0, 3


@dataclass
class Progress:
    """Counts runs down from ``left`` and says on standard error how long the rest takes.

    ``ran`` tells how many runs were really made so far; what is found again in the folder takes no time.
    """

    left: int
    ran: Callable[[], int]
    clock: Callable[[], float] = time.monotonic
    _began_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._began_s = self.clock()

    @property
    def each_s(self) -> float:
        """What a run takes: of the runs made, and of a few that take the prior."""
        spent = self.clock() - self._began_s
        runs = self.ran()
        return ((spent if runs else 0.0) + PRIOR_S * PRIOR_RUNS) / (runs + PRIOR_RUNS)

    @property
    def left_s(self) -> float:
        return self.left * self.each_s

    def done(self, runs: int) -> None:
        """So many of the runs are over."""
        self.left = max(0, self.left - runs)

    def say(self, what: str) -> None:
        spent = self.clock() - self._began_s
        print(f"[{_minutes(spent)} spent, about {_minutes(self.left_s)} left] {what}", file=sys.stderr, flush=True)


def _minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
