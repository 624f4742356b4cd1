"""CMP009: attention is computed product by product, with its scores written out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.code.code_words import at_line
from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.facts.operator_facts import (
    OperatorsAt,
    claims_of,
    in_operators,
    operators_at,
    operators_timed,
    share_of_step,
)
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, grade, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.one_step import in_one_step
from perf_diagnostics.diagnose.wording import and_more_lines, percent_between
from perf_diagnostics.records import Phase

_ALLOW = Remedy(
    "Leave attention's kernels on: take out torch.backends.cuda.enable_flash_sdp(False), which holds for the CPU as "
    "well, enable_mem_efficient_sdp(False), and sdpa_kernel(SDPBackend.MATH)."
)


@dataclass(frozen=True)
class UnfusedAttention:
    """Attention writes its whole score matrix to memory instead of using a fused kernel.

    What it measures:
        In a step of a loop or trial that does not count: each softmax between two matrix products, whether
        torch has one kernel for such attention here, also where it is switched off, whether something in the
        step reads its weights, and on the CPU the time of the operators between, forward and backward, and of
        the kernel, tried on tensors of the same shapes. Elsewhere how the model's attention is written: what
        its configuration names, or whether the source of its attention modules computes softmax and never calls
        a fused operator; beside it the tokens of a sample. In a profiler window or trace: the device's time
        (or the CPU's operators') between the two batched products around a softmax, forward and backward, and
        what of it is no product.

    Why it matters:
        The scores of eager attention grow with the square of the length, and are written and read several times.
        Fused kernels never write them.

    What to try:
        ``torch.nn.functional.scaled_dot_product_attention``; in transformers ``attn_implementation="sdpa"``; of
        ``nn.MultiheadAttention`` ``need_weights=False``, with ``is_causal=True`` beside a causal mask.

    When it is wrong:
        With short sequences it makes no difference. Some attention (returned weights, odd masks, on the CPU dropout)
        cannot be fused. Weights that the script keeps, and reads in other steps only, look unused. How long it takes is
        measured on the CPU and in a window only, and not in parts of the model that are compiled whole.
    """

    code: ClassVar[str] = "CMP009"
    name: ClassVar[str] = "unfused-attention"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    long_tokens: float = field(
        default=1024.0, metadata=limit("tokens a sample from which it is worth a warning", "judgement")
    )

    info_share: float = field(
        default=0.05, metadata=limit("share of the step that a kernel would save to mention", "judgement")
    )
    warn_share: float = field(
        default=0.10,
        metadata=limit("share of the step that a kernel would save to warn from", "as HST006; a judgement"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        seen = ask(operators_at, facts, "composed_attention")
        if seen and operators_timed(facts):
            return self._seen(facts, seen)
        how = "eager" if seen and any(map(_can_be_fused, seen)) else facts.word("attention")
        if how is None and seen is not None:
            return cleared(self, "no attention that could be one kernel was seen in the step that was looked through")
        if how is None:
            raise NotApplicable("attention", "the model has no attention whose kind could be told")
        return cleared(self, f"attention is {how}") if how != "eager" else self._by_its_kind(facts)

    def _seen(self, facts: TrialFacts, seen: Sequence[OperatorsAt]) -> Answer:
        """By what one step computed, and what a kernel takes instead."""
        lines = [one for one in seen if _can_be_fused(one)]
        if not lines:
            why = "something reads its weights" if seen[0].more.get("used") else "torch has no kernel for it here"
            return cleared(self, f"attention is computed step by step, and has to be: {why}")
        between = share_of_step(facts, lines)
        computing = sum(
            facts.share(phase).value * in_operators(facts, phase) for phase in (Phase.FORWARD, Phase.BACKWARD)
        )
        saved = _saved(between, lines, computing)
        graded = grade(saved, ((Severity.INFO, self.info_share), (Severity.WARNING, self.warn_share)))
        numbers = [
            in_one_step("softmax, masks and copies of attention's scores", between),
            in_one_step("time that one kernel of attention saves", saved, limit=self.info_share),
        ]
        length = ask(lambda: facts.tokens_per_sample)
        if length is not None:
            numbers.append(Evidence(metric="tokens a sample", value=length.value, n=length.n))
        if graded is None:
            return cleared(self, "attention is computed step by step, and one kernel would save little", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=graded.severity,
            summary=_summary(lines, between),
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=_remedies(lines[0]),
            recoverable=recoverable(saved, self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=graded.sure, coverage=facts.coverage, thin=facts.thin),
            claims=claims_of(facts, lines),
        )

    def _by_its_kind(self, facts: TrialFacts) -> Answer:
        """By how the model is written."""
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


def _can_be_fused(one: OperatorsAt) -> bool:
    return one.more.get("fused") is True and not one.more.get("used")


def _saved(between: Interval, lines: Sequence[OperatorsAt], computing: float) -> Interval:
    """What one kernel saves of the step: all of attention less what the kernel took where it was tried for every line,
    else at most what lies between the products.

    Args:
        between: the share of the step between the products.
        lines: where attention is computed.
        computing: the share of the step in operators of forward and backward.
    """
    tried = [one.number("instead") for one in lines]
    if None in tried:
        return between
    whole = sum(one.whole + (one.number("products") or 0.0) for one in lines)
    saved = max(0.0, whole - sum(took for took in tried if took is not None)) * computing
    part = 1.0 if between.low is None or not between.value else between.low / between.value
    return Interval(saved, saved * part, saved, 1)


def _summary(lines: Sequence[OperatorsAt], between: Interval) -> str:
    first = lines[0]
    more = and_more_lines(len(lines))
    if first.more.get("switched_off"):
        return (
            f"scaled_dot_product_attention computes step by step{at_line(first.place, with_text=True)}{more}, for its "
            f"kernels are switched off: softmax, masks and copies of the scores take {percent_between(between)} of "
            "each step."
        )
    weights = ", which gives weights that nothing in the step reads" if first.more.get("module") else ""
    return (
        f"Attention is computed step by step{at_line(first.place, with_text=True)}{weights}{more}: what lies between "
        f"its products (softmax, masks, copies of the scores) takes {percent_between(between)} of each step, and torch "
        "has one kernel for all of it."
    )


def _remedies(first: OperatorsAt) -> tuple[Remedy, ...]:
    if first.more.get("switched_off"):
        return (_ALLOW,)
    causal = bool(first.more.get("causal"))
    if first.more.get("module"):
        mask = " and, as its mask is causal, is_causal=True beside the mask" if causal else ""
        return (Remedy(f"Call {first.more['module']} with need_weights=False{mask}: it uses one kernel then."),)
    mask = " with is_causal=True instead of the mask, which is causal" if causal else ""
    return (Remedy(f"Use torch.nn.functional.scaled_dot_product_attention(query, key, value){mask}."),)
