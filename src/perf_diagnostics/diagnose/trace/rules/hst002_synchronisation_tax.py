"""HST002 for traces: the device's idle time in and after calls that wait for it."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.hst002_synchronisation_tax import REMEDIES, SynchronisationTax
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found, lead_at_most, warn_and_critical
from perf_diagnostics.diagnose.wording import percent_between, significant


@dataclass(frozen=True)
class Waits:
    """The device idles in and after calls that wait for it."""

    code: ClassVar[str] = SynchronisationTax.code
    name: ClassVar[str] = SynchronisationTax.name
    family: ClassVar[Family] = SynchronisationTax.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: SynchronisationTax = field(default_factory=SynchronisationTax)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("synchronisation")
        share = facts.share(Part.SYNCHRONISATION)
        runtime = facts.trace.runtime
        waits = facts.calls_in_steps(runtime.where(facts.launches.names.wait(runtime)))
        count = Evidence(metric="calls that wait for the device, a step", value=float(waits.mean()), n=len(facts.steps))
        level = grade(share, warn_and_critical(self.limits.warn_share, self.limits.critical_share))
        if level is None:
            number = evidence("idle after waits", share, "%", limit=self.limits.warn_share)
            return cleared(self, f"waits cost the device {percent_between(share)} of a step", number, count)
        finding = found(
            self,
            facts,
            level,
            share,
            part=Part.SYNCHRONISATION,
            metric="idle after waits",
            summary=f"For {percent_between(share)} of each step the device idles because the host waited for it "
            f"({significant(float(waits.mean()), 2)} waiting calls a step) and has to launch anew.",
            more=(count,),
            remedies=REMEDIES,
            follows=lead_at_most(facts, share),
        )
        return dataclasses.replace(finding, symptom_of=("XFR003", "XFR005", "OPT003"))
