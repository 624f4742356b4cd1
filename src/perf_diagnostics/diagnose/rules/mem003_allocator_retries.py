"""MEM003: allocations on the device failed at first, and the allocator had to empty its cache."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.advice import less_memory
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import counted


@dataclass(frozen=True)
class AllocatorRetries:
    """The device ran out of memory for a moment, again and again.

    What it measures:
        Allocations in the steady steps that failed, and succeeded once the allocator had given its cached blocks back
        to the driver (torch's counter num_alloc_retries), and those that found no memory even then (num_ooms): the
        loop caught torch.OutOfMemoryError and went on. Beside them stands how often the allocator waited for all its
        streams (num_sync_all_streams): before each retry, and whenever the loop itself empties the cache.

    Why it matters:
        Each retry waits for the device, frees every cached block, and makes the next allocations ask the driver: a
        stall of milliseconds. It is also the last step before an out-of-memory error, which costs whatever the loop
        was doing: a batch that was given up is not trained on.

    What to try:
        A little less memory: a smaller batch with accumulation, checkpointing, lower precision; batches of similar
        length where lengths vary.

    When it is wrong:
        A retry in the first steps is part of finding the working set and is not counted here. What the stalls cost is
        not known from this counter; no gain is claimed.
    """

    code: ClassVar[str] = "MEM003"
    name: ClassVar[str] = "allocator-retries"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_retries: int = field(
        default=1, metadata=limit("retries in the steady steps", "torchtitan warns at the first")
    )

    def check(self, facts: TrialFacts) -> Answer:
        retries = facts.alloc_retries
        ooms, waits = (facts.result.value(name) for name in ("alloc_ooms", "alloc_syncs"))
        numbers = (
            Evidence(metric="retried allocations", value=retries, limit=self.least_retries, n=facts.steps),
            *(() if ooms is None else (Evidence(metric="failed allocations", value=ooms, limit=1, n=facts.steps),)),
            *(() if waits is None else (Evidence(metric="waits of the allocator", value=waits, n=facts.steps),)),
        )
        if retries < self.least_retries and not ooms:
            return cleared(self, "no allocation was retried", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if ooms else Severity.WARNING,
            summary=_summary(facts, retries, int(ooms or 0)),
            scope=facts.label,
            evidence=numbers,
            remedies=less_memory(facts),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, thin=facts.thin),
            symptom_of=("MEM001", "MEM002"),
        )


def _summary(facts: TrialFacts, retries: int, ooms: int) -> str:
    steps = counted(facts.steps, "step")
    if ooms:
        return (
            f"{counted(ooms, 'allocation')} in {steps} found no memory even after the allocator had emptied its cache, "
            "and the loop went on without: the trial is beyond what the device holds."
        )
    return (
        f"{counted(retries, 'allocation')} in {steps} failed at first: each time the allocator emptied its cache and "
        "waited for the device."
    )
