"""SWP002: the recommended batch size: the smallest that reaches nearly the best throughput of the sweep."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, Knee
from perf_diagnostics.diagnose.facts.groups import KNEE_SHARE
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.statistics.intervals import quotient
from perf_diagnostics.diagnose.wording import percent, significant

#: From the smallest batch to the next, time that grows by less than the root of what the samples do (an elasticity
#: under one half) means that more than half of the smallest batch's step does not depend on its samples.
MOSTLY_FIXED = 0.5


@dataclass(frozen=True)
class ThroughputKnee:
    """Where a larger batch stops paying: the recommended batch size.

    What it measures:
        Throughput at every measured batch size. The knee is the smallest size that reaches 95 % of the best; whether
        noise could have chosen another is tested with the intervals. If throughput still rose by 5 % or more per
        doubling towards the largest size, the knee lies there or beyond, and that is all that is said. If a step of
        the second smallest size takes hardly longer than one of the smallest, that is said too: it needs no model.

    Why it matters:
        Below the knee throughput is given away. Beyond it a larger batch costs memory and changes the optimisation
        for a few per cent.

    What to try:
        Train at the recommended size. If throughput still rises, measure larger sizes.

    When it is wrong:
        The fastest batch is not the one that learns fastest: samples/s is not time to a target loss. With one
        process a size, differences between processes (about 1 %, at times 10 %) are not in the intervals.
    """

    code: ClassVar[str] = "SWP002"
    name: ClassVar[str] = "throughput-knee"
    family: ClassVar[Family] = Family.SWEEP
    looks_at: ClassVar[Literal["group"]] = "group"

    def check(self, facts: Group) -> Answer:
        knee = facts.knee
        size, best = knee.point.batch_size, knee.best.batch_size
        numbers = [
            Evidence(metric="recommended batch", value=size, n=knee.point.steps),
            evidence("throughput there", knee.point.throughput, "samples/s"),
            evidence("of the best throughput", facts.relative(knee.point), "%", limit=KNEE_SHARE),
            Evidence(metric="batch of the best throughput", value=best, n=knee.best.steps),
            evidence("best throughput", knee.best.throughput, "samples/s"),
        ]
        if knee.growth is not None:
            numbers.append(evidence("last growth per doubling", knee.growth, "%"))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=_summary(facts, knee),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(facts, knee),
            confidence=confidence(
                Tier.BOTH_MEASURED, sure=knee.sure, thin=any(trial.thin for trial in knee.point.trials)
            ),
            batch_sizes=(size,),
        )


def _summary(facts: Group, knee: Knee) -> str:
    size, best = knee.point.batch_size, knee.best.batch_size
    rate = f"{significant(knee.point.throughput.value)} samples/s"
    largest = facts.batch_sizes[-1]
    if size == best:
        says = f"Batch {size} is the fastest measured ({rate}), and no smaller one reaches 95 % of it."
    else:
        share = percent(facts.relative(knee.point).value)
        says = f"Batch {size} reaches {share} of the best throughput measured ({rate}; best at batch {best})."
    if knee.rising and knee.growth is not None:
        where = "lies at or beyond it" if size == largest else "may lie beyond it"
        says += (
            f" Throughput still rises at the largest measured batch, {largest}, by {percent(knee.growth.value)} per "
            f"doubling: the knee {where}."
        )
    if not knee.sure:
        says += " The measurements are too noisy to tell it from its neighbours."
    return says + _small_batches(facts)


def _small_batches(facts: Group) -> str:
    """Why the smallest batch is slow, if that can be seen without any model: time that does not grow with samples."""
    first, second = facts.points[:2]
    samples = second.samples_per_step / first.samples_per_step
    time = quotient(second.step_time_s, first.step_time_s)
    fixed = 1 - math.log(time.value) / math.log(samples) if samples > 1 else 0.0
    if fixed < MOSTLY_FIXED:
        return ""
    return (
        f" At batch {second.batch_size} a step has {significant(samples, 2)} times the samples of batch "
        f"{first.batch_size} and takes {significant(time.value)} times as long: small batches mostly pay fixed costs."
    )


def _remedies(facts: Group, knee: Knee) -> tuple[Remedy, ...]:
    size = knee.point.batch_size
    found = [Remedy(f"Train with batch {size}. {CHANGES_TRAINING}", {"batch_size": size})]
    if knee.rising and not any(result.outcome.out_of_memory for result in facts.failures):
        larger = 2 * facts.batch_sizes[-1]
        found.append(Remedy(f"Measure batch {larger} too. {CHANGES_TRAINING}", {"batch_size": larger}))
    return tuple(found)
