"""Single steps that took much longer for no reason that another rule owns: how much they cost, where, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from perf_diagnostics.diagnose.facts import run_delay
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.outliers import Cause
from perf_diagnostics.diagnose.finding import Remedy
from perf_diagnostics.diagnose.loaders.waits_timed import loader_parts
from perf_diagnostics.diagnose.rule_parts.excess import beyond_neighbours, claims_of, phase_parts
from perf_diagnostics.diagnose.rule_parts.kinds_of_work import kind_of_work
from perf_diagnostics.diagnose.rule_parts.model_asked import WORTH_SAYING, ModelAsked, asked_with_gradients, model_asked
from perf_diagnostics.diagnose.rule_parts.whose_work import LEAST_PART, whose_work
from perf_diagnostics.diagnose.statistics.stability import course, excess
from perf_diagnostics.diagnose.statistics.time_series import Period, lost_ratio, period_of
from perf_diagnostics.records import Bools, Float64, Phase

#: Causes whose seconds no other rule speaks about: collections, epochs, compilation, allocation, clocks and other
#: programs have rules of their own.
UNOWNED = (Cause.LOADER_STALL, Cause.UNEXPLAINED)

#: Where a phase's seconds lie, in words.
PLACES: Mapping[Phase, str] = MappingProxyType(
    {
        Phase.DATA_WAIT: "in the wait for data",
        Phase.TRANSFER: "in the transfer",
        Phase.FORWARD: "in the forward pass",
        Phase.BACKWARD: "in the backward pass",
        Phase.OPTIMIZER: "in the optimizer",
        Phase.OTHER: "outside of all phases",
    }
)

#: A long step is a stall if at least this part of its excess has no other owner.
LEAST_UNOWNED = 0.5

#: Stalls in a phase are somebody else's up to so many times what others' load is expected to cost there.
BY_CHANCE = 2.0

_COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)


@dataclass(frozen=True, eq=False)
class Stalls:
    """The stalls among a trial's steady steps; ``lost_ns`` is 0 in all other steps, all of shape ``(steps,)``.

    ``numbers`` say which steps of the training these are; ``placed_ns`` is the part of ``lost_ns`` in the phase that
    holds most of it.
    """

    wall_ns: Float64
    numbers: NDArray[np.intp]
    lost_ns: Float64
    placed_ns: Float64
    by_phase: Mapping[Phase, float]

    @property
    def count(self) -> int:
        return int(self.steps.sum())

    @cached_property
    def steps(self) -> Bools:
        chosen: Bools = self.lost_ns > 0
        return chosen

    @property
    def typical_s(self) -> float:
        """What a stall took beyond the median step in the middle of all stalls, in s; 0 without any."""
        return float(np.median(self.lost_ns[self.steps])) / 1e9 if self.count else 0.0

    @cached_property
    def share(self) -> Interval:
        """What the stalls took beyond the median step, over all time."""
        return lost_ratio(self.lost_ns, self.wall_ns, self.period).within(0.0, 1.0)

    @cached_property
    def period(self) -> Period | None:
        """The rhythm in which they come, if they have one; else that of what lies in the one phase.

        On a machine with other users, their long steps between the beats would hide a rhythm of the loop's own.
        """
        return period_of(self.lost_ns, self.numbers) or period_of(self.placed_ns, self.numbers)

    @property
    def place(self) -> tuple[Phase, float] | None:
        """The phase that holds most of them, and its part; None where no phase was timed."""
        if not self.by_phase:
            return None
        phase = max(self.by_phase, key=lambda p: self.by_phase[p])
        return phase, self.by_phase[phase]

    @property
    def claims(self) -> dict[str, float]:
        """The share of the step by phase, for a finding."""
        return claims_of(self.share, self.by_phase)


def stalls_of(facts: TrialFacts) -> Stalls:
    """The stalls of a trial; NotMeasured with too few steps to tell them from the others."""
    long = facts.outliers
    wall = facts.column("wall_ns").astype(np.float64)
    unowned = np.sum([long.by_cause[cause] for cause in UNOWNED if cause in long.by_cause], axis=0)
    lost = np.zeros(wall.size)
    lost[long.steps] = np.where(unowned >= LEAST_UNOWNED * long.excess_s, unowned, 0.0) * 1e9
    by_phase = phase_parts(facts, lost > 0)
    return Stalls(wall, facts.step_numbers, lost, _placed(facts, lost, by_phase), by_phase)


def _placed(facts: TrialFacts, lost: Float64, by_phase: Mapping[Phase, float]) -> Float64:
    """What each step lost in the phase that holds most of all that was lost."""
    times = facts.table.phase_ns(max(by_phase, key=lambda phase: by_phase[phase])) if by_phase else None
    if times is None:
        return np.zeros_like(lost)
    above = np.nan_to_num(excess(times))
    # Scatter of the phase in steps that were long for another reason is no event of it.
    placed: Float64 = np.where(above >= LEAST_UNOWNED * lost, np.clip(above, 0.0, lost), 0.0)
    return placed


def rhythm_outside(facts: TrialFacts) -> Stalls | None:
    """What returns with a rhythm outside of all phases, seen there alone; None where nothing does.

    Where steps scatter widely (others' load, batches of many lengths) a step with more work outside is none of the long
    ones, and still the time outside by itself beats like a clock. What the collector paused and what steps took that
    compiled is theirs.
    """
    times, wall = facts.table.phase_ns(Phase.OTHER), facts.column("wall_ns").astype(np.float64)
    if times is None or not np.isfinite(times).all():
        return None
    pauses, graphs = facts.table.get("gc_ns"), facts.table.get("graphs")
    own = times - (0.0 if pauses is None else pauses)
    compiled = np.zeros(wall.size, dtype=bool) if graphs is None else np.diff(graphs, prepend=graphs[:1]) > 0
    # Where every second step has more, the running median is high at these; right beside them it is not.
    usual = ndimage.minimum_filter(course(own), size=3, mode="nearest")
    period = period_of(np.where(compiled, 0.0, np.maximum(0.0, own - usual)), facts.step_numbers)
    if period is None:
        return None
    beats = np.zeros(wall.size, dtype=bool)
    beats[period.beats] = True
    lost: Float64 = np.where(compiled, 0.0, np.maximum(0.0, beyond_neighbours(own, beats)))
    return Stalls(wall, facts.step_numbers, lost, lost, {Phase.OTHER: 1.0})


def others_part(facts: TrialFacts, phase: Phase) -> float:
    """The share of all time that other programs' long steps cost in a phase, had they hit it like those that compute.

    Who has no processor for a moment is stopped anywhere: in proportion to the phases' times, of which the median steps
    tell. (In an undisturbed loop under others' load 5.9 % were to be expected outside of all phases, and 7.1 % found;
    beside planted saves and evaluations under the same load nothing was.)
    """
    theirs = facts.outliers.by_cause.get(Cause.OUTSIDE)
    times = facts.table.phase_ns(phase)
    compute = sum(float(np.nanmedian(facts.host_column(part))) for part in _COMPUTE)
    if theirs is None or times is None or not compute > 0:
        return 0.0
    return float(theirs.sum()) / facts.outliers.total_s * float(np.nanmedian(times)) / compute


def explained_by_length(facts: TrialFacts, least: float) -> float | None:
    """R squared of step time against tokens where it is at least so much; None where length explains less."""
    explained = ask(lambda: facts.step_time_by_tokens)
    return explained if explained is not None and explained >= least else None


def against(facts: TrialFacts, phase: Phase | None, lost_ns: Float64) -> tuple[Remedy, ...]:
    """What to try against long steps in a phase, that lost ``lost_ns``, of shape ``(steps,)``.

    Calls of the model are the advice where the steps that have them lost at least half of it, and one beside others
    where they lost a part that is worth it: a save now and then is no evaluation because another step evaluates.
    """
    if phase is Phase.DATA_WAIT:
        return _against_waits(facts, lost_ns)
    if phase is Phase.FORWARD:
        return _with_calls(asked_with_gradients(facts), lost_ns, (_look_there(phase),))
    if phase in (Phase.TRANSFER, Phase.BACKWARD, Phase.OPTIMIZER):
        return (_look_there(phase),)
    seen, whose = kind_of_work(facts, Phase.OTHER), whose_work(facts, Phase.OTHER)
    if seen is not None:
        asked = model_asked(facts) if seen.kind.asks_a_model else None
        return (*seen.against_keeping, *_with_calls(asked, lost_ns, (seen.kind.remedy,)))
    return _with_calls(model_asked(facts), lost_ns, _by_function(facts) if whose is None else whose.remedies)


def _with_calls(asked: ModelAsked | None, lost_ns: Float64, others: tuple[Remedy, ...]) -> tuple[Remedy, ...]:
    """What to try where the model may be called without being trained: that, beside the others, or the others alone."""
    if asked is None:
        return others
    asked = asked.of_lost(lost_ns)
    if asked.part >= LEAST_PART:
        return (asked.remedy,)
    return others if asked.part < WORTH_SAYING else (*others, asked.remedy_for_a_part)


def _look_there(phase: Phase) -> Remedy:
    return Remedy(
        f"Look at what happens {PLACES[phase]} in these steps only: hooks, another shape, memory that is given back "
        "(empty_cache)."
    )


def _by_function(facts: TrialFacts) -> tuple[Remedy, ...]:
    """What to try where nobody saw what the time outside of the phases is spent on."""
    found = (
        Remedy("If it saves or evaluates: asynchronously or less often, or elsewhere."),
        Remedy("If it logs or computes metrics: in another thread, with nothing written to disk inside the step."),
    )
    if ask(facts.number, "num_workers") is None:
        return found
    return (*found, Remedy("If it works on batches: in the loader's workers, which do that meanwhile."))


def _against_waits(facts: TrialFacts, lost_ns: Float64) -> tuple[Remedy, ...]:
    """What to try against long waits for data: to load further ahead only where batches came late.

    A sampler that takes as long over all waits as half of what is lost in the long ones may be what makes them long.
    """
    parts, waits_ns = loader_parts(facts), facts.table.host_ns(Phase.DATA_WAIT)
    if parts is not None and waits_ns is not None:
        drawn_ns = parts.draws.value * float(waits_ns.sum())
        if parts.worth_saying and drawn_ns >= LEAST_PART * float(lost_ns.sum()):
            return (parts.remedy,)
    workers, depth = ask(facts.number, "num_workers"), ask(facts.number, "prefetch_factor")
    if workers and ask(run_delay.batches_lay_ready, facts):
        says = "In most of the wait a batch lay ready, and the loop had no core to take it: try fewer workers, or none."
        return (Remedy(says),)
    slow = Remedy("Look for samples that take much longer than others, and for storage that stalls.")
    if workers == 0:
        return (slow, Remedy("Load in workers, so that the next batches are made while a slow one is waited for."))
    deeper = "Let the loader's workers work further ahead, so that a slow batch is not waited for."
    return (Remedy(deeper, {} if depth is None else {"prefetch_factor": 2 * int(depth)}), slow)
