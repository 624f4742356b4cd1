"""OPT004: gradients are accumulated over small batches although memory has room for larger ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotApplicable, NotMeasured, Point, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.statistics.scaling import fit_cost
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class SmallMicroBatches:
    """Several small batches are accumulated where one larger one would fit.

    What it measures:
        In a sweep with accumulation, the fixed cost of a step that does not grow with the batch. Of ``k`` accumulated
        batches ``k - 1`` pay it for nothing, if memory has room for one batch of ``k`` times the size.

    Why it matters:
        Accumulation saves memory, and updates. It does not make the arithmetic cheaper: each of its batches pays
        Python, dispatch and launches again.

    What to try:
        Batches ``k`` times as large and no accumulation: the same samples in each update.

    When it is wrong:
        The optimizer's own fixed cost is paid once a step in either case, and is part of what is fitted. Layers that
        look at the batch (batch normalisation) see larger ones.
    """

    code: ClassVar[str] = "OPT004"
    name: ClassVar[str] = "small-micro-batches"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["group"]] = "group"

    info_share: float = field(default=0.05, metadata=limit("part of the step to mention", "judgement"))
    warn_share: float = field(default=0.15, metadata=limit("part of the step to warn from", "judgement"))
    full: float = field(default=0.90, metadata=limit("memory in use beyond which a batch is not proposed", "MEM001"))

    def check(self, facts: Group) -> Answer:
        steps = facts.accumulation_steps
        if steps < 2:
            raise NotApplicable("accumulation_steps", "no gradients are accumulated")
        there = facts.recommended
        used = _memory_share(there)
        factor = _larger(steps, used, self.full)
        fit = fit_cost(facts.load.per_step, [point.step_time_s.value for point in facts.points], noun=facts.load.noun)
        held = facts.load.per_step[facts.points.index(there)]
        # Of the passes of a step, steps / factor remain, each with its fixed cost.
        lost = _without_optimizer(fit.overhead_share(held), there).scaled(1 - 1 / factor)
        numbers = (
            Evidence(metric="batches accumulated", value=steps),
            evidence("fixed cost paid again", lost, "%", limit=self.info_share),
            Evidence(metric="memory in use", value=used * 100, unit="%", limit=self.full * 100 / 2),
        )
        if factor == 1:
            return cleared(self, f"memory ({percent(used)} in use) has no room for larger batches", *numbers)
        found = grade(lost, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        if found is None:
            return cleared(self, f"accumulating {steps} batches costs {percent(lost.value)} of a step", *numbers)
        size, left = there.batch_size * factor, steps // factor
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=found.severity,
            summary=f"{steps} batches of {there.batch_size} are accumulated, each paying the fixed cost of a pass: "
            f"{percent(lost.value)} of a step, while {percent(used)} of the memory is in use.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    f"Train with batch {size}, accumulating {left}: the same samples in each update.",
                    {"batch_size": size, "accumulation_steps": left},
                ),
            ),
            recoverable=recoverable(lost, Family.SWEEP),
            confidence=confidence(Tier.SHARE, sure=found.sure, thin=any(trial.thin for trial in there.trials)),
            batch_sizes=(there.batch_size,),
        )


def _larger(steps: int, used: float, full: float) -> int:
    """By how much a batch can surely grow: the largest divisor of ``steps`` if all memory in use grew with it."""
    return max(
        factor for factor in range(1, steps + 1) if steps % factor == 0 and (factor == 1 or factor * used <= full)
    )


def _without_optimizer(share: Interval, point: Point) -> Interval:
    """The fixed cost less the optimizer's, which accumulation does not repeat."""
    optimizer = point.pooled(_optimizer).value
    low = None if share.low is None else max(0.0, share.low - optimizer)
    high = None if share.high is None else max(0.0, share.high - optimizer)
    return Interval(max(0.0, share.value - optimizer), low, high, share.n)


def _optimizer(trial: TrialFacts) -> Interval:
    return trial.optimizer_share


def _memory_share(point: Point) -> float:
    on_device = point.largest(lambda trial: trial.device_memory_share)
    used = on_device if on_device is not None else point.largest(lambda trial: trial.host_memory_share)
    if used is None:
        raise NotMeasured("memory", "how much of the memory is in use was not measured")
    return used
