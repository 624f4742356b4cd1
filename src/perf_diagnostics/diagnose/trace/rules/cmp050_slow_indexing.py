"""CMP050 for traces: the device's time in the backward of x[index], which sorts the index and adds up."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp050_slow_indexing import SELECT, SlowIndexing
from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.kernels import of_device, outermost
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rule import of_the_step
from perf_diagnostics.diagnose.wording import percent

#: The part of such a backward that goes where rows are read otherwise: gather's backward took from 1 / 1.63 of the time
#: to 1 / 24, in the mean 1 / 3.34 (a P100, https://github.com/pytorch/pytorch/issues/15245).
_LEAST, _USUAL, _MOST = 0.39, 0.70, 0.96

_NODE = f"{ENGINE}IndexBackward"
_KERNEL = "indexing_backward_kernel"


@dataclass(frozen=True)
class IndexedBackward:
    """Rows are read by x[index], whose backward takes long on a device."""

    code: ClassVar[str] = SlowIndexing.code
    name: ClassVar[str] = SlowIndexing.name
    family: ClassVar[Family] = SlowIndexing.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    work_share: float = field(
        default=0.05, metadata=limit("part of the device's work in such a backward to mention", "judgement")
    )

    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        share = facts.part_of_computing(_backward_of_indexing(facts))
        number = Evidence(
            metric="device's work in the backward of x[index]",
            value=share * 100,
            unit="%",
            limit=self.work_share * 100,
        )
        if share < self.work_share:
            return cleared(self, f"{percent(share)} of the device's work is the backward of x[index]", number)
        step = of_the_step(facts, share)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if share >= self.warn_share else Severity.INFO,
            summary=f"{percent(share)} of the device's work is the backward of rows that are read by x[index] (a "
            "mask is such an index, too): it sorts the index, and adds up what came from the same row.",
            scope=facts.label,
            evidence=(number,),
            remedies=(SELECT,),
            recoverable=recoverable(
                Interval(step.value * _USUAL, step.value * _LEAST, (step.high or step.value) * _MOST, step.n),
                self.family,
            ),
            confidence=confidence(Tier.DEEP_WINDOW, sure=True, thin=facts.thin),
        )


def _backward_of_indexing(facts: TraceFacts) -> Bool:
    """Which events of the device are its: those that autograd's node has launched, and by their name."""
    trace = facts.trace
    operators = trace.of(Kind.OPERATOR)
    by_node, by_name = trace.named(lambda name: _NODE in name), trace.named(lambda name: _KERNEL in name)
    _, owner = outermost(facts.launches, operators.where(by_node[operators.name]))
    return (of_device(facts.launches, owner) >= 0) | by_name[trace.device.name]
