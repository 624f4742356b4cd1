"""INP007 for traces: from a batch's arrival to its forward, or to the first launch, with the device idle."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.inp007_preprocessing_in_the_loop import REMEDIES, PreprocessingInTheLoop
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.preparation import preparing
from perf_diagnostics.diagnose.trace.rule import claims_of, found, warn_and_critical
from perf_diagnostics.diagnose.wording import percent_between


@dataclass(frozen=True)
class Preprocessing:
    """Each batch is worked on in the loop, between its loader and the first launch, while the device is idle."""

    code: ClassVar[str] = PreprocessingInTheLoop.code
    name: ClassVar[str] = PreprocessingInTheLoop.name
    family: ClassVar[Family] = PreprocessingInTheLoop.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: PreprocessingInTheLoop = field(default_factory=PreprocessingInTheLoop)

    def check(self, facts: TraceFacts) -> Answer:
        between = preparing(facts)
        share = facts.share_of(between)
        seen = facts.loader_seen
        loader = Evidence(metric="loader ranges in the trace", value="yes" if seen else "no")
        level = grade(share, warn_and_critical(self.limits.warn_share, self.limits.critical_share))
        if level is None:
            number = evidence("between a batch and its forward", share, "%", limit=self.limits.warn_share)
            says = f"{percent_between(share)} of a step lies between a batch and its forward"
            return cleared(self, says, number, loader)
        where = "the loader has given it" if seen else "the step began (no loader left a range in the trace)"
        if not seen:
            level = dataclasses.replace(level, severity=Severity.INFO)  # it may be the loader's own time
        finding = found(
            self,
            facts,
            level,
            share,
            part=Part.HOST,
            metric="between a batch and its forward",
            summary=f"For {percent_between(share)} of each step the host works on the batch, after {where} and before "
            f"anything is {'launched' if facts.on_device else 'trained on it'}.",
            more=(loader,),
            remedies=REMEDIES,
            # In a trace of the CPU the work itself may be operators, which are no floor under it.
            removable=None if facts.on_device else share,
        )
        return dataclasses.replace(finding, claims=claims_of(facts, between))
