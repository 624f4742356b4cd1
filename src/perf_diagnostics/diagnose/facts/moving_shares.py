"""Whether a drift of the step time lies in some of its phases, in all of them alike, or cannot be placed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.statistics.intervals import ratio_interval
from perf_diagnostics.records import ALL_PHASES, Float64, Phase

#: A phase that takes less of the step than the first, at both ends, decides nothing; one that takes less than the
#: second need not be shown to have kept its share: no drift that matters fits into it.
LEAST_SHARE, MUCH = 0.02, 0.10


@dataclass(frozen=True)
class PartOfDrift:
    """A phase before and after a change of level, or in the first and in the last third of the steps.

    ``first`` and ``last`` are its shares of the step, and ``part`` is what it contributes to the change of the step
    time from the one to the other, with its 95 % interval. Where all phases grow alike, that is its share.
    """

    phase: Phase
    first: Interval
    last: Interval
    part: Interval

    @property
    def moved(self) -> Interval:
        """How far the part is from the share, on the way to all of the drift (above it) or to none (below): 0…1."""
        extra = self.part.value - self.first.value
        way = max(1e-9, 1 - self.first.value if extra > 0 else self.first.value)
        value = abs(extra) / way
        if self.part.low is None or self.part.high is None:
            return Interval(value, None, None, self.part.n)
        half = (self.part.high - self.part.low) / 2 / way
        return Interval(value, value - half, value + half, self.part.n)

    def moves(self, least: float) -> bool:
        """The share has surely moved, and by so much of the way."""
        low = self.moved.low
        return low is not None and low > 0 and self.moved.value >= least

    @property
    def is_much(self) -> bool:
        """It is no small part of the step, at one end at least."""
        return max(self.first.value, self.last.value) >= MUCH

    def stays(self, least: float) -> bool:
        """The share has surely moved by less, or the phase is a small part of the step throughout."""
        return not self.is_much or self.moved.surely_below(least)


def parts_of_drift(facts: TrialFacts, at: int | None = None) -> tuple[PartOfDrift, ...]:
    """Every phase that takes part in the step, the largest part of the drift first.

    With ``s`` and ``t`` the shares and ``v`` and ``w`` the mean steps of the first and the last third, a phase
    contributes ``t w - s v = s (w - v) + (t - s) w``; its interval is that of ``t - s``, whose ends come from
    independent steps. Shares scatter much less than times do, for what slows a whole step cancels in them. Outliers are
    left out: where a few stalls happened to lie is no drift.

    Args:
        facts: the trial's.
        at: position of the first step of the new level, where the time changed at once: before it and from it on.

    Raises:
        NotMeasured: too few steps, or no phase beside the rest was timed.
    """
    wall = facts.column("wall_ns", least=9).astype(np.float64)
    usual = np.ones(wall.size, dtype=bool)
    long = ask(lambda: facts.outliers.steps)
    if long is not None:
        usual[long] = False
    thirds = np.array_split(np.arange(wall.size), 3)
    ends = (thirds[0], thirds[-1]) if at is None else (np.arange(at), np.arange(at, wall.size))
    first, last = (end[usual[end]] for end in ends)
    if min(first.size, last.size) < 3:
        raise NotMeasured("steps", "too few usual steps at one end to compare it with the other")
    change = float(wall[last].mean() - wall[first].mean()) / float(wall[last].mean())
    found = []
    for phase in ALL_PHASES:
        known = facts.table.phase_ns(phase)
        if known is None or not change:
            continue
        times: Float64 = np.nan_to_num(known.astype(np.float64))
        shares = [ratio_interval(times[third], wall[third]) for third in (first, last)]
        if max(share.value for share in shares) >= LEAST_SHARE:
            found.append(PartOfDrift(phase, shares[0], shares[1], _part(shares, change)))
    if not any(one.phase is not Phase.OTHER for one in found):
        raise NotMeasured("phases", "no phase of the step was timed, so nobody knows where a drift lies")
    return tuple(sorted(found, key=lambda one: -one.part.value))


def _part(shares: Sequence[Interval], change: float) -> Interval:
    first, last = shares
    value = first.value + (last.value - first.value) / change
    ends = [(one.low, one.high) for one in shares]
    halves = [(high - low) / 2 for low, high in ends if low is not None and high is not None]
    if len(halves) < len(shares):
        return Interval(value, None, None, first.n + last.n)
    half = math.hypot(*halves) / abs(change)
    return Interval(value, value - half, value + half, first.n + last.n)
