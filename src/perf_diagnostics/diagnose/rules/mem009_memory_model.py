"""MEM009: how memory grows with the batch, and the largest batch that follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, NotMeasured, Point
from perf_diagnostics.diagnose.facts.memory_facts import memory_line
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import counted, significant

LEAST_POINTS = 3


@dataclass(frozen=True)
class MemoryModel:
    """Memory grows by so much a sample.

    What it measures:
        The peak of memory (the allocator's on a device, else the process's) over the measured batch sizes: a straight
        line, which is refused where it explains less than 99 % of the variation. From it, the batch that would fill
        92 % of the memory; it is told where throughput still rises at the largest size.

    Why it matters:
        It says how far the batch can be raised, and what a sample costs in memory.

    What to try:
        `perf-diagnostics largest-batch` before relying on it: the size it returns has run.

    When it is wrong:
        The allocator rounds up, algorithms switch with the batch, sentences get longer: all this bends the line beyond
        the sizes that ran. Whether a larger batch is faster is another question (SWP002, SWP003).
    """

    code: ClassVar[str] = "MEM009"
    name: ClassVar[str] = "memory-model"
    family: ClassVar[Family] = Family.MEMORY
    looks_at: ClassVar[Literal["group"]] = "group"

    least_r_squared: float = field(default=0.99, metadata=limit("R squared of an accepted line", "90 published sweeps"))
    fill: float = field(
        default=0.92, metadata=limit("part of the memory that may be filled", "TraceML's warning level")
    )

    reach: float = field(
        default=16.0, metadata=limit("times the largest measured batch, beyond which no number is given", "judgement")
    )

    def check(self, facts: Group) -> Answer:
        peak = "device_memory_peak_reserved" if facts.on_accelerator else "host_memory_peak"
        total = "device_memory_total" if facts.on_accelerator else "host_memory_total"
        if len(facts.points) < LEAST_POINTS:
            sizes = counted(len(facts.points), "batch size")
            raise NotMeasured("batch_sizes", f"{sizes} completed; a line needs {LEAST_POINTS}")
        peaks = [_largest(point, peak) for point in facts.points]
        line = memory_line(list(facts.batch_sizes), peaks)
        if line.r_squared < self.least_r_squared:
            raise NotMeasured("memory_line", f"memory over batch is no straight line (R squared {line.r_squared:.3f})")
        last = facts.points[-1]
        largest = line.largest_batch(self.fill * _largest(last, total))
        numbers = (
            Evidence(metric="memory a sample", value=line.per_sample_bytes / 1e6, unit="MB", n=len(peaks)),
            Evidence(metric="memory whatever the batch", value=line.fixed_bytes / 1e6, unit="MB", n=len(peaks)),
            Evidence(metric="R squared", value=line.r_squared, limit=self.least_r_squared, n=len(peaks)),
            Evidence(metric=f"batch that fills {self.fill:.0%} of the memory", value=largest),
        )
        says = f"sample takes {significant(line.per_sample_bytes / 1e6)} MB"
        if largest < 2 * last.batch_size:
            return cleared(self, f"a {says}; the largest measured batch is near what fits", *numbers)
        if not facts.knee.rising:
            return cleared(self, f"a {says}; larger batches would fit, and throughput no longer rises", *numbers)
        far = largest > self.reach * last.batch_size
        about = f"of more than {self.reach * last.batch_size:.0f}" if far else f"of about {largest}"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"A {says}; by the straight line through the measured sizes a batch {about} would fit, against "
            f"{last.batch_size} measured, and throughput still rises. Nobody ran it.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(f"Measure batch {2 * last.batch_size}. {CHANGES_TRAINING}", {"batch_size": 2 * last.batch_size}),
            ),
            confidence=confidence(Tier.SHARE, sure=True),
            batch_sizes=(last.batch_size,),
            symptom_of=("SWP001", "MEM005"),
        )


def _largest(point: Point, quantity: str) -> float:
    return max(trial.quantity(quantity) for trial in point.trials)
