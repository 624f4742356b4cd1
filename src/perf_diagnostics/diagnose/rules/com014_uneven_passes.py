"""COM014: some ranks have fewer batches a pass than others, and wait for these at the end of each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.uneven_passes import UnevenPasses
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class UnevenPassesOfRanks:
    """Ranks have different numbers of batches in a pass over their data.

    What it measures:
        The steps that each rank takes in each whole pass over its data, and the time of those that the rank with the
        most takes when another one has no more batches, times the part of the ranks that have none: what the job loses
        to ranks without work, over all time. A job that shares the same batches out evenly takes as many steps fewer.

    Why it matters:
        DistributedDataParallel exchanges gradients in every step of every rank. Under ``model.join()`` a rank without
        batches goes on answering the exchanges of the others, and trains on nothing. Without it the ranks go out of
        step: a rank begins its next pass, its gradients are averaged with those of another pass, and at the end the
        last ones wait for an exchange that never comes, until it times out.

    What to try:
        A DistributedSampler, which gives all ranks as many samples; shards and streams of one size, or cut to the
        shortest (``drop_last``, a number of steps a pass).

    When it is wrong:
        Ranks that train models of their own may have as many batches as they like. Passes are counted at the loaders
        that were seen, so what nobody saw end has no passes, and the last pass, which may have been cut, is left out.
    """

    code: ClassVar[str] = "COM014"
    name: ClassVar[str] = "uneven-passes"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("time of ranks that have no batch left, of all time", "judgement, as for pauses")
    )

    def check(self, facts: TrialFacts) -> Answer:
        passes = UnevenPasses.of(facts.result)
        idle, steps = passes.idle, passes.steps
        numbers = (
            evidence("ranks without a batch left", idle, "%", limit=self.warn_share),
            Evidence(metric="steps a pass of the rank with the fewest", value=min(steps), n=passes.count),
            Evidence(metric="steps a pass of the rank with the most", value=max(steps), n=passes.count),
        )
        level = grade(idle, ((Severity.WARNING, self.warn_share),))
        if level is None:
            alike = "equally many steps" if min(steps) == max(steps) else f"{min(steps)} to {max(steps)} steps"
            return cleared(self, f"the ranks take {alike} a pass", *numbers)
        few, most = steps.index(min(steps)), steps.index(max(steps))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"Rank {few} has {counted(min(steps), 'step')} in a pass over its data, and rank {most} has "
            f"{max(steps)}: {percent(idle.value)} of the ranks' time is that of ranks without a batch left.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    "Give all ranks equally many batches: a DistributedSampler (with its set_epoch() in each pass), "
                    "shards of one size, or in each pass only the steps for which the shortest rank has batches."
                ),
                Remedy(
                    "Until then train under model.join(): without it the ranks average gradients of different passes, "
                    "and the last exchange waits until it times out."
                ),
            ),
            recoverable=recoverable(idle, self.family, realised=1.0),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
        )
