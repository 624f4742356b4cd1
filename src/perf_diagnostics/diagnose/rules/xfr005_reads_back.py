"""XFR005: values are read back from the device within the step, and the device idles after each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.crossings import WAITS, Crossings, crossing_lines
from perf_diagnostics.diagnose.wording import percent_between, times

REMEDIES = (
    Remedy("Sum metrics up on the device, and read them every so many steps."),
    Remedy("Copy results back with non_blocking=True into pinned memory, and look at them a step later."),
    Remedy("Take .item(), .cpu(), print and tests of device tensors out of the step."),
)


@dataclass(frozen=True)
class ReadsBack:
    """Values are read back from the device within the step, and after each the device has nothing to do.

    What it measures:
        How many operators of a step make the host wait for a value of the device (``.item()``, ``.cpu()``,
        ``.tolist()``, ``.numpy()``, a test of a tensor, a mask as an index, ``nonzero``), and the time from the end of
        such a wait to the next operator that gives the device work. The wait itself is free while the device works.
        A few steps that do not count are looked at operator by operator; in a profiler window it is the device's idle
        time in and after waits that belong to copies back to the host.

    Why it matters:
        When the value has arrived, all that was queued is done. The device idles until the host has gone on and
        launched anew, at each read.

    What to try:
        Keep sums on the device and read them every so many steps; copy with ``non_blocking=True`` and look later.

    When it is wrong:
        Looking slows the host between operators; most of that is taken off, a few µs at each read are not. Work that
        other streams do meanwhile is not seen. A training loop that has to look at a value (a gradient scaler's
        overflow, an early stop) can do so less often, not never.
    """

    code: ClassVar[str] = "XFR005"
    name: ClassVar[str] = "reads-back"
    family: ClassVar[Family] = Family.TRANSFER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    warn_share: float = field(
        default=0.03, metadata=limit("idle time after reads over the step to warn from", "the catalogue's 3 %")
    )
    critical_share: float = field(default=0.10, metadata=limit("… that is critical", "the catalogue's 10 %"))

    def check(self, facts: TrialFacts) -> Answer:
        seen = Crossings.of(
            facts,
            ("reads_back_per_step", "reads of the device a step"),
            ("reads_back_idle", "idle after reads"),
            limit=self.warn_share,
        )
        found = grade(seen.share, ((Severity.WARNING, self.warn_share), (Severity.CRITICAL, self.critical_share)))
        if found is None:
            cost = "costs" if seen.count == 1 else "cost"
            says = f"{times(seen.count, 'read')} of the device a step {cost} {percent_between(seen.share)} of it"
            return cleared(self, says, *seen.numbers)
        return seen.finding(
            self,
            facts,
            found,
            summary=f"After reading values back ({times(seen.count, 'time')} a step), the device has nothing to do for "
            f"{percent_between(seen.share)} of each step.{crossing_lines(facts, 'read')}",
            remedies=REMEDIES,
            claims={WAITS: seen.share.value},
            symptom_of=("OPT003",),
        )
