"""CMP003: the device computes in float32 what it computes several times faster in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.hardware.sixteen_bits import half_format
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule_parts.in_bfloat16 import in_bfloat16
from perf_diagnostics.diagnose.rule_parts.products import faster_products
from perf_diagnostics.diagnose.wording import percent, percent_between, significant

#: Of the least that a CPU would win by what was tried on it, this part is taken to be sure, for other steps differ: a
#: judgement.
REALISED = 0.8


@dataclass(frozen=True)
class SinglePrecision:
    """Products are computed in single precision on hardware that is much faster in half.

    What it measures:
        Whether forward and backward set the pace on a device, in float32 or TF32, and how much faster its maker says
        16-bit products are than what the model computes in: TF32 where torch's matmul precision allows it, and for
        convolutions; the share of products in the operations. On a CPU with units for bfloat16 (AVX-512 BF16, AMX,
        Arm's BF16) the products of a step of a loop or trial, which is none of those that count, are tried in both
        types afterwards, for half a second at most; in a sweep the fastest products in both are measured after the
        steps. In a profiler window or trace of a device: its time in kernels that say float32, where it computes for
        nearly all of the step, and whether others beside them run in lower precision.

    Why it matters:
        Published for BERT on an H100: 5.1 times the throughput from float32 to float16 at large batches, and nothing
        at batch 1, where the host sets the pace. On two cores with AVX-512 BF16 (torch 2.13) five of six trainings took
        23 to 48 % less time under autocast.

    What to try:
        Train in bfloat16 from compute capability 8.0 on, or on a CPU with units for it; float16 with gradient scaling
        on devices without.

    When it is wrong:
        Sheets promise more than kernels hold; products may take less of the time than of the operations. Where
        launches, data or copies set the pace lower precision wins nothing, and this rule says so. Small products lose
        by the casts: an MLP of 1 ms a step took 40 % longer on that CPU. What other operators win or lose in bfloat16
        is assumed, so that on a CPU it is only mentioned, as something to try.
    """

    code: ClassVar[str] = "CMP003"
    name: ClassVar[str] = "single-precision"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_speedup: float = field(
        default=1.5, metadata=limit("the sheet's speed-up from which it is worth a word", "judgement")
    )
    product_share: float = field(
        default=0.30, metadata=limit("share of products in the operations", "milabench: 2.2 to 5.1 times from there")
    )
    cpu_share: float = field(
        default=0.10, metadata=limit("share of the step that bfloat16 saves on a CPU, to mention it", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        precision = roofline.computes_in(facts)
        if precision in (*roofline.HALF, roofline.DOUBLE):
            return cleared(self, f"it computes in {precision}")
        if not facts.on_accelerator:
            return self._on_the_cpu(facts)
        sheet, now = roofline.sheet(facts), roofline.sheet_flops(facts)
        name = half_format(facts.result) or roofline.HALF[0]  # never "or": a device with a sheet has a format
        faster = (sheet.flops(name) or 0.0) / now
        return faster_products(
            self,
            facts,
            faster,
            least_speedup=self.least_speedup,
            product_share=self.product_share,
            remedy=Remedy(f"Train in {name}. {CHANGES_TRAINING}", {"precision": name}),
            what=f"{name} products",
            waste="lower precision (AMP)",
        )

    def _on_the_cpu(self, facts: TrialFacts) -> Answer:
        if facts.result.environment.host.get("bfloat16_units") is False:
            raise NotApplicable("precision", "this processor has no units for bfloat16")
        won, times, source = in_bfloat16(facts)
        faster = Evidence(metric="its products in bfloat16, times as fast", value=times, n=1, source=source)
        numbers = (evidence("saved in bfloat16", won, "%", limit=self.cpu_share), faster)
        if won.value < self.cpu_share:
            return cleared(self, f"bfloat16 would save {percent(max(0.0, won.value))} of the step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"Its products in float32 are {significant(times, 2)} times as fast in bfloat16, for which this "
            f"processor has units: {percent_between(won)} of each step.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy(f"Train in bfloat16. {CHANGES_TRAINING}", {"precision": "bfloat16"}),),
            recoverable=recoverable(won, self.family, realised=REALISED),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
