"""PWR001: the GPU runs slower because it, or its supply, is too hot or overloaded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, TrialFacts, ask
from perf_diagnostics.diagnose.facts.power_facts import (
    HARDWARE_SLOWDOWN,
    HARDWARE_THERMAL,
    LEAST_SAMPLES,
    POWER_BRAKE,
    SOFTWARE_THERMAL,
    THERMAL,
    HeldDown,
    Reasons,
    busy_reasons,
    clock_deficit,
    held_down,
)
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

_HARDWARE = HARDWARE_SLOWDOWN | HARDWARE_THERMAL | POWER_BRAKE


@dataclass(frozen=True)
class ThermalThrottling:
    """The GPU lowers its clock to protect itself.

    What it measures:
        The share of the samples of busy steps in which the driver gave one of these reasons for its clock: slowdown by
        the hardware, by temperature (software's or hardware's limit), or by the power brake. Where the driver counts
        for how long heat held the clock down (NVML violation status), that total over the busy time of the steps
        stands in place of the samples. Beside it the clock, against the highest one seen in the trial.

    Why it matters:
        A lower clock makes every kernel slower, and it looks like a slow model.

    What to try:
        Airflow, dust, fan curves, the neighbours in the rack; a lower power limit keeps a badly cooled card steadier
        than its own emergency brake does.

    When it is wrong:
        Without the driver's total, spells between two of its five samples a second are missed; the total counts time
        below the application clocks, which may be less. The highest clock of the trial may itself be a throttled one,
        so the loss is at least what is said. A short benchmark may end before the card is warm.
    """

    code: ClassVar[str] = "PWR001"
    name: ClassVar[str] = "thermal-throttling"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("share of the busy time with such a reason", "the catalogue's 5 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        counted = held_down(facts, THERMAL)
        reasons = ask(busy_reasons, facts)
        if counted is None:
            lowered, of = _sampled(reasons or busy_reasons(facts)), "samples"
        else:
            lowered, of = _counted(counted, reasons), "time"
        lost = ask(clock_deficit, facts)
        numbers = list(self._shares(reasons, counted))
        if lost is not None:
            numbers.append(Evidence(metric="clock below the highest seen", value=lost.value * 100, unit="%", n=lost.n))
        hottest = facts.result.series_named("gpu_temperature")
        if hottest is not None and hottest.values.size:
            numbers.append(Evidence(metric="highest temperature", value=float(hottest.values.max()), unit="°C"))
        found = grade(lowered, ((Severity.WARNING, self.warn_share),))
        if found is None:
            return cleared(self, "nothing but load lowered the clock", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if self._by_hardware(reasons) else found.severity,
            summary=f"{_who(reasons)} lowered the GPU's clock in {percent(lowered.value)} of the busy {of}"
            + ("." if lost is None else f"; on average it ran {percent(lost.value)} below its highest clock."),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy("Cool the card: airflow, dust, fan curve; or lower its power limit until it stays steady."),
            ),
            recoverable=_gain(facts),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=found.sure and (reasons is None or counted is not None or reasons.samples >= 2 * LEAST_SAMPLES),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
        )

    def _by_hardware(self, reasons: Reasons | None) -> bool:
        """Whether the hardware itself surely lowered the clock for so long; only samples tell who did."""
        return reasons is not None and reasons.interval(_HARDWARE).surely_at_least(self.warn_share)

    def _shares(self, reasons: Reasons | None, counted: HeldDown | None) -> Iterator[Evidence]:
        """What the sampled reasons say, and what the driver's total does."""
        if reasons is not None:
            name = "samples with lowered clocks"
            yield evidence(name, _sampled(reasons), "%", limit=self.warn_share, source=reasons.source)
        if counted is not None:
            name = "time for which heat lowered the clock"
            yield evidence(name, counted.share, "%", limit=self.warn_share, source=counted.source)


def _sampled(reasons: Reasons) -> Interval:
    """The share of busy samples with lowered clocks."""
    return reasons.interval(_HARDWARE | SOFTWARE_THERMAL)


def _counted(counted: HeldDown, reasons: Reasons | None) -> Interval:
    """The part of the busy time with lowered clocks, that for heat by the driver's total.

    The other reasons (power brake, a slowdown that is not for heat) are in no total: they come from samples.
    """
    others = None if reasons is None else reasons.interval(_HARDWARE, but=THERMAL)
    if others is None or not others.value:
        return counted.share
    heat = counted.share.value
    low, high = (heat + (end or 0.0) for end in (others.low, others.high))
    return Interval(heat + others.value, low, high, others.n).within(0.0, 1.0)


def _who(reasons: Reasons | None) -> str:
    """Who lowered the clock, as far as samples caught it."""
    hard, soft = (0.0, 0.0) if reasons is None else (reasons.share(_HARDWARE), reasons.share(SOFTWARE_THERMAL))
    if not hard and not soft:
        return "Heat"
    return "Its hardware" if hard >= soft else "The driver, for its temperature,"


def _gain(facts: TrialFacts) -> Share | None:
    """The lost clock, over the part of the step that the device computes in; None where either is unknown.

    A device that waits for its host anyway gains nothing by a higher clock.
    """
    if ask(roofline.paced_by_host, facts):
        return None
    lost = ask(clock_deficit, facts)
    computing = ask(lambda: facts.joint_share(Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER))
    if lost is None or computing is None:
        return None
    return recoverable(computing.scaled(max(0.0, lost.value)), Family.POWER)
