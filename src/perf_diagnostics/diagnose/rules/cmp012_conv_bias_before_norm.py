"""CMP012: convolutions have a bias that the batch normalisation behind them takes away again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import counted


@dataclass(frozen=True)
class ConvBiasBeforeNorm:
    """A bias is added, and the batch normalisation that follows subtracts it with the mean.

    What it measures:
        Convolutions with a bias that stand right before a batch normalisation of as many channels.

    Why it matters:
        Adding it, and summing its gradient over the whole output, is work for nothing. It is little.

    What to try:
        Make these convolutions with ``bias=False``; their parameters are then also fewer.

    When it is wrong:
        The order is read from how the modules are registered; a model may call them in another one.
    """

    code: ClassVar[str] = "CMP012"
    name: ClassVar[str] = "conv-bias-before-norm"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least: int = field(default=1, metadata=limit("such convolutions to mention", "PyTorch tuning guide"))

    def check(self, facts: TrialFacts) -> Answer:
        if "convolutions" not in facts.result.facts:
            seen = "compiled" in facts.result.facts
            why = "the model has no convolution" if seen else "nobody looked at the model's layers"
            raise NotApplicable("convolutions", why)
        count = facts.number("conv_bias_before_norm")
        number = Evidence(metric="convolutions with a bias before a normalisation", value=count, limit=self.least)
        if count < self.least:
            return cleared(self, "no bias stands before a batch normalisation", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{counted(int(count), 'convolution')} with a bias right before a batch normalisation, which "
            "subtracts it again.",
            scope=facts.label,
            evidence=(number,),
            remedies=(Remedy("Make these convolutions with bias=False."),),
            confidence=confidence(Tier.CONFIGURATION, sure=True),
        )
