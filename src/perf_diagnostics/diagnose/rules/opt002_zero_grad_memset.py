"""OPT002: gradients are set to zero instead of being let go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence

#: A gradient in float32 is written with zeros, and read again when the first one is added to it.
_BYTES_PER_PARAMETER = 8.0


@dataclass(frozen=True)
class ZeroGradMemset:
    """Clearing gradients writes zeros over all of them.

    What it measures:
        Whether ``zero_grad(set_to_none=False)`` was asked for; letting gradients go is the default since torch 2.0.

    Why it matters:
        Zeros are written, and the backward pass then adds to them instead of writing: 8 bytes a parameter for nothing.

    What to try:
        ``optimizer.zero_grad()`` without arguments.

    When it is wrong:
        Code that reads gradients after clearing them needs the zeros.
    """

    code: ClassVar[str] = "OPT002"
    name: ClassVar[str] = "zero-grad-memset"
    family: ClassVar[Family] = Family.OPTIMIZER
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(default=0.0, metadata=limit("part of the step to mention", "PyTorch tuning guide"))

    def check(self, facts: TrialFacts) -> Answer:
        to_none = facts.result.facts.get("zero_grad_to_none")
        if not isinstance(to_none, bool):
            raise NotMeasured("zero_grad_to_none", "how the loop clears its gradients was not seen")
        if to_none:
            return cleared(self, "gradients are let go, not zeroed")
        cost_s = ask(_cost_s, facts)
        numbers = () if cost_s is None else (Evidence(metric="zeroing a step", value=cost_s * 1e3, unit="ms"),)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary="Gradients are overwritten with zeros (set_to_none=False) instead of being let go.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Call zero_grad() without arguments."),),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )


def _cost_s(facts: TrialFacts) -> float:
    return facts.quantity("trainable_parameters") * _BYTES_PER_PARAMETER / facts.quantity("memory_bandwidth")
