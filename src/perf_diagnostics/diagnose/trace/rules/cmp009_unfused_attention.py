"""CMP009 for traces: the device's time in attention that writes its scores out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp009_unfused_attention import UnfusedAttention
from perf_diagnostics.diagnose.trace.attention import steps_of_sdpa, written_attention, written_on_the_cpu
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.wording import percent

_FUSED = Remedy(
    'Use scaled_dot_product_attention (transformers: attn_implementation="sdpa"; of nn.MultiheadAttention '
    "need_weights=False)."
)


@dataclass(frozen=True)
class WrittenScores:
    """Attention is computed product by product, and its scores go to memory and back."""

    code: ClassVar[str] = UnfusedAttention.code
    name: ClassVar[str] = UnfusedAttention.name
    family: ClassVar[Family] = UnfusedAttention.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    work_share: float = field(
        default=0.05, metadata=limit("part of the device's work in such attention to mention", "the catalogue's 5 %")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("part of the step on scores beside the products to warn from", "judgement")
    )
    starved_share: float = field(
        default=0.50, metadata=limit("f20 from which the host sets the pace", "17 public traces: 0.59 to 1.00")
    )

    def check(self, facts: TraceFacts) -> Answer:
        if not facts.on_device:
            return self._on_the_cpu(facts)
        attention = written_attention(facts)
        if attention is None:
            return cleared(self, "attention is fused")
        share = facts.kernel_share(attention.work)
        # Of the step it is at most its part of the time in which the device computes.
        scores = facts.kernel_share(attention.scores) * facts.share(Part.COMPUTE).value
        numbers = [
            Evidence(metric="device's work in unfused attention", value=share * 100, unit="%",
                     limit=self.work_share * 100),
            Evidence(metric="step on its scores, beside the products", value=scores * 100, unit="%",
                     limit=self.warn_share * 100),
        ]  # fmt: skip
        if attention.tokens is not None:
            numbers.append(Evidence(metric="tokens attended to, at most", value=attention.tokens))
        if share < self.work_share:
            return cleared(self, f"unfused attention takes {percent(share)} of the device's work", *numbers)
        starved = facts.prompt_share >= self.starved_share
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if scores >= self.warn_share and not (starved or facts.thin) else Severity.INFO,
            summary=f"{percent(share)} of the device's work is attention computed step by step: its scores go to "
            f"memory and back between two products, which takes {percent(scores)} of the step beside the products"
            f"{'; but the host sets the pace' if starved else ''}.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_remedy(facts),),
            recoverable=None if starved else recoverable(Interval(scores, None, None, len(facts.steps)), self.family),
            confidence=confidence(Tier.DEEP_WINDOW, sure=True, coverage=facts.coverage, thin=facts.thin),
        )

    def _on_the_cpu(self, facts: TraceFacts) -> Answer:
        """There the operators themselves tell; masks that are made before the scores are not among them."""
        attention = written_on_the_cpu(facts)
        if attention is None:
            return cleared(self, "attention is fused")
        limit_of = self.warn_share * 100
        numbers = [
            Evidence(metric="unfused attention", value=attention.work * 100, unit="%"),
            Evidence(metric="its scores, beside the products", value=attention.scores * 100, unit="%", limit=limit_of),
        ]
        if attention.tokens is not None:
            numbers.append(Evidence(metric="tokens attended to, at most", value=attention.tokens))
        if attention.work < self.work_share:
            return cleared(self, f"unfused attention takes {percent(attention.work)} of a step", *numbers)
        gone = Interval(attention.scores, attention.scores, attention.work, len(facts.steps))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if attention.scores >= self.warn_share and not facts.thin else Severity.INFO,
            summary=f"{percent(attention.work)} of each step is attention computed step by step: its scores go to "
            f"memory and back between two products, which takes {percent(attention.scores)} beside the products.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(_remedy(facts),),
            recoverable=recoverable(gone, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


def _remedy(facts: TraceFacts) -> Remedy:
    called, because = steps_of_sdpa(facts)
    if not called:
        return _FUSED
    why = f", for {because}" if because else ""
    if facts.on_device:
        return Remedy(
            f"scaled_dot_product_attention is called, and takes these steps itself{why}: under torch.nn.attention."
            "sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION) it fails, and says what stands in the way."
        )
    return Remedy(
        f"scaled_dot_product_attention is called, and takes these steps itself{why}. On the CPU it is fused with "
        "dropout_p=0 (transformers: attention_probs_dropout_prob=0 or attention_dropout=0; it regularises a little "
        "less, and dropout elsewhere may stay), four dimensions, "
        "values as wide as queries, and a mask that needs no gradient."
    )
