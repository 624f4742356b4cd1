"""OPT001 for traces: the optimizer launches kernel after kernel for single tensors, and the device waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import KAPPA_UNMEASURED, Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.opt001_optimizer_heavy import OptimizerHeavy
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.intervals import Times
from perf_diagnostics.diagnose.wording import percent_between, significant

_BUNDLED = ("aten::_foreach_", "aten::_fused_")


@dataclass(frozen=True)
class LaunchesInOptimizer:
    """The optimizer updates tensor by tensor, and the device waits for its launches."""

    code: ClassVar[str] = OptimizerHeavy.code
    name: ClassVar[str] = OptimizerHeavy.name
    family: ClassVar[Family] = OptimizerHeavy.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    a_tensor: float = field(
        default=1.0,
        metadata=limit(
            "launches for each gradient, from which it goes tensor by tensor",
            "judgement: foreach launches once for dozens; published trace, SGD tensor by tensor: 4",
        ),
    )
    info_idle: float = field(
        default=0.02, metadata=limit("idle for want of the optimizer's launches to mention", "judgement")
    )
    warn_idle: float = field(default=0.05, metadata=limit("… to warn from", "the catalogue's 5 % above the floor"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("optimizer")
        annotations = facts.trace.of(Kind.ANNOTATION)
        ranges = annotations.where(facts.launches.names.phase("optimizer", annotations))
        if not len(ranges):
            raise NotMeasured("optimizer", "no range of an optimizer lies in the trace")
        updating = Times.union(ranges.start_ns, ranges.end_ns)
        share = facts.share_of(updating & facts.split.parts[Part.LAUNCH])
        runtime = facts.trace.runtime
        calls = runtime.where(facts.launches.launching & (updating.containing(runtime.start_ns) >= 0))
        launches = float(np.mean(facts.calls_in_steps(calls)))
        numbers = [
            evidence("idle for want of the optimizer's launches", share, "%", limit=self.info_idle),
            Evidence(metric="launches of the optimizer a step", value=launches, n=len(facts.steps)),
        ]
        tensors = facts.gradients_a_step
        if tensors is None:
            if not _bundled(facts, updating):
                raise NotMeasured("optimizer_tensors", "the trace does not show how many gradients a step has")
            return cleared(self, f"{significant(launches)} launches a step update all tensors together", *numbers)
        each = launches / tensors
        numbers.append(Evidence(metric="launches for each gradient", value=each, limit=self.a_tensor))
        level = grade(share, ((Severity.INFO, self.info_idle), (Severity.WARNING, self.warn_idle)))
        if each < self.a_tensor or level is None:
            says = f"{significant(launches)} launches a step for {tensors:g} tensors keep the device waiting for"
            return cleared(self, f"the optimizer's {says} {percent_between(share)} of a step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=level.severity,
            summary=f"The optimizer launches {launches:,.0f} kernels a step for {tensors:,.0f} tensors, one tensor "
            f"after another, and the device waits {percent_between(share)} of each step for them.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(
                Remedy("Use the fused implementation.", {"optimizer_implementation": "fused"}),
                Remedy("Use the foreach implementation.", {"optimizer_implementation": "foreach"}),
            ),
            recoverable=recoverable(share, self.family, floor=facts.busy_share, realised=KAPPA_UNMEASURED),
            confidence=confidence(Tier.DEEP_WINDOW, sure=level.sure, coverage=facts.coverage, thin=facts.thin),
            claims={str(Part.LAUNCH): share.value},
        )


def _bundled(facts: TraceFacts, updating: Times) -> bool:
    """Whether an operator inside the optimizer's ranges takes many tensors at once."""
    operators = facts.trace.of(Kind.OPERATOR)
    inside = operators.where(updating.containing(operators.start_ns) >= 0)
    return any(facts.trace.names[name].startswith(_BUNDLED) for name in np.unique(inside.name).tolist())
