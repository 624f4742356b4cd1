"""MEM005: memory lies idle that a larger batch could use, where a larger batch would pay."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, NotMeasured
from perf_diagnostics.diagnose.facts.memory_facts import fullness
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.statistics.scaling import fit_cost
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class MemoryHeadroom:
    """Memory is free, and a larger batch would use the time better.

    What it measures:
        The peak of memory at the largest measured batch, and the part of its step that is a fixed cost, from the fit of
        step time over batch.

    Why it matters:
        Free memory is no fault: it is one only where the batch is still so small that each step's fixed cost shows.

    What to try:
        Larger batches: measure them, for the fit says nothing about sizes nobody ran. `perf-diagnostics largest-batch`
        finds what fits.

    When it is wrong:
        Where the batch is given by the optimisation, larger ones may need more epochs than they save in time.
    """

    code: ClassVar[str] = "MEM005"
    name: ClassVar[str] = "memory-headroom"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["group"]] = "group"

    most_used: float = field(default=0.60, metadata=limit("peak of memory up to which it is free", "DLProf; catalogue"))
    least_overhead: float = field(
        default=0.20,
        metadata=limit("fixed cost of the largest batch's step from which it pays", "the catalogue's 20 %"),
    )

    def check(self, facts: Group) -> Answer:
        if not facts.points:
            raise NotMeasured("batch_size", "no trial of this group completed")
        last = facts.points[-1]
        used = max((known for trial in last.trials if (known := fullness(trial)) is not None), default=None)
        if used is None:
            raise NotMeasured("memory", "no peak of memory was recorded at the largest batch")
        memory = Evidence(
            metric="memory at peak, largest batch", value=used * 100, unit="%", limit=self.most_used * 100
        )
        if used > self.most_used:
            return cleared(self, f"the largest batch uses {percent(used)} of the memory", memory)
        seconds = [point.step_time_s.value for point in facts.points]
        fit = fit_cost(facts.load.per_step, seconds, noun=facts.load.noun)
        share = fit.overhead_share(facts.load.per_step[-1])
        number = evidence("fixed cost of the largest batch's step", share, "%", limit=self.least_overhead)
        if not share.surely_at_least(self.least_overhead):
            return cleared(self, "memory is free, but a larger batch would win little", memory, number)
        more = Remedy(f"Measure batch {2 * last.batch_size}. {CHANGES_TRAINING}", {"batch_size": 2 * last.batch_size})
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"At batch {last.batch_size}, the largest measured, {percent(used)} of the memory is used and "
            f"{percent(share.value)} of the step is a fixed cost: there is room for a larger batch.",
            scope=facts.label,
            evidence=(memory, number),
            remedies=(more,),
            confidence=confidence(Tier.SHARE, sure=True, thin=any(trial.thin for trial in last.trials)),
            batch_sizes=(last.batch_size,),
            symptom_of=("SWP001", "INP001"),
        )
