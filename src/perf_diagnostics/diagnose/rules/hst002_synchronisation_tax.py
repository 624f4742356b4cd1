"""HST002: the host waits for the device, and the device then waits for the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.crossings import WAITS, Crossings, crossing_lines
from perf_diagnostics.diagnose.wording import percent_between, times

REMEDIES = (
    Remedy(
        "Take synchronize(), .item(), .cpu() and prints of device tensors out of the step; log every so many steps."
    ),
    Remedy("Copy results back with non_blocking=True and read them a step later."),
)


@dataclass(frozen=True)
class SynchronisationTax:
    """The host waits for the device, which then has nothing to do until the host catches up.

    What it measures:
        The device's idle time from the end of a call that waits for it (``synchronize``, values read back, blocking
        copies) to the next work that reaches it. The waiting itself, while the device works, is not counted: a queue
        that is deep enough makes it free. A few steps that do not count are looked at operator by operator, for
        ``synchronize`` and for values that are read; a profiler window shows all waits.

    Why it matters:
        After each such wait the queue is empty, and the device idles until the host has launched anew.

    What to try:
        No ``synchronize()``, ``.item()``, ``.cpu()``, ``print(loss)`` or boolean test of a device tensor inside the
        step; log every so many steps; copy results back with ``non_blocking=True`` and look at them a step later.

    When it is wrong:
        Where the host cannot keep the device fed anyway, the idle time after a wait would have come a little later.
        Looking at operators slows the host; most of that is taken off.
    """

    code: ClassVar[str] = "HST002"
    name: ClassVar[str] = "synchronisation-tax"
    family: ClassVar[Family] = Family.HOST
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.05, metadata=limit("idle time after waits over the step to warn from", "judgement")
    )
    critical_share: float = field(default=0.15, metadata=limit("… that is critical", "judgement"))

    def check(self, facts: TrialFacts) -> Answer:
        seen = Crossings.of(
            facts,
            ("waits_per_step", "waits for the device a step"),
            ("waits_idle", "idle after waits"),
            limit=self.warn_share,
        )
        found = grade(seen.share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None:
            return cleared(self, f"waits cost the device {percent_between(seen.share)} of a step", *seen.numbers)
        return seen.finding(
            self,
            facts,
            found,
            summary=f"For {percent_between(seen.share)} of each step the device idles because the host waited for it "
            f"({times(seen.count, 'wait')} a step) and has to launch anew.{crossing_lines(facts, 'wait', 'read')}",
            remedies=REMEDIES,
            claims={WAITS: seen.share.value},
            symptom_of=("XFR005", "OPT003"),
        )
