"""What chosen steps took beyond the others, and in which phases: for rules that know which steps are to blame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.statistics.intervals import event_interval
from perf_diagnostics.diagnose.statistics.stability import excess
from perf_diagnostics.diagnose.statistics.time_series import RARE, cycle_ratio, period_of
from perf_diagnostics.records import ALL_PHASES, Bools, Float64, Phase

#: So many steps of either kind it takes to compare them.
LEAST_COMPARED = 3

#: A step is compared with so many others around it.
NEIGHBOURS = 10


@dataclass(frozen=True, eq=False)
class Excess:
    """What the chosen steps took beyond those around them, over all time, and which part lies in which phase.

    ``among`` is the share of the steps that were chosen.
    """

    share: Interval
    among: Interval
    by_phase: Mapping[Phase, float]

    @property
    def claims(self) -> dict[str, float]:
        """The share of the step by phase, for a finding."""
        return claims_of(self.share, self.by_phase)


def claims_of(share: Interval, by_phase: Mapping[Phase, float]) -> dict[str, float]:
    """A share of the step, spread over the phases as their parts say."""
    return {str(phase): part * share.value for phase, part in by_phase.items() if part > 0}


def excess_of(facts: TrialFacts, chosen: Bools, cycles: NDArray[np.intp] | None = None) -> Excess:
    """Compare the chosen steady steps with the others; round by round, where the positions of their begins are given.

    Raises:
        NotMeasured: there are too few steps of one kind.
    """
    wall = facts.column("wall_ns").astype(np.float64)
    if min(int(chosen.sum()), int((~chosen).sum())) < LEAST_COMPARED:
        raise NotMeasured(
            "steps", f"{int(chosen.sum())} of {wall.size} steps; that leaves nothing to compare them with"
        )
    lost = beyond_neighbours(wall, chosen)
    share = _share(facts, lost, wall, chosen) if cycles is None else cycle_ratio(lost, wall, cycles)
    return Excess(
        share=share.within(0.0, 1.0),
        among=facts.ratio("steps", chosen.astype(np.float64), np.ones(wall.size)).within(0.0, 1.0),
        by_phase=phase_parts(facts, chosen),
    )


def with_aftermath(
    facts: TrialFacts, chosen: Bools, share: Interval, cycles: NDArray[np.intp] | None = None
) -> Interval:
    """What is lost in the chosen steps as one phase shows it, with an upper end that holds what all of the step shows.

    What stops a loop also leaves it cold: a collector has walked through the caches, and after a fork each page that is
    written is copied first. That goes with the fault, and lies in phases that are not its own, or, where it stopped the
    loop at a step's end, in the next step (CPU time of a step of 4 ms after a collection of 400,000 containers: 9 to
    13 % more, torch 2.13). Where too few steps are left to compare with, the share stands as it is.

    Args:
        facts: the trial's.
        chosen: which steady steps the fault is in, or just before.
        share: what it takes of the step by its own phase.
        cycles: where its rounds begin, if it comes in such: positions of steps.
    """
    found = ask(excess_of, facts, chosen, cycles)
    if found is None or found.share.high is None:
        return share
    after = chosen | np.roll(chosen, 1)
    after[0] = chosen[0]
    both = ask(excess_of, facts, after, cycles)
    more = 0.0 if both is None else max(0.0, both.share.value - found.share.value)
    return share.reaching(min(1.0, found.share.high + more))


def beyond_neighbours(wall: Float64, chosen: Bools) -> Float64:
    """What each chosen step took beyond the median of the ten others nearest to it; 0 in all others.

    A machine that runs at two speeds, or drifts, is at the same one around a step. Chosen steps that were shorter
    count as well: leaving them out would make a cost of mere scatter.
    """
    others, lost = np.flatnonzero(~chosen), np.zeros(wall.size)
    for at in np.flatnonzero(chosen):
        middle = int(np.searchsorted(others, at))
        first = min(max(0, middle - NEIGHBOURS // 2), max(0, others.size - NEIGHBOURS))
        lost[at] = wall[at] - float(np.median(wall[others[first : first + NEIGHBOURS]]))
    return lost


def _share(facts: TrialFacts, lost: Float64, wall: Float64, chosen: Bools) -> Interval:
    """By whole cycles where the chosen steps have a rhythm, by counting them where they are few, else by batches."""
    period, value = period_of(chosen, facts.step_numbers), float(lost.sum() / wall.sum())
    if period is not None:
        return cycle_ratio(lost, wall, period.beats)
    if float(np.mean(chosen)) > RARE or not value > 0:
        return cycle_ratio(lost, wall, np.flatnonzero(chosen))
    # Counting leaves out what chosen steps were shorter by: only how wide the interval is comes from it.
    counted = event_interval(lost, wall)
    return counted.scaled(value / counted.value)


def phase_parts(facts: TrialFacts, chosen: Bools) -> dict[Phase, float]:
    """How what the chosen steps took beyond the median of those around is spread over the phases, in parts that make 1.

    Empty where no phase was timed, or none took longer.
    """
    times = {phase: _above(facts, phase, chosen) for phase in ALL_PHASES}
    sums = {phase: float(above.sum()) for phase, above in times.items() if above is not None}
    total = sum(sums.values())
    return {phase: part / total for phase, part in sums.items()} if total > 0 else {}


def _above(facts: TrialFacts, phase: Phase, chosen: Bools) -> Float64 | None:
    times = facts.table.phase_ns(phase)
    if times is None or not chosen.any() or np.isnan(times).all():
        return None
    above: Float64 = np.maximum(0.0, np.nan_to_num(excess(times)[chosen]))
    return above
