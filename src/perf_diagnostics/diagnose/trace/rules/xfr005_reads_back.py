"""XFR005 for traces: the device's idle time in and after waits for copies back to the host."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.finding import Evidence, Family
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.xfr005_reads_back import REMEDIES, ReadsBack
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.crossings import copies, gaps_after, per_step
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import found, lead_at_most, warn_and_critical
from perf_diagnostics.diagnose.wording import percent_between, times


@dataclass(frozen=True)
class CopiesBack:
    """Values are copied back to the host within the step, and after each the device has nothing to do."""

    code: ClassVar[str] = ReadsBack.code
    name: ClassVar[str] = ReadsBack.name
    family: ClassVar[Family] = ReadsBack.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ReadsBack = field(default_factory=ReadsBack)

    def check(self, facts: TraceFacts) -> Answer:
        back = copies(facts, to_device=False)
        each = float(np.mean(per_step(facts, back)))
        share = facts.share_of(gaps_after(facts, back))
        count = Evidence(metric="copies back to the host a step", value=each, n=len(facts.steps))
        level = grade(share, warn_and_critical(self.limits.warn_share, self.limits.critical_share))
        if level is None:
            number = evidence("idle after reads", share, "%", limit=self.limits.warn_share)
            copied = times(each, "copy", "copies")
            says = f"{copied} back to the host a step {'costs' if each == 1 else 'cost'} {percent_between(share)} of it"
            return cleared(self, says, number, count)
        return found(
            self,
            facts,
            level,
            share,
            part=Part.SYNCHRONISATION,
            metric="idle after reads",
            summary=f"After copies back to the host ({each:g} a step) the device has nothing to do for "
            f"{percent_between(share)} of each step.",
            more=(count,),
            remedies=REMEDIES,
            follows=lead_at_most(facts, share),
        )
