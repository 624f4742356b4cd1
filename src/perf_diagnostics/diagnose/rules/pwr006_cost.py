"""PWR006: what the training costs at a price for the device's hour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Group, Interval, NotMeasured, Point
from perf_diagnostics.diagnose.finding import Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import significant

SAMPLES = 1e6
_S_PER_HOUR = 3600.0


@dataclass(frozen=True)
class Cost:
    """What a million samples cost, at the price that was given.

    What it measures:
        The price of a device for an hour times the devices, over the samples trained in an hour: the catalogue's
        ``rate · T / B / 3600 · 10⁶``. At the batch of the best throughput, and at the others.

    Why it matters:
        A share of a step says little to who pays for it.

    What to try:
        Nothing: this is a number. The findings above say what would lower it, and each gain is one of the cost, too.

    When it is wrong:
        The price is what was given, in its own currency; idle devices, storage and the hours before and after the
        training are not in it.
    """

    code: ClassVar[str] = "PWR006"
    name: ClassVar[str] = "cost"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["group"]] = "group"

    price_per_hour: float = field(
        default=0.0, metadata=limit("price of one device for an hour, in any currency; 0: not given", "yours")
    )

    def check(self, facts: Group) -> Answer:
        if not self.price_per_hour > 0:
            raise NotMeasured(
                "price_per_hour",
                "no price was given; give that of a device's hour: "
                f"perf-diagnostics report RUN --threshold {self.code}.price_per_hour=2.5",
            )
        best = facts.best
        least = self._cost(best)
        others = [point for point in facts.points if point is not best]
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"A million samples cost {significant(least.value)} at batch {best.batch_size}"
            f"{self._range(others)}, in the currency in which an hour of the device costs {self.price_per_hour:g}.",
            scope=f"{facts.label}, batch {best.batch_size}",
            evidence=tuple(
                evidence(f"a million samples at batch {point.batch_size}", self._cost(point), "in your currency")
                for point in (best, *others)
            ),
            confidence=confidence(Tier.BOTH_MEASURED, sure=True, thin=all(trial.thin for trial in best.trials)),
            batch_sizes=(best.batch_size,),
        )

    def _cost(self, point: Point) -> Interval:
        """The price of :data:`SAMPLES` samples; all ranks' devices are paid, and all their samples counted."""
        devices = max(len(trial.result.steps) for trial in point.trials)
        price = self.price_per_hour * devices / _S_PER_HOUR * SAMPLES
        rate = point.throughput
        if not rate.value > 0:
            raise NotMeasured("throughput", f"batch {point.batch_size} trained on no samples")
        low = None if rate.high is None else price / rate.high
        high = None if rate.low is None or rate.low <= 0 else price / rate.low
        return Interval(price / rate.value, low, high, rate.n)

    def _range(self, others: list[Point]) -> str:
        if not others:
            return ""
        dearest = max(others, key=lambda point: self._cost(point).value)
        return f" and {significant(self._cost(dearest).value)} at batch {dearest.batch_size}"
