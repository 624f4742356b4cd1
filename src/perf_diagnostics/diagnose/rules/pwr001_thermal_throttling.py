"""PWR001: the GPU runs slower because it, or its supply, is too hot or overloaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose import roofline
from perf_diagnostics.diagnose.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.power_facts import (
    HARDWARE_SLOWDOWN,
    HARDWARE_THERMAL,
    LEAST_SAMPLES,
    POWER_BRAKE,
    SOFTWARE_THERMAL,
    busy_reasons,
    clock_deficit,
)
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

_HARDWARE = HARDWARE_SLOWDOWN | HARDWARE_THERMAL | POWER_BRAKE


@dataclass(frozen=True)
class ThermalThrottling:
    """The GPU lowers its clock to protect itself.

    What it measures:
        The share of the samples of busy steps in which the driver gave one of these reasons for its clock: slowdown by
        the hardware, by temperature (software's or hardware's limit), or by the power brake. Beside it the clock,
        against the highest one seen in the trial.

    Why it matters:
        A lower clock makes every kernel slower, and it looks like a slow model.

    What to try:
        Airflow, dust, fan curves, the neighbours in the rack; a lower power limit keeps a badly cooled card steadier
        than its own emergency brake does.

    When it is wrong:
        The driver is asked five times a second: shorter spells are missed. The highest clock of the trial may itself be
        a throttled one, so the loss is at least what is said. A short benchmark may end before the card is warm.
    """

    code: ClassVar[str] = "PWR001"
    name: ClassVar[str] = "thermal-throttling"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("share of the busy samples with such a reason", "the catalogue's 5 %")
    )

    def check(self, facts: TrialFacts) -> Answer:
        reasons = busy_reasons(facts)
        hard, soft = reasons.interval(_HARDWARE), reasons.share(SOFTWARE_THERMAL)
        lowered = reasons.interval(_HARDWARE | SOFTWARE_THERMAL)
        either = lowered.value
        lost = ask(clock_deficit, facts)
        numbers = [
            Evidence(
                metric="samples with lowered clocks",
                value=either * 100,
                unit="%",
                limit=self.warn_share * 100,
                n=reasons.samples,
                low=None if lowered.low is None else lowered.low * 100,
                high=None if lowered.high is None else lowered.high * 100,
                source=reasons.source,
            )
        ]
        if lost is not None:
            numbers.append(Evidence(metric="clock below the highest seen", value=lost.value * 100, unit="%", n=lost.n))
        hottest = facts.result.series_named("gpu_temperature")
        if hottest is not None and hottest.values.size:
            numbers.append(Evidence(metric="highest temperature", value=float(hottest.values.max()), unit="°C"))
        found = grade(lowered, ((Severity.WARNING, self.warn_share),))
        if found is None:
            return cleared(self, "nothing but load lowered the clock", *numbers)
        who = "Its hardware" if hard.value >= soft else "The driver, for its temperature,"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.CRITICAL if hard.surely_at_least(self.warn_share) else found.severity,
            summary=f"{who} lowered the GPU's clock in {percent(either)} of the busy samples"
            + ("." if lost is None else f"; on average it ran {percent(lost.value)} below its highest clock."),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy("Cool the card: airflow, dust, fan curve; or lower its power limit until it stays steady."),
            ),
            recoverable=_gain(facts),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE,
                sure=found.sure and reasons.samples >= 2 * LEAST_SAMPLES,
                coverage=facts.coverage,
                thin=facts.thin,
            ),
        )


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
