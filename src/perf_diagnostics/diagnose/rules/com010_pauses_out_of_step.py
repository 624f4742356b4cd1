"""COM010: ranks pause (to collect garbage, to save) in different steps, and each pause holds up all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import ratio_interval
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class PausesOutOfStep:
    """Ranks pause in turn instead of together.

    What it measures:
        Each rank's pauses: Python's garbage collector, and what it does outside of all phases for a quarter of a step
        longer than usual. The sum over the steps of the longest pause of any rank, less the sum of the rank that
        pauses most: what the job would save if all ranks paused in the same steps.

    Why it matters:
        The ranks meet in every step. Two that pause for 50 ms in different steps hold the job up twice, in the same
        step once. With hundreds of ranks some rank pauses in nearly every step.

    What to try:
        Collect at the same step everywhere: ``gc.disable()``, and ``gc.collect()`` every some hundred steps on all
        ranks; ``gc.freeze()`` after the first step makes collections short. Save and evaluate on all ranks at once.

    When it is wrong:
        What the machine does to a rank is a pause, too, where it happens outside of the phases.
    """

    code: ClassVar[str] = "COM010"
    name: ClassVar[str] = "pauses-out-of-step"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_pauses: int = field(
        default=3, metadata=limit("pauses of a second rank, or they are one rank's affair", "judgement")
    )
    least_pause: float = field(
        default=0.05, metadata=limit("pause over a mean step from which it counts", "judgement: what a step scatters")
    )
    warn_share: float = field(
        default=0.05, metadata=limit("what pausing together would save, of the step", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        ranks = RankFacts.of(facts.result)
        pauses = ranks.pauses_ns()
        pauses = np.where(pauses >= self.least_pause * float(ranks.wall_ns.mean()), pauses, 0.0)
        counts = np.sort(np.count_nonzero(pauses, axis=1))[::-1]
        most = int(pauses.sum(axis=1).argmax())
        apart = ratio_interval(pauses.max(axis=0) - pauses[most], ranks.wall_ns)
        numbers = (
            evidence("saved by pausing together", apart, "%", limit=self.warn_share),
            Evidence(metric="ranks that pause", value=int(np.count_nonzero(counts)), n=ranks.steps),
            Evidence(metric="pauses of all ranks", value=int(counts.sum()), n=ranks.steps),
        )
        level = grade(apart, ((Severity.WARNING, self.warn_share),))
        if level is None or counts[1] < self.least_pauses:
            return cleared(self, f"pausing together would save {percent(max(0.0, apart.value))} of a step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"{np.count_nonzero(counts)} of {ranks.count} ranks pause in different steps, and each pause "
            f"stops all of them; pausing in the same steps would save {percent(apart.value)} of the time.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("Collect on all ranks in the same step: gc.disable(), and gc.collect() every N steps."),
                Remedy("Save, evaluate and log on all ranks in the same step, or on none (in another process)."),
            ),
            recoverable=recoverable(apart.within(0.0, 1.0), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            symptom_of=("COM014",),
        )
