"""HST003: memory is taken from the driver, or given back, again and again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import TREND_STEPS, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.advice import similar_lengths
from perf_diagnostics.diagnose.rule_parts.excess import Excess, excess_of
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.intervals import mean_interval
from perf_diagnostics.diagnose.wording import percent, percent_between
from perf_diagnostics.records import Bools


@dataclass(frozen=True)
class AllocationChurn:
    """Memory is taken from the driver again and again.

    What it measures:
        In how many steady steps the device allocator asked the driver for memory or emptied its cache to find some,
        and what these steps took beyond the others. Few such steps count where they surely cost as much as the limit.

    Why it matters:
        PyTorch keeps memory and reuses it; in a steady step there is no such call. Each one is slow, and freeing
        waits for the device.

    What to try:
        No ``empty_cache()`` in the loop; ``PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True``; the same shapes in each
        step (pad, or bucket lengths); less memory, if the allocator frees and retries.

    When it is wrong:
        The first batch of a new largest size allocates. Where every step does, there is nothing to compare them with,
        and the cost is not known without a profiler window.
    """

    code: ClassVar[str] = "HST003"
    name: ClassVar[str] = "allocation-churn"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(default=0.02, metadata=limit("time lost in allocation to warn from", "judgement"))
    critical_share: float = field(default=0.10, metadata=limit("… that is critical", "judgement"))
    step_share: float = field(
        default=0.5,
        metadata=limit("share of steps that allocate, to be churn where so many do that no cost is known", "judgement"),
    )
    info_step_share: float = field(
        default=0.1, metadata=limit("share of steps that allocate, to look at what they cost", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("device_allocs")
        facts.column("wall_ns", least=TREND_STEPS)
        chosen = _allocating(facts)
        steps = mean_interval(chosen).within(0.0, 1.0)
        number = evidence("steps that allocate", steps, "%", limit=self.info_step_share)
        cost = ask(excess_of, facts, chosen)
        dear = cost is not None and cost.share.surely_at_least(self.warn_share)
        if steps.value < self.info_step_share and not dear:
            return cleared(self, f"{percent(steps.value)} of the steps asked the driver for memory", number)
        severity = self._severity(cost, often=steps.surely_at_least(self.step_share))
        costs = () if cost is None else (evidence("lost in these steps", cost.share, "%", limit=self.warn_share),)
        retries = ask(lambda: facts.alloc_retries)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=severity,
            summary=f"{percent_between(steps)} of the steps take memory from the driver or give it back"
            + (
                ": what that costs was not measured, for nearly every step does."
                if cost is None
                else f", which costs {percent_between(cost.share)} of all time."
            ),
            scope=facts.label,
            evidence=(
                number,
                *costs,
                *(() if retries is None else (Evidence(metric="allocations retried", value=retries, limit=0),)),
            ),
            remedies=(
                Remedy("Take empty_cache() out of the loop."),
                *similar_lengths(facts),
                Remedy("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."),
            ),
            recoverable=None if cost is None else recoverable(cost.share, self.family),
            confidence=confidence(
                Tier.SHARE if cost is None else Tier.SHARE_AND_CAUSE,
                sure=severity is not Severity.INFO,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={} if cost is None else cost.claims,
            symptom_of=("MEM003",),
        )

    def _severity(self, cost: Excess | None, *, often: bool) -> Severity:
        if cost is None:
            return Severity.WARNING if often else Severity.INFO
        found = grade(cost.share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        return Severity.INFO if found is None else found.severity


def _allocating(facts: TrialFacts) -> Bools:
    """Steady steps in which a counter of the allocator grew; a reading that was lost counts as no growth."""
    grew = np.zeros(facts.steps, dtype=bool)
    counters = [values for name in ("device_allocs", "alloc_retries") if (values := facts.table.get(name)) is not None]
    if not counters:
        raise facts.missing("device_allocs", "the allocator's counters were not read in each step")
    for values in counters:
        grew |= np.nan_to_num(np.diff(values, prepend=values[:1])) > 0
    return grew
