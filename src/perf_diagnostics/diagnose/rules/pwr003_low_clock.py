"""PWR003: the GPU's clock is low because it has nothing to do; a symptom, whose cause other rules name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.facts.power_facts import IDLE, KEEPS_WAITING, Reasons, clock_deficit, within_steps
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class LowClock:
    """The GPU lets its clock fall between bursts of work.

    What it measures:
        The mean clock of the steady steps against the highest one seen in the trial, and the share of the samples in
        which the driver gave idleness as the reason.

    Why it matters:
        It says that the device waits, and it makes the first kernels after a wait slower. It is no advice of its own.

    What to try:
        What the finding that explains it says: loading, copies, the host's launches, a small batch.

    When it is wrong:
        Clocks that were lowered on purpose (locked application clocks) are not told from idle ones unless the driver
        gives that as the reason.
    """

    code: ClassVar[str] = "PWR003"
    name: ClassVar[str] = "low-clock"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    deficit: float = field(default=0.20, metadata=limit("mean clock below the highest seen", "the catalogue's 20 %"))
    idle_share: float = field(default=0.05, metadata=limit("samples with idleness as the reason", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        lost = clock_deficit(facts)
        series = within_steps(facts, "gpu_throttle_reasons")
        idle = Reasons(series.values, series.source).share(IDLE)
        numbers = (
            Evidence(
                metric="clock below the highest seen",
                value=lost.value * 100,
                unit="%",
                limit=self.deficit * 100,
                n=lost.n,
            ),
            Evidence(
                metric="idle samples", value=idle * 100, unit="%", limit=self.idle_share * 100, n=series.values.size
            ),
        )
        if lost.value < self.deficit or idle < self.idle_share:
            return cleared(self, f"the clock ran {percent(max(0.0, lost.value))} below its highest", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"The GPU's clock ran {percent(lost.value)} below its highest because it was often idle.",
            scope=facts.label,
            evidence=numbers,
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
            symptom_of=KEEPS_WAITING,
        )
