"""PWR002: the GPU runs at its power limit, or at one that somebody has lowered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import POWER_CAP, HeldDown, Reasons, busy_reasons, held_down
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant


@dataclass(frozen=True)
class PowerCapped:
    """The GPU's clock is held down by its power limit.

    What it measures:
        The share of the samples of busy steps in which the driver gave the power limit as the reason for its clock, and
        the limit in force against the board's default. Where the driver counts for how long the limit held the clock
        down (NVML violation status), that total over the busy time of the steps stands in place of the samples.

    Why it matters:
        At the default limit this is what a well used GPU looks like. Below it, somebody has traded speed for power.

    What to try:
        Raise the limit to the default (an administrator can), if the power supply and the cooling allow it.

    When it is wrong:
        A lowered limit is often wanted: the last tenth of the speed costs a third of the power. What it costs here is
        not known without measuring at another limit, which is never changed by this tool.
    """

    code: ClassVar[str] = "PWR002"
    name: ClassVar[str] = "power-capped"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.20, metadata=limit("share of the busy time at the power limit", "the catalogue's 20 %")
    )
    lowered: float = field(default=0.99, metadata=limit("limit over default below which it was lowered", "rounding"))

    def check(self, facts: TrialFacts) -> Answer:
        counted = held_down(facts, POWER_CAP)
        reasons = ask(busy_reasons, facts)
        if counted is None:
            share, of = (reasons or busy_reasons(facts)).share(POWER_CAP), "samples"
        else:
            share, of = counted.share.value, "time"
        numbers = list(self._shares(reasons, counted))
        limits = _limits_w(facts)
        if limits is not None:
            numbers.append(Evidence(metric="power limit", value=limits[0], unit="W", limit=limits[1]))
        if share < self.info_share:
            return cleared(self, f"the power limit held the clock down in {percent(share)} of the {of}", *numbers)
        below = limits is not None and limits[0] < self.lowered * limits[1]
        says = f"The power limit held the clock down in {percent(share)} of the busy {of}"
        if limits is not None and below:
            says += f", and it is set to {significant(limits[0])} W, below the board's {significant(limits[1])} W."
        else:
            says += ": normal for a GPU that is well used."
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if below else Severity.INFO,
            summary=says,
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(Remedy("Have the power limit raised to the board's default."),) if below else (),
            confidence=confidence(Tier.SHARE_AND_CAUSE if below else Tier.SHARE, sure=True, thin=facts.thin),
        )

    def _shares(self, reasons: Reasons | None, counted: HeldDown | None) -> Iterator[Evidence]:
        """What the sampled reasons say, and what the driver's total does."""
        limit = self.info_share * 100
        if reasons is not None:
            value, n = reasons.share(POWER_CAP) * 100, reasons.samples
            name = "samples at the power limit"
            yield Evidence(metric=name, value=value, unit="%", limit=limit, n=n, source=reasons.source)
        if counted is not None:
            value, n = counted.share.value * 100, counted.share.n
            name = "time at the power limit"
            yield Evidence(metric=name, value=value, unit="%", limit=limit, n=n, source=counted.source)


def _limits_w(facts: TrialFacts) -> tuple[float, float] | None:
    """The power limit in force and the default, in W, as the environment recorded them for the trial's device."""
    name = facts.result.trial.settings.device
    for device in facts.result.environment.devices:
        now, default = device.get("power_limit_w"), device.get("default_power_limit_w")
        if device.get("name") == name and isinstance(now, int | float) and isinstance(default, int | float):
            return float(now), float(default)
    return None
