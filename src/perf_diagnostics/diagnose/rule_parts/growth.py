"""Phases that take longer with every step: by how much, and what that cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts
from perf_diagnostics.diagnose.rule_parts.stalls import rhythm_outside
from perf_diagnostics.diagnose.statistics.rising import Rising, rising
from perf_diagnostics.records import ALL_PHASES, Float64, Phase

#: A phase that takes less of the step throughout neither grows nor shows that the others do not grow alike.
_LEAST_SHARE = 0.02

#: A phase stays behind that grows by less than this part of what another one does, each relative to its own beginning.
_BEHIND = 0.5

#: Work beside the model that grows by more than so many times what the model does is not for longer batches.
_BEYOND = 3.0

#: Of a beat there are few, and others' load may lie on the last ones: it has to grow to so many times of what it was.
_GROWN = 1.5

#: What grows to so many times of what it was at first is no clock, and no other program's load.
_NO_MACHINE = 2.0


@dataclass(frozen=True)
class GrowingPhase:
    """A phase, how it rose in s, and which part of all time lay above its first steps' level.

    ``every``: in one of so many steps, at what returns with this rhythm.
    """

    phase: Phase
    rise: Rising
    lost: Interval
    every: int = 1

    @property
    def relative(self) -> float:
        """How much longer it is at the end than at first, as a part of that."""
        return self.rise.last / self.rise.first - 1 if self.rise.first > 0 else math.inf

    @property
    def grown_s(self) -> float:
        """How much longer it is at the end than at first, in s."""
        return self.rise.last - self.rise.first


def growing_phases(facts: TrialFacts) -> tuple[GrowingPhase, ...]:
    """The phases that surely rise over the trial, the one that lost most first; empty where all rise alike.

    Where none does from step to step, that which rises from one beat to the next of what is done outside of the phases
    every so many steps.

    A machine that slows down (clocks, other users) slows all phases in proportion. So one of some weight has to stay
    behind, unless what rises became twice as long.

    Raises:
        NotMeasured: too few steps.
    """
    wall = facts.column("wall_ns", least=60).astype(np.float64)
    found, relative = [], []
    for phase in ALL_PHASES:
        known = facts.table.phase_ns(phase)
        if known is None or not np.isfinite(known).all() or known.sum() < _LEAST_SHARE * wall.sum():
            continue
        rise = rising(known / 1e9)
        relative.append(_relative(known.astype(np.float64)))
        if rise is not None:
            found.append(GrowingPhase(phase, rise, rise.above.scaled(1e9 * wall.size / float(wall.sum()))))
    found.sort(key=lambda one: -one.lost.value)
    if not found:
        beating = _growing_at_beats(facts, wall)
        return () if beating is None else (beating,)
    most = max(one.relative for one in found)
    own = most >= _NO_MACHINE - 1 or any(one < _BEHIND * most for one in relative)
    return tuple(found) if own else ()


def _growing_at_beats(facts: TrialFacts, wall: Float64) -> GrowingPhase | None:
    """What returns outside of all phases and takes longer each time: a rollout, an evaluation, a step of a report."""
    beating = rhythm_outside(facts)
    period, times = None if beating is None else beating.period, facts.table.phase_ns(Phase.OTHER)
    if period is None or times is None:
        return None
    at_beats = times[period.beats] / 1e9
    rise = rising(at_beats, least_in_block=1)
    if rise is None or rise.last < _GROWN * rise.first:
        return None
    lost = rise.above.scaled(1e9 * at_beats.size / float(wall.sum()))
    return GrowingPhase(Phase.OTHER, rise, lost, every=period.steps)


def grows_with_forward(facts: TrialFacts) -> bool:
    """Whether forward gets longer as backward does, so that it is the work of a step that grows."""
    forward, backward = (facts.table.phase_ns(phase) for phase in (Phase.FORWARD, Phase.BACKWARD))
    if forward is None or backward is None:
        return False
    return _relative(forward.astype(np.float64)) >= _BEHIND * _relative(backward.astype(np.float64))


def grows_beyond_model(growing: Sequence[GrowingPhase]) -> tuple[GrowingPhase, ...]:
    """Those that more work for the model does not explain: each grew by more s than the model did, several times over.

    What loading and moving a batch take grows with the batch, as forward and backward do.
    """
    model = sum(one.grown_s for one in growing if one.phase in (Phase.FORWARD, Phase.BACKWARD))
    own = (one for one in growing if one.phase in (Phase.OPTIMIZER, Phase.OTHER))
    return tuple(one for one in own if one.grown_s > _BEYOND * model)


def _relative(times: Float64) -> float:
    """How much longer the last tenth's median is than the first tenth's, as a part of that."""
    tenths = np.array_split(times, 10)
    first, last = (float(np.median(tenth)) for tenth in (tenths[0], tenths[-1]))
    return last / first - 1 if first > 0 else math.inf if last > 0 else 0.0


def lost_to(growing: Sequence[GrowingPhase]) -> Interval:
    """What several phases lost together: their intervals put together as those of independent sums (MOVER)."""
    value = sum(one.lost.value for one in growing)
    down = math.hypot(*(one.lost.value - (one.lost.low or 0.0) for one in growing))
    up = math.hypot(*((one.lost.high or one.lost.value) - one.lost.value for one in growing))
    return Interval(value, value - down, value + up, growing[0].lost.n).within(0.0, 1.0)
