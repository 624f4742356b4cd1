"""PWR005: a good part of the energy is drawn while the device waits; a symptom, whose cause other rules name."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.facts.power_facts import KEEPS_WAITING, idle_share
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant


@dataclass(frozen=True)
class IdleEnergy:
    """Energy is spent on waiting.

    What it measures:
        The idle power of the device, measured with a live context at rest (before or after the steps), times the time
        in which it had nothing to do, over its whole energy in the steps.

    Why it matters:
        A device that waits still draws a sixth to a third of its power, for nothing.

    What to try:
        What the finding that explains the waiting says; the energy follows.

    When it is wrong:
        Idle time is at least what is counted: tiny kernels hide waits from the driver, and a GPU that has just worked
        draws more than its idle power. So the share is a lower bound.
    """

    code: ClassVar[str] = "PWR005"
    name: ClassVar[str] = "idle-energy"
    family: ClassVar[Family] = Family.POWER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.20, metadata=limit("energy drawn while idle, of all", "the catalogue's 20 %"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("device_idle_power")
        power_w, waiting = facts.quantity("device_idle_power"), idle_share(facts)
        whole_j, window_s = facts.quantity("energy_device"), facts.quantity("energy_device_window_s")
        if not whole_j > 0:
            raise NotMeasured("energy_device", f"the energy of the steps is {whole_j} J")
        spent_j = power_w * waiting * window_s
        numbers = (
            Evidence(metric="energy while idle", value=spent_j / whole_j * 100, unit="%", limit=self.info_share * 100),
            Evidence(metric="idle power", value=power_w, unit="W"),
            Evidence(metric="time idle, at least", value=waiting * 100, unit="%"),
        )
        if spent_j < self.info_share * whole_j:
            return cleared(self, f"{percent(spent_j / whole_j)} of the energy was drawn while idle", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"At least {percent(spent_j / whole_j)} of the device's energy, {significant(spent_j)} J in "
            f"{significant(window_s)} s, was drawn while it waited.",
            scope=facts.label,
            evidence=numbers,
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
            symptom_of=KEEPS_WAITING,
        )
