"""CMP036 for traces: a penalty on the weights in the loss, by the operators that square whole weights."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp036_penalty_by_gradients import (
    AVERAGED,
    DECOUPLED,
    PENALTIES,
    PenaltyByGradients,
)
from perf_diagnostics.diagnose.rules.opt006_work_before_the_update import CALLS_AGAIN
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.trace.weight_penalties import weight_penalties
from perf_diagnostics.diagnose.wording import counted, percent


@dataclass(frozen=True)
class PenaltyInTheLoss:
    """Whole weights are squared (or the like) with gradients on, and added up."""

    code: ClassVar[str] = PenaltyByGradients.code
    name: ClassVar[str] = PenaltyByGradients.name
    family: ClassVar[Family] = PenaltyByGradients.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: PenaltyByGradients = field(default_factory=PenaltyByGradients)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = weight_penalties(facts)
        if found is None:
            return cleared(self, "no penalty on the weights themselves goes into the loss")
        kind = "" if facts.update_on_host is None else facts.update_on_host.kind
        if kind in CALLS_AGAIN:
            return cleared(self, f"{kind} compares losses, and needs the penalty in them")
        whole = share_of_work(facts, found.forward | found.nodes)
        warns = self.limits.warn_share if found.kind == "squares" else math.inf
        number = evidence("penalties on the weights", whole, "%", limit=self.limits.info_share)
        level = grade(whole, ((Severity.INFO, self.limits.info_share), (Severity.WARNING, warns)))
        if level is None:
            return cleared(self, f"penalties on the weights take {percent(whole.value)} of a step", number)
        penalty = PENALTIES[found.kind]
        remedies = penalty.remedies[:: -1 if kind in DECOUPLED else 1]
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(whole.value)} of each step is a penalty on the weights in the loss: {penalty.words} of "
            f"{found.weights:,} weights in {counted(found.tensors, 'tensor')}, and their gradients by autograd"
            f"{in_functions(facts, found.forward)}.",
            numbers=(number, Evidence(metric="penalised weights", value=found.weights)),
            remedies=(*remedies, AVERAGED) if found.averaged and found.kind == "squares" else remedies,
            gain=whole.scaled(penalty.needless).reaching(whole.value),
        )
