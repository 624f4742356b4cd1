"""Single long pauses among many short steps: which phase each of their seconds lies in, and whose it is.

A full collection of 200 ms among a hundred steps of 6 ms is a quarter of the time, and says nothing about the optimizer
of the other 99, yet with batches of all steps the interval of its share includes nearly everything. So the seconds of
single long pauses are kept apart from those that every step has. Nothing is dropped: they are in all totals, in the
wall time and under their own cause. The method is post-stratification (Holt & Smith, JRSS A 142, 1979; Cochran,
*Sampling Techniques*, 1977, chapter 5A.9): how many pauses fell into a trial says nothing about the time between them,
so what is inferred about that time holds given their number.

Nothing in this module knows what a trial is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.outliers import LEAST_PART, Cause, Outliers
from perf_diagnostics.diagnose.statistics.intervals import Interval, median_absolute_deviation, ratio_interval
from perf_diagnostics.diagnose.statistics.stability import MANY_DEVIATIONS, excess
from perf_diagnostics.diagnose.statistics.time_series import RARE, lost_ratio, period_of
from perf_diagnostics.records import Float64, Phase

#: Causes whose seconds belong to no phase, wherever they fell: rules of their own speak about them.
TAGGED = (Cause.GC, Cause.COMPILE, Cause.ALLOC_RETRY, Cause.THROTTLE, Cause.OUTSIDE)

#: Causes that are a wait for data: no other phase's seconds, and the wait's own.
WAITED = (Cause.EPOCH_EDGE, Cause.LOADER_STALL)

#: A long step of no known cause was stopped where this part of what it took longer lies; else all of it was slow, as a
#: step with a longer batch is. As STB002, from planted stalls (0.75 to 1.0) and noisy controls (spread).
IN_ONE_PLACE = 0.7


@dataclass(frozen=True, eq=False)
class Pauses:
    """What single long pauses took of each step, in ns; each array of the shape ``(steps,)``.

    ``tagged`` are, by the phase they fell in, seconds of a known cause, which are no phase's own; ``own`` seconds that
    are the phase's own: without a known cause and in one place, or a wait for data. 0 in all steps without a pause.
    """

    tagged: Mapping[Phase, Float64]
    own: Mapping[Phase, Float64]

    @cached_property
    def total(self) -> Float64:
        """What all pauses took of each step."""
        taken: Float64 = np.sum([*self.tagged.values(), *self.own.values()], axis=0)
        return taken


def pauses_of(long: Outliers | None, times: Mapping[Phase, Float64], steps: int, *, known_only: bool) -> Pauses:
    """The pauses among the outliers of so many steps: what up to a fifth of the steps took beyond all others.

    Where more are outliers (two speeds of a busy machine), what the fifth has in common with these is in every batch of
    steps, and no pause.

    Args:
        long: the outliers; None where there are too few steps to tell them.
        times: time of each phase in each step, in ns (NaN: lost); a step that lost any has no pause.
        steps: how many there are.
        known_only: leave out those of no known cause (where the batches' lengths explain the long steps).
    """
    found = Pauses(*({phase: np.zeros(steps) for phase in times} for _ in range(2)))
    if long is None or not len(long):
        return found
    at = long.steps
    above = {phase: _beyond_scatter(each)[at] for phase, each in times.items()}
    whole = np.all([np.isfinite(each[at]) for each in times.values()], axis=0)
    rare = _rare_part(long, steps)
    tagged, waited, unknown = _seconds(long, TAGGED, WAITED, (Cause.UNEXPLAINED,)) * (whole * rare)
    if Phase.DATA_WAIT in above:
        waited = np.minimum(waited, above[Phase.DATA_WAIT])
        found.own[Phase.DATA_WAIT][at] = waited
        above[Phase.DATA_WAIT] = above[Phase.DATA_WAIT] - waited
    room = np.sum(list(above.values()), axis=0)
    in_one_place = np.max(list(above.values()), axis=0) >= IN_ONE_PLACE * room
    # What phases took longer need not add up to what the step did: no phase gives more than it took.
    tagged = np.minimum(tagged, room)
    unknown = np.where(in_one_place, np.minimum(unknown, room - tagged), 0.0)
    for phase, each in above.items():
        part = np.divide(each, room, out=np.zeros_like(each), where=room > 0)
        found.tagged[phase][at] = tagged * part
        if not known_only:
            found.own[phase][at] += unknown * part
    return found


def _rare_part(long: Outliers, steps: int) -> Float64:
    """The part of each outlier's excess that no more than a fifth of the steps have, as in :func:`lost_ratio`."""
    lost = np.zeros(steps)
    lost[long.steps] = long.excess_s
    common = float(np.quantile(lost, 1 - RARE, method="lower"))
    part: Float64 = np.maximum(0.0, 1 - common / long.excess_s)
    return part


def _seconds(long: Outliers, *kinds: tuple[Cause, ...]) -> Float64:
    """What each kind of cause took of each long step, in ns, shape ``(kinds, outliers)``.

    What carries less than a fifth of a step's excess is the scatter of every step, and goes to the others.
    """
    each = 1e9 * np.array([np.sum([long.by_cause[cause] for cause in causes], axis=0) for causes in kinds])
    excess = long.excess_s * 1e9
    each = np.where(each >= LEAST_PART * excess, each, 0.0)
    scaled: Float64 = each * (excess / np.sum(each, axis=0))
    return scaled


def _beyond_scatter(times: Float64) -> Float64:
    """How far each value lies above those around it, where that is more than the others scatter; else 0."""
    above = excess(times)
    scatter = median_absolute_deviation(above[np.isfinite(above)])
    known = np.nan_to_num(above)
    beyond: Float64 = np.where(known > MANY_DEVIATIONS * scatter, known, 0.0)
    return beyond


def own_ratio(
    times: Float64,
    wall: Float64,
    *,
    tagged: Float64,
    own: Float64,
    elsewhere: Float64,
    numbers: NDArray[np.intp] | None = None,
) -> Interval:
    """The share of the time that is a phase's own, ``sum(times - tagged) / sum(wall)``, with its interval.

    The value needs no model: it is that of all steps, less what pauses of a known cause took of the phase. The interval
    is that of the time between the pauses (:func:`ratio_interval`), and of the phase's own pauses, which are counted
    (:func:`lost_ratio`); both are put together as independent (MOVER: Zou & Donner, Statistics in Medicine 27, 2008).
    Pauses that are not the phase's own are taken as they fell: the interval is that of the share of the time that was
    measured, and how often such pauses come is the question of the rules that own them.

    Simulated coverage of the nominal 95 % for 100 and 400 AR(1) steps (rho 0 and 0.6, each phase scatters by 5 %) with
    pauses of 5 to 50 times a step at rates of 0.5, 2 and 5 %, of which at least one came: 93 to 99 % where the pauses
    lie in another phase, with a known cause or without, at widths of 0.002 to 0.011 (batches of all steps: 0.12 to
    0.27, for the share in the long run); 91 to 98 % where collections lie in the phase itself; 95 to 100 % where the
    pauses are the phase's own, for the share in the long run (batches: 86 to 99 %).

    Args:
        times: of the phase, in ns a step, shape ``(steps,)`` like all others.
        wall: of the whole step.
        tagged: what pauses of a known cause took of the phase.
        own: what the phase's own pauses took.
        elsewhere: what pauses took that are not its own, in all phases (``tagged`` included).
        numbers: of these steps in the training, ascending; None: they follow each other. A rhythm goes on across steps
            that are left out.

    Raises:
        ValueError: see :func:`ratio_interval`.
    """
    if not (elsewhere.any() or own.any()):
        return ratio_interval(times, wall, as_it_went=True)
    left = wall - elsewhere
    usual = ratio_interval(times - tagged - own, left - own, as_it_went=True)
    part = float(left.sum()) / float(wall.sum())
    return (_with_events(usual, own, left, numbers) if own.any() else usual).scaled(part)


def _with_events(usual: Interval, own: Float64, left: Float64, numbers: NDArray[np.intp] | None) -> Interval:
    """The share of the time ``left`` that is the phase's own pauses, and its ``usual`` share of the rest."""
    s = usual.within(0.0, 1.0)
    events = lost_ratio(own, left, period_of(own, numbers)).within(0.0, 1.0)
    between = 1 - events.value
    value = usual.value * between + events.value
    if s.low is None or s.high is None or events.low is None or events.high is None:
        return Interval(value, None, None, usual.n)
    down = math.hypot(between * (s.value - s.low), (1 - s.value) * (events.value - events.low))
    up = math.hypot(between * (s.high - s.value), (1 - s.value) * (events.high - events.value))
    return Interval(value, value - down, value + up, usual.n)
