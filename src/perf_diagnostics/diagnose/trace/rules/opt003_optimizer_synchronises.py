"""OPT003 for traces: the device's idle time in and after waits, as far as it lies inside the optimizer's ranges."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.opt003_optimizer_synchronises import REMEDIES, OptimizerSynchronises
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.trace.rule import found
from perf_diagnostics.diagnose.wording import percent_between


@dataclass(frozen=True)
class WaitsInOptimizer:
    """The host waits for the device inside the optimizer, and the device then for the host."""

    code: ClassVar[str] = OptimizerSynchronises.code
    name: ClassVar[str] = OptimizerSynchronises.name
    family: ClassVar[Family] = OptimizerSynchronises.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: OptimizerSynchronises = field(default_factory=OptimizerSynchronises)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("synchronisations")
        annotations = facts.trace.of(Kind.ANNOTATION)
        ranges = annotations.where(facts.launches.names.phase("optimizer", annotations))
        if not len(ranges):
            raise NotMeasured("synchronisations", "no range of an optimizer lies in the trace")
        updating = Times.union(ranges.start_ns, ranges.end_ns)
        share = facts.share_of(updating & facts.split.parts[Part.SYNCHRONISATION])
        runtime = facts.trace.runtime
        inside = runtime.where(updating.containing(runtime.start_ns) >= 0)
        waits = facts.calls_in_steps(inside.where(facts.launches.names.wait(inside)))
        count = Evidence(metric="waiting calls in the optimizer a step", value=float(waits.mean()), n=len(facts.steps))
        level = grade(share, ((Severity.WARNING, self.limits.warn_share),))
        if level is None:
            number = evidence("idle after waits in the optimizer", share, "%", limit=self.limits.warn_share)
            return cleared(self, f"waits in the optimizer cost {percent_between(share)} of a step", number, count)
        return found(
            self,
            facts,
            level,
            share,
            part=Part.SYNCHRONISATION,
            metric="idle after waits in the optimizer",
            summary=f"For {percent_between(share)} of each step the device idles because the host waited for it in the "
            f"optimizer ({float(waits.mean()):g} waiting calls a step).",
            more=(count,),
            remedies=REMEDIES,
        )
