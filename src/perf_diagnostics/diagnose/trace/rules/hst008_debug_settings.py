"""HST008 for traces: anomaly detection, which looks at what each of autograd's nodes gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.hst008_debug_settings import ANOMALY_OFF, DebugSettings
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import share_of_operators
from perf_diagnostics.diagnose.wording import mean_count, percent

#: What autograd's engine calls of each gradient that a node gives, where anomalies are to be detected
#: (``torch/csrc/autograd/engine.cpp`` of torch 2.6 to 2.13); nothing else of it does.
_LOOKS = frozenset(("aten::isnan", "aten::_is_any_true", "aten::item"))
_ASKS = "aten::_is_any_true"

#: Of a model's own checks there are a few in a pass; of the engine's as many as nodes (judgement).
_OF_THE_NODES = 0.5


@dataclass(frozen=True)
class AnomalyDetection:
    """Each node of a backward pass is followed by a look for numbers that are not finite."""

    code: ClassVar[str] = DebugSettings.code
    name: ClassVar[str] = DebugSettings.name
    family: ClassVar[Family] = DebugSettings.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: DebugSettings = field(default_factory=DebugSettings)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_steady()
        nodes, trace = facts.require_nodes(), facts.trace
        operators = trace.of(Kind.OPERATOR)
        inside = nodes.passes.containing(operators.start_ns) >= 0
        operators = operators.where(inside & (facts.steps.on_host.containing(operators.start_ns) >= 0))
        looks = operators.where(trace.named(_LOOKS.__contains__)[operators.name])
        asks = int(np.count_nonzero(trace.named(lambda name: name == _ASKS)[looks.name]))
        count = int(np.count_nonzero(facts.steps.on_host.containing(nodes.rows.start_ns) >= 0))
        calls = asks / len(facts.steps)
        if not asks or asks < _OF_THE_NODES * count:
            return cleared(self, "backward passes look for no anomalies")
        share = share_of_operators(facts, looks)
        # What recording where each operator was called takes in forward, no operator shows.
        low = min(share.value, self.limits.anomaly_low)
        cost = Interval(max(share.value, (low + self.limits.anomaly_high) / 2), low, self.limits.anomaly_high, share.n)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"Anomaly detection is on: each backward pass looks for NaN after each of its nodes, "
            f"{mean_count(calls)} times a step, which takes {percent(share.value)} of it; and forward notes where each "
            f"operator was called. Where it was tried, it took {percent(self.limits.anomaly_low)} to "
            f"{percent(self.limits.anomaly_high)} of a step.",
            scope=facts.label,
            evidence=(
                evidence("looking for anomalies", share, "%"),
                Evidence(metric="looks for anomalies a step", value=calls),
            ),
            remedies=(Remedy(f"Switch it off: {ANOMALY_OFF}, or leave torch.autograd.detect_anomaly()."),),
            recoverable=recoverable(cost, self.family),
            confidence=confidence(Tier.SWITCH, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
