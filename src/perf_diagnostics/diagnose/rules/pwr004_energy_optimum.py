"""PWR004: the batch of the best throughput is not the one that needs the least energy a sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, NotApplicable, NotMeasured, Point, ask
from perf_diagnostics.diagnose.facts.power_facts import joules_per_sample
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant


@dataclass(frozen=True)
class EnergyOptimum:
    """Another batch needs less energy for the same samples.

    What it measures:
        The device's gross energy a sample at each batch size, over windows of whole steps of at least 5 s, against the
        throughput at the same sizes.

    Why it matters:
        Near the best throughput the curve is flat: a few percent of speed can be worth much more energy.

    What to try:
        The batch of least energy, if its optimisation suits as well.

    When it is wrong:
        Only the device is counted; host and cooling draw power for longer where it is slower. Differences below the
        uncertainty of the sensor (5 %) are not looked at.
    """

    code: ClassVar[str] = "PWR004"
    name: ClassVar[str] = "energy-optimum"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["group"]] = "group"

    least_saving: float = field(default=0.05, metadata=limit("energy a sample that is saved", "NVML's stated 5 %"))
    most_slowdown: float = field(
        default=0.05, metadata=limit("throughput that is given up for it", "the catalogue's 5 %")
    )

    def check(self, facts: Group) -> Answer:
        if not facts.on_accelerator:
            raise NotApplicable("energy_device", "the trial ran on the CPU")
        known = [(point, joules) for point in facts.points if (joules := ask(_joules, point)) is not None]
        if len(known) < 2:
            if facts.points and not known:
                _joules(facts.points[-1])  # raises, with the reason
            raise NotMeasured(
                "energy_device", f"energy was measured at {len(known)} batch sizes; this compares at least 2"
            )
        costs = {point.batch_size: joules for point, joules in known}
        best = max((point for point, _ in known), key=lambda point: point.throughput.value)
        thriftiest = min(known, key=lambda item: item[1])[0]
        saving = 1 - costs[thriftiest.batch_size] / costs[best.batch_size]
        slower = 1 - facts.relative_to(thriftiest, best).value
        numbers = (
            Evidence(metric=f"energy a sample at batch {best.batch_size}", value=costs[best.batch_size], unit="J"),
            Evidence(
                metric=f"energy a sample at batch {thriftiest.batch_size}", value=costs[thriftiest.batch_size], unit="J"
            ),
            Evidence(metric="energy saved", value=saving * 100, unit="%", limit=self.least_saving * 100),
            Evidence(metric="throughput given up", value=slower * 100, unit="%", limit=self.most_slowdown * 100),
        )
        if saving < self.least_saving or slower > self.most_slowdown:
            return cleared(
                self, f"batch {best.batch_size} is the fastest, and no other is as fast for less energy", *numbers
            )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"Batch {thriftiest.batch_size} needs {significant(costs[thriftiest.batch_size])} J a sample, "
            f"{percent(saving)} less than batch {best.batch_size}, the fastest, and is {percent(max(0.0, slower))} "
            "slower.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    f"Train with batch {thriftiest.batch_size} to save energy. {CHANGES_TRAINING}",
                    {"batch_size": thriftiest.batch_size},
                ),
            ),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True),
            batch_sizes=(best.batch_size,),
        )


def _joules(point: Point) -> float:
    """Mean energy a sample over the repeats, in J; NotMeasured if one of them has none."""
    return sum(joules_per_sample(trial) for trial in point.trials) / len(point.trials)
