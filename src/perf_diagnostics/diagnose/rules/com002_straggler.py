"""COM002: one rank is later than the others, which wait for it inside their collectives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rank_facts import RankFacts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

#: What to look at, by the phase that makes a rank late.
_LOOK_AT = {
    Phase.DATA_WAIT: "its input: its storage, its worker processes, the length of its samples",
    Phase.TRANSFER: "its copies to the device: its PCIe link, pinned memory",
    Phase.FORWARD: "its device: clocks, temperature, other processes on it; and the size of its batches",
    Phase.BACKWARD: "its device: clocks, temperature, other processes on it; the size of its batches; and hooks or "
    "layers that do more on it in backward",
    Phase.OPTIMIZER: "what only this rank does around its optimizer's step",
    Phase.OTHER: "what only this rank does between the phases: logging, checkpoints, evaluation",
}


@dataclass(frozen=True)
class Straggler:
    """One rank takes longer than the others, which wait for it.

    What it measures:
        For each step that all ranks recorded, when every rank arrives at the exchange of its gradients: its own time
        for data, copying, forward, and what lies outside the phases; and for what it does in backward, the exchanges
        that DistributedDataParallel times itself, the first ten and each hundredth: all ranks leave them together, so
        who waits in them for less arrived later. Where ranks surely differ in backward in these, the middle difference
        is taken for all steps. Which rank is last, how often, by how much more than the median of the others, and in
        which phase. A step counts where the rank is later by more than noise: three standard deviations of ties (by the
        spread of the steps in which the rank is ahead), at most half of what it is usually late by, at least a
        hundredth of a step.

    Why it matters:
        A synchronous job runs at the pace of its slowest rank. All ranks' steps take equally long, and the victims show
        a long backward pass, because the exchange of gradients waits inside it.

    What to try:
        Mend what makes that one rank slow; the finding names the phase. If the slow rank changes from step to step,
        the lengths of batches are uneven instead (COM004).

    When it is wrong:
        Without times of exchanges (another wrapper than DistributedDataParallel, several exchanges a step) a rank that
        is slow in its own backward pass cannot be told from one that waits there; the answer says so. A rank that is
        slow in backward now and then may be so in few of the timed exchanges. Pipeline parallel ranks differ by design.
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

    def check(self, facts: TrialFacts) -> Answer:
        ranks = RankFacts.of(facts.result)
        slow = max(range(ranks.count), key=ranks.often_last)
        often, excess = ranks.often_last(slow), ranks.excess(slow)
        numbers: tuple[Evidence, ...] = (
            evidence("excess over the other ranks' median", excess, "%", limit=self.warn_share),
            Evidence(
                metric=f"steps in which rank {slow} is last",
                value=often * 100,
                unit="%",
                limit=self.same_rank_share * 100,
                n=ranks.steps,
            ),
            Evidence(metric="lateness from which a step counts, of the step", value=100 * ranks.noise(slow), unit="%"),
        )
        if ranks.arrivals is not None:
            numbers += (Evidence(metric="exchanges timed on all ranks", value=ranks.arrivals.count),)
        if often < self.same_rank_share or not excess.surely_at_least(self.warn_share):
            unseen = "" if ranks.arrivals is not None else " before backward; what each does in backward was not timed"
            says = f"none of {ranks.count} ranks is surely last by {percent(self.warn_share)}{unseen}"
            return cleared(self, says, *numbers)
        by_phase = ranks.excess_by_phase(slow)
        phase = max(by_phase, key=lambda each: by_phase[each])
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Rank {slow} of {ranks.count} is last in {percent(often)} of the steps, by "
            f"{percent(excess.value)} of a step, mostly in {str(phase).replace('_', ' ')}; the others wait for it.",
            scope=facts.label,
            evidence=(
                *numbers,
                *(
                    Evidence(metric=f"of it in {str(each).replace('_', ' ')}", value=100 * share, unit="%")
                    for each, share in by_phase.items()
                ),
            ),
            remedies=(Remedy(f"On rank {slow}, look at {_LOOK_AT[phase]}."),),
            recoverable=recoverable(excess, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
            # On the ranks that wait, the seconds are in backward.
            claims={str(Phase.BACKWARD): excess.value},
        )
