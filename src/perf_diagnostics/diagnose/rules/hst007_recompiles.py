"""HST007: the model is compiled again while it trains."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import LEAST_STEPS, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import similar_lengths
from perf_diagnostics.diagnose.rule_parts.excess import excess_of
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.time_series import lost_ratio, period_of
from perf_diagnostics.diagnose.wording import counted, percent_between
from perf_diagnostics.records import Int64


@dataclass(frozen=True)
class Recompiles:
    """The model is compiled again while it trains.

    What it measures:
        How many graphs torch.compile added during the steady steps, in how many of them, and what these steps took
        beyond the others.

    Why it matters:
        A compilation takes as long as hundreds or thousands of steps. It returns whenever a guard fails: a new shape, a
        number that changed, a module in another mode; after eight times (torch's limit) the code runs uncompiled.

    What to try:
        Equal shapes (pad, or bucket lengths), ``mark_dynamic`` for the dimension that changes, tensors in place of
        Python numbers; ``TORCH_LOGS=recompiles`` says which guard failed.

    When it is wrong:
        A second graph may be one that is needed (evaluation, the last short batch) and comes once.
    """

    code: ClassVar[str] = "HST007"
    name: ClassVar[str] = "recompiles"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("time lost in steps that compile to warn from", "judgement, as for stalls")
    )
    critical_share: float = field(default=0.20, metadata=limit("… that is critical", "judgement"))
    step_share: float = field(
        default=0.1, metadata=limit("share of steps that compile, to warn whatever they cost", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        new = _new_graphs(facts)
        count = int(new.sum())
        numbers = [Evidence(metric="graphs compiled in the steady steps", value=count, limit=0, n=facts.steps)]
        if not count:
            return cleared(self, "nothing was compiled in the steady steps", *numbers)
        chosen = new > 0
        period = period_of(chosen, facts.step_numbers)
        often = lost_ratio(chosen, np.ones(facts.steps), period).surely_at_least(self.step_share)
        cost = ask(excess_of, facts, chosen)
        graded = None
        if cost is not None:
            numbers.append(evidence("lost in steps that compile", cost.share, "%", limit=self.warn_share))
            graded = grade(cost.share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        severity = Severity.INFO if graded is None else graded.severity
        if often and severity is Severity.INFO:
            severity = Severity.WARNING
        costs = "" if cost is None else f", which cost {percent_between(cost.share)} of all time"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=f"torch.compile made {counted(count, 'new graph')} in {counted(int(chosen.sum()), 'steady step')}"
            f"{costs}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                *similar_lengths(facts),
                Remedy("Mark the dimension that changes as dynamic; TORCH_LOGS=recompiles says which guard failed."),
            ),
            recoverable=None if cost is None else recoverable(cost.share, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=often or (graded is not None and graded.sure),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if cost is None else cost.claims,
        )


def _new_graphs(facts: TrialFacts) -> Int64:
    """How many graphs each steady step added; the first one's are those since the last step of the warm-up."""
    facts.column("graphs", least=LEAST_STEPS)
    table = facts.result.steps[0]
    so_far = table.columns["graphs"]
    new: Int64 = np.diff(so_far, prepend=so_far[:1])[~table.columns["warmup"]]
    return new
