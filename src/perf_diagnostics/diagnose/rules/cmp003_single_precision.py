"""CMP003: the device computes in float32 what it computes several times faster in 16 bits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.hardware.sixteen_bits import half_format
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.products import faster_products


@dataclass(frozen=True)
class SinglePrecision:
    """Products are computed in single precision on hardware that is much faster in half.

    What it measures:
        Whether forward and backward set the pace on a device, in float32 or TF32, and how much faster its maker says
        16-bit products are than what the model computes in: TF32 where torch's matmul precision allows it, and for
        convolutions; the share of products in the operations.

    Why it matters:
        Published for BERT on an H100: 5.1 times the throughput from float32 to float16 at large batches, and nothing
        at batch 1, where the host sets the pace.

    What to try:
        Train in bfloat16 from compute capability 8.0 on; float16 with gradient scaling on devices without units for it.

    When it is wrong:
        Sheets promise more than kernels hold; products may take less of the time than of the operations. Where
        launches, data or copies set the pace lower precision wins nothing, and this rule says so.
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

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("precision")
        precision = roofline.computes_in(facts)
        if precision in (*roofline.HALF, roofline.DOUBLE):
            return cleared(self, f"it computes in {precision}")
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
