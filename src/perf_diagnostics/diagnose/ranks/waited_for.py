"""For whom the ranks of a training wait: for always the same one, for one now and then, or for another each time.

What a job loses in a step to the rank that arrives last is what that rank arrives later than the next one: were it
alone as quick as that, the step would be so much shorter. Who is late by no more than noise (``lateness.py``) is waited
for by nobody.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.code.phase_looks import proportion
from perf_diagnostics.diagnose.ranks.lateness import late_ns, noise_ns
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.statistics.time_series import Period, lost_ratio, period_of
from perf_diagnostics.records import Bools, Float64

#: A wait under so much of the usual one is no occasion that is counted in words; its time counts. A judgement.
IN_EARNEST = 0.1


@dataclass(frozen=True, eq=False)
class WaitedFor:
    """What each rank is waited for in each step, ``lost_ns`` of shape ``(ranks, steps)``; 0 where it is not the last.

    ``wall_ns`` is the wall time of the steps, ``numbers`` which ones of the training these are, shape ``(steps,)``.
    """

    lost_ns: Float64
    wall_ns: Float64
    numbers: NDArray[np.intp]

    @classmethod
    def of(cls, own_ns: Float64, wall_ns: Float64, numbers: NDArray[np.intp]) -> WaitedFor:
        """By what each of two or more ranks does before it arrives, ``own_ns`` of shape ``(ranks, steps)``."""
        step_ns = float(np.median(wall_ns))
        last = np.argmax(own_ns, axis=0)
        next_to_last = np.partition(own_ns, -2, axis=0)[-2]
        lost = np.zeros_like(own_ns)
        for rank in range(len(own_ns)):
            late = late_ns(own_ns, rank)
            counts = (last == rank) & (late > noise_ns(late, step_ns))
            lost[rank, counts] = (own_ns[rank] - next_to_last)[counts]
        return cls(lost, wall_ns, numbers)

    @cached_property
    def most(self) -> int:
        """The rank that is waited for longest in all."""
        return int(self.lost_ns.sum(axis=1).argmax())

    def steps(self, rank: int) -> Bools:
        """The steps in which this rank is waited for in earnest, shape ``(steps,)``.

        For at least a tenth of the wait that a mean second of its waits lies in: the small ones are many, and make up
        little.
        """
        lost = self.lost_ns[rank]
        whole = float(lost.sum())
        chosen: Bools = lost > 0 if not whole else lost >= IN_EARNEST * float(np.dot(lost, lost)) / whole
        return chosen

    def part(self, rank: int) -> Interval:
        """Its part of all that is waited for whoever is last, with Wilson's 95 % interval; without any wait: 0 of 0.

        A rank's steps that follow each other are one occasion, and occasions of uneven length count as so many of even
        length as tell the same: one long stretch says nothing about the next.
        """
        occasions = [_occasions(lost) for lost in self.lost_ns]
        together = np.concatenate(occasions)
        if not together.size:
            return Interval(0.0, None, None, 0)
        whole = float(together.sum())
        return proportion(min(1.0, float(occasions[rank].sum()) / whole), whole**2 / float(np.dot(together, together)))

    def share(self, rank: int) -> Interval:
        """What the job loses to this rank, over the wall time of all steps; few occasions, a wide interval."""
        return lost_ratio(self.lost_ns[rank], self.wall_ns, self.period(rank)).within(0.0, 1.0)

    def period(self, rank: int) -> Period | None:
        """The rhythm in which it is late, if it has one."""
        return period_of(self.lost_ns[rank], self.numbers)

    def typical_ns(self, rank: int) -> float:
        """By how much it is late in the middle one of these steps; 0 without any."""
        late = self.steps(rank)
        return float(np.median(self.lost_ns[rank, late])) if late.any() else 0.0


def _occasions(lost: Float64) -> Float64:
    """What was lost in each run of steps that lost something, shape ``(runs,)``."""
    struck = lost > 0
    begins = np.flatnonzero(struck & ~np.concatenate([[False], struck[:-1]]))
    return np.add.reduceat(lost, begins) if begins.size else np.zeros(0)
