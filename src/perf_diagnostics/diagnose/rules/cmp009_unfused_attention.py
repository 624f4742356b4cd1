"""CMP009: attention is computed product by product, with its scores written out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence


@dataclass(frozen=True)
class UnfusedAttention:
    """Attention writes its whole score matrix to memory instead of using a fused kernel.

    What it measures:
        How the model's attention is written: what its configuration names, or whether the source of its attention
        modules computes softmax and never calls a fused operator. Beside it the tokens of a sample. In a profiler
        window or trace: the device's time between the two batched products around a softmax, forward and backward, and
        what of it is no product.

    Why it matters:
        The scores of eager attention grow with the square of the length, and are written and read several times.
        Fused kernels never write them.

    What to try:
        ``torch.nn.functional.scaled_dot_product_attention``; in transformers ``attn_implementation="sdpa"``.

    When it is wrong:
        With short sequences it makes no difference. Some attention (returned weights, odd masks) cannot be fused. How
        long it takes is measured in a window only, and not in parts of the model that are compiled whole.
    """

    code: ClassVar[str] = "CMP009"
    name: ClassVar[str] = "unfused-attention"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    long_tokens: float = field(
        default=1024.0, metadata=limit("tokens a sample from which it is worth a warning", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        how = facts.word("attention")
        if how is None:
            raise NotApplicable("attention", "the model has no attention whose kind could be told")
        if how != "eager":
            return cleared(self, f"attention is {how}")
        length = ask(lambda: facts.tokens_per_sample)
        numbers = (
            ()
            if length is None
            else (Evidence(metric="tokens a sample", value=length.value, limit=self.long_tokens, n=length.n),)
        )
        long = length is not None and length.value >= self.long_tokens
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if long and facts.on_accelerator else Severity.INFO,
            summary="Attention is computed step by step (eager), which writes the score of every pair of tokens to "
            "memory several times.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy('Use scaled_dot_product_attention (transformers: attn_implementation="sdpa").'),),
            confidence=confidence(Tier.CONFIGURATION, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
