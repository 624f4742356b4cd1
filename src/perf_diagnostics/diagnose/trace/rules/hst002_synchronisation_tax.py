"""HST002: the host waits for the device, and the device then waits for the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found, warn_and_critical
from perf_diagnostics.diagnose.wording import percent_between, significant


@dataclass(frozen=True)
class SynchronisationTax:
    """The host waits for the device, which then has nothing to do until the host catches up.

    What it measures:
        The device's idle time inside calls that wait for it (synchronise, copies back to the host, blocking copies)
        and from there to the next kernel that reaches it. The waiting itself, while the device works, is not counted:
        a queue that is deep enough makes it free.

    Why it matters:
        After each such wait the queue is empty, and the device idles until the host has launched anew.

    What to try:
        No ``.item()``, ``.cpu()``, ``print(loss)`` or boolean test of a device tensor inside the step; log every so
        many steps; copy results back with ``non_blocking=True`` and look at them a step later.

    When it is wrong:
        Where the host cannot keep the device fed anyway, the idle time after a wait would have come a little later.
    """

    code: ClassVar[str] = "HST002"
    name: ClassVar[str] = "synchronisation-tax"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trace"]] = "trace"

    warn_share: float = field(
        default=0.05, metadata=limit("idle time after waits over the step to warn from", "judgement")
    )
    critical_share: float = field(default=0.15, metadata=limit("… that is critical", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("synchronisation")
        share = facts.share(Part.SYNCHRONISATION)
        runtime = facts.trace.runtime
        waits = facts.calls_in_steps(runtime.where(facts.launches.names.wait(runtime)))
        count = Evidence(metric="calls that wait for the device, a step", value=float(waits.mean()), n=len(facts.steps))
        level = grade(share, warn_and_critical(self.warn_share, self.critical_share))
        if level is None:
            number = evidence("idle after waits", share, "%", limit=self.warn_share)
            return cleared(self, f"waits cost the device {percent_between(share)} of a step", number, count)
        return found(
            self,
            facts,
            level,
            share,
            part=Part.SYNCHRONISATION,
            metric="idle after waits",
            summary=f"For {percent_between(share)} of each step the device idles because the host waited for it "
            f"({significant(float(waits.mean()), 2)} waiting calls a step) and has to launch anew.",
            more=(count,),
            remedies=(
                Remedy("Take .item(), .cpu() and prints of device tensors out of the step; log every so many steps."),
                Remedy("Copy results back with non_blocking=True and read them a step later."),
            ),
        )
