"""CMP006: the step moves bytes about as fast as memory can, and computes little on each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.products import in_16_bits
from perf_diagnostics.diagnose.wording import percent, significant


@dataclass(frozen=True)
class MemoryBandwidthBound:
    """Memory, not arithmetic, sets the pace of a step.

    What it measures:
        The bytes that the operators of a step read and write (each operand once an operator, counted on an uncompiled
        copy) over its time, against the fastest large copy of the same run; and the operations for each byte, against
        the ridge: the measured ceiling of products over that of copies. Below the ridge memory is the lower ceiling.
        In a profiler window or trace of a device that is kept fed: its time in kernels of torch's own that go over
        memory and compute little (activations, norms, dropout, sums), and what of it would go if each row of them, one
        after another, were its longest kernel.

    Why it matters:
        More or faster arithmetic does not help then. Fewer bytes do.

    What to try:
        Fuse what is not a product (compile); lower precision, which halves the bytes; channels last for convolutions;
        a fused optimizer; less activation checkpointing.

    When it is wrong:
        The count knows no cache and no fused kernel, so that it is an upper bound: small operands are served from
        caches. Where it exceeds what memory can move, the rule abstains. The largest operators may differ from the
        mean of the step, which only a profile shows; therefore it is only suspected here.
    """

    code: ClassVar[str] = "CMP006"
    name: ClassVar[str] = "memory-bandwidth-bound"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_share: float = field(
        default=0.60, metadata=limit("part of the measured bandwidth from which memory is suspected", "judgement")
    )
    most_share: float = field(
        default=1.15, metadata=limit("part of the measured bandwidth above which caches must have helped", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        share, dense, ridge = roofline.bandwidth_share(facts), roofline.intensity(facts), roofline.ridge(facts)
        numbers = (
            evidence("of the fastest copy", share, "%", limit=self.least_share),
            Evidence(metric="operations a byte", value=dense, limit=ridge),
        )
        if dense >= ridge or share.value < self.least_share:
            return cleared(
                self,
                f"{significant(dense, 2)} operations a byte (ridge {significant(ridge, 2)}), "
                f"{percent(share.value)} of what memory can move",
                *numbers,
            )
        if share.value > self.most_share:
            raise NotMeasured(
                "traffic_bytes_per_step",
                f"the operators touch {significant(share.value, 2)} times what memory can move in that time: caches "
                "serve a part of it, and how much is not known",
            )
        held = roofline.held_back_by(facts)
        if held is not None:
            return cleared(self, f"{held} sets the pace", *numbers)
        products = facts.quantity("flops_per_step") / roofline.fastest_product(facts) / facts.step_time_s.value
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"A step does {significant(dense, 2)} operations for each byte it touches (this device is "
            f"balanced at {significant(ridge, 2)}) and moves {percent(share.value)} of what memory can: "
            "memory probably sets the pace.",
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts),
            recoverable=recoverable(_above(share, products), self.family),
            confidence=confidence(
                Tier.SHARE, sure=share.surely_at_least(self.least_share), coverage=facts.coverage, thin=facts.thin
            ),
        )


def _above(share: Interval, products: float) -> Interval:
    """What would go if nothing but the products had to be waited for."""
    return Interval(max(0.0, min(1.0, share.value) - products), None, None, share.n)


def _remedies(facts: TrialFacts) -> tuple[Remedy, ...]:
    settings = facts.result.trial.settings
    found = [Remedy("Compile the model, which fuses what is not a product.", {"compile_mode": "default"})]
    found += in_16_bits(facts, because=", which halves the bytes")
    if settings.gradient_checkpointing:
        found.append(Remedy("Keep activations instead of computing them again.", {"gradient_checkpointing": False}))
    return tuple(found)
