"""COM002: one rank is later than the others, always or now and then; they wait for it inside their collectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.ranks.rank_loads import load_over_others
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import duration, percent, percent_between
from perf_diagnostics.records import Bools, Phase

#: What to look at, by the phase that makes a rank late.
_LOOK_AT = {
    Phase.DATA_WAIT: "its input (its storage, its worker processes, the length of its samples)",
    Phase.TRANSFER: "its copies to the device (its PCIe link, pinned memory)",
    Phase.FORWARD: "its device (clocks, temperature, other processes on it) and the size of its batches",
    Phase.BACKWARD: "its device (clocks, temperature, other processes on it), the size of its batches, and hooks or "
    "layers that do more on it in backward",
    Phase.OPTIMIZER: "what only this rank does around its optimizer's step",
    Phase.OTHER: "what only this rank does between the phases (logging, checkpoints, evaluation)",
}


@dataclass(frozen=True)
class Straggler:
    """One rank takes longer than the others, which wait for it.

    What it measures:
        For each step that all ranks recorded, when every rank arrives at the exchange of its gradients: its own time
        for data, copying, forward, and what lies outside the phases, on the CPU without the waits for collectives in
        these (a barrier, a reduction, batch normalisation's statistics under DistributedDataParallel); and for what it
        does in backward, the exchanges that DistributedDataParallel times itself, the first ten and each hundredth: all
        ranks leave them together, so who waits in them for less arrived later. Where ranks surely differ in backward in
        these, the middle difference is taken for all steps. Which rank is last, how often, by how much more than the
        median of the others, and in which phase. A step counts where the rank is later by more than noise: three
        standard deviations of ties (by the spread of the steps in which the rank is ahead), at most half of what it is
        usually late by, at least a hundredth of a step. A rank that is late in few steps is named where what the job
        loses to it there (what it arrives later than the next one) is surely a tenth of all time, and surely most of
        what is lost to all ranks, counted by occasions.

    Why it matters:
        A synchronous job runs at the pace of its slowest rank. All ranks' steps take equally long, and the victims show
        a long backward pass, because the exchange of gradients waits inside it. One rank that is slow in every tenth
        step holds all of them up in every tenth step.

    What to try:
        Mend what makes that one rank slow; the finding names the phase, whether it has more to do in these steps, and
        the rhythm of its pauses, if there is one. If the slow rank changes from step to step, the lengths of batches
        are uneven instead (COM004).

    When it is wrong:
        Without times of exchanges (another wrapper than DistributedDataParallel, several exchanges a step) a rank that
        is slow in its own backward pass cannot be told from one that waits there; the answer says so. A rank that is
        slow in backward now and then may be so in few of the timed exchanges: that is not seen. On a device, what
        synchronises ranks before backward (batch normalisation) hides who is late there. Pipeline parallel ranks
        differ by design.
    """

    code: ClassVar[str] = "COM002"
    name: ClassVar[str] = "straggler"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    same_rank_share: float = field(
        default=0.60, metadata=limit("share of steps in which the same rank is last", "TraceML's bucket rule: 60 %")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("mean excess over the middle rank, of the step", "TraceML, GPU profilers: 10 %")
    )
    same_rank_wait: float = field(
        default=0.60, metadata=limit("part of all waits that is for a rank late in few steps", "as same_rank_share")
    )
    uneven: float = field(
        default=0.10, metadata=limit("what the late rank has more of than the others, to name it", "as COM004")
    )

    def check(self, facts: TrialFacts) -> Answer:
        ranks = RankFacts.of(facts.result)
        slow = max(range(ranks.count), key=ranks.often_last)
        often, excess = ranks.often_last(slow), ranks.excess(slow)
        numbers = self._numbers(ranks, slow)
        if often < self.same_rank_share or not excess.surely_at_least(self.warn_share):
            return self._now_and_then(facts, ranks, numbers)
        by_phase = ranks.excess_by_phase(slow)
        phase = max(by_phase, key=lambda each: by_phase[each])
        load = self._load(ranks, slow, np.ones(ranks.steps, dtype=np.bool_))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Rank {slow} of {ranks.count} is last in {percent(often)} of the steps, by "
            f"{percent(excess.value)} of a step, mostly {_place(phase)}; the others wait for it.",
            scope=facts.label,
            evidence=(*numbers, *_of_it(by_phase), *load.numbers),
            remedies=(*load.remedies, Remedy(f"On rank {slow}, look at {_LOOK_AT[phase]}.")),
            recoverable=recoverable(excess, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims=ranks.seconds_of(slow, by_phase),
        )

    def _numbers(self, ranks: RankFacts, slow: int) -> tuple[Evidence, ...]:
        found = (
            evidence("excess over the other ranks' median", ranks.excess(slow), "%", limit=self.warn_share),
            Evidence(
                metric=f"steps in which rank {slow} is last",
                value=ranks.often_last(slow) * 100,
                unit="%",
                limit=self.same_rank_share * 100,
                n=ranks.steps,
            ),
            Evidence(metric="lateness from which a step counts, of the step", value=100 * ranks.noise(slow), unit="%"),
        )
        if ranks.arrivals is None:
            return found
        return (*found, Evidence(metric="exchanges timed on all ranks", value=ranks.arrivals.count))

    def _now_and_then(self, facts: TrialFacts, ranks: RankFacts, numbers: tuple[Evidence, ...]) -> Answer:
        """Nobody is always the last one: is it for one rank all the same that the others wait where they do?"""
        waits = ranks.waited_for
        slow, unseen = waits.most, ""
        if ranks.arrivals is None:
            unseen = " before backward; what each does in backward was not timed"
        lost, part, late = ranks.lost(slow), waits.part(slow), waits.steps(slow)
        mostly_one = part.surely_at_least(self.same_rank_wait) and ranks.often_last(slow) < self.same_rank_share
        if not (mostly_one and lost.surely_at_least(self.warn_share)):
            says = f"none of {ranks.count} ranks is surely last by {percent(self.warn_share)} of a step{unseen}"
            return cleared(self, says, *numbers)
        by_phase, period = ranks.lost_by_phase(slow), waits.period(slow)
        phase = max(by_phase, key=lambda each: by_phase[each])
        load = self._load(ranks, slow, late)
        rhythm = "" if period is None else f", every {period.steps} steps"
        look = _LOOK_AT[phase] if period is None else f"what it does every {period.steps} steps: {_LOOK_AT[phase]}"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Rank {slow} of {ranks.count} is late in {percent(float(late.mean()))} of the steps{rhythm}, "
            f"by {duration(waits.typical_ns(slow) / 1e9)} there, mostly {_place(phase)}: the others wait for it for "
            f"{percent_between(lost)} of all time, {percent(part.value)} of all that they wait for any rank.",
            scope=facts.label,
            evidence=(
                evidence(f"time lost to rank {slow} in the steps it is late in", lost, "%", limit=self.warn_share),
                evidence(f"part of all waits that is for rank {slow}", part, "%", limit=self.same_rank_wait),
                Evidence(metric=f"steps in which rank {slow} is waited for", value=int(late.sum()), n=ranks.steps),
                *_of_it(by_phase),
                *load.numbers,
            ),
            remedies=(*load.remedies, Remedy(f"On rank {slow}, look at {look}.")),
            recoverable=recoverable(lost, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
            claims=ranks.seconds_of(slow, by_phase),
        )

    def _load(self, ranks: RankFacts, slow: int, steps: Bools) -> _Load:
        """Whether the late rank has more to do in the steps in which it is late, as far as anybody counted."""
        for noun in ("tokens", "samples"):
            over = ask(load_over_others, ranks, noun, slow, steps)
            if over is None:
                continue
            number = Evidence(
                metric=f"ratio of rank {slow}'s {noun} to the others' where it is late",
                value=over,
                limit=1 + self.uneven,
                n=int(steps.sum()),
            )
            if over < 1 + self.uneven:
                return _Load((number,))
            more = f"Where rank {slow} is late it has {percent(over - 1)} more {noun} than the others"
            return _Load(
                (number,), (Remedy(f"{more}: give all ranks equally many, by a sampler that shares them out."),)
            )
        return _Load()


@dataclass(frozen=True)
class _Load:
    """What the late rank has more of, and what follows."""

    numbers: tuple[Evidence, ...] = ()
    remedies: tuple[Remedy, ...] = ()


def _of_it(by_phase: Mapping[Phase, float]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(metric=f"of it in {_name(phase)}", value=100 * share, unit="%") for phase, share in by_phase.items()
    )


def _place(phase: Phase) -> str:
    return "outside of all phases" if phase is Phase.OTHER else f"in {_name(phase)}"


def _name(phase: Phase) -> str:
    return str(phase).replace("_", " ")
