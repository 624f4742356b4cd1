"""CMP007: float32 products do not use TF32 on a device that has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Family, Remedy
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.products import faster_products


@dataclass(frozen=True)
class Tf32Off:
    """Float32 products run on ordinary cores although the device has TF32.

    What it measures:
        torch's float32 matmul precision (``highest`` is the default, and forbids TF32), whether forward and backward
        set the pace, and how much faster the maker's sheet says TF32 is.

    Why it matters:
        On an H100, TF32 made published BERT training 2.35 times and ConvNeXt 2.0 times as fast at large batches, and
        nothing at batch 1. It needs one line and no other change.

    What to try:
        ``torch.set_float32_matmul_precision("high")``.

    When it is wrong:
        Some models need more than TF32's ten bits of mantissa. Convolutions use TF32 anyway. On GeForce cards of
        these generations TF32 is no faster than float32, and the sheet says so.
    """

    code: ClassVar[str] = "CMP007"
    name: ClassVar[str] = "tf32-off"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_speedup: float = field(default=1.5, metadata=limit("the sheet's speed-up worth a word", "judgement"))
    product_share: float = field(default=0.30, metadata=limit("share of products in the operations", "milabench"))

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("matmul_precision")
        if str(facts.result.trial.settings.precision) != "float32" or roofline.computes_in(facts) in (
            *roofline.HALF,
            roofline.DOUBLE,
        ):
            return cleared(self, f"it computes in {roofline.computes_in(facts)}")
        setting = facts.word("matmul_precision")
        if setting is None:
            raise NotMeasured("matmul_precision", "torch's float32 matmul precision was not recorded")
        if setting != "highest":
            return cleared(self, f"float32 matmul precision is {setting!r}")
        sheet = roofline.sheet(facts)
        if sheet.tf32 is None or sheet.float32 is None:
            raise NotApplicable("tf32", "the device has no TF32")
        return faster_products(
            self,
            facts,
            sheet.tf32 / sheet.float32,
            least_speedup=self.least_speedup,
            product_share=self.product_share,
            remedy=Remedy(
                "Let float32 products use TF32. This changes results in their last digits.", {"precision": "tf32"}
            ),
            what="TF32 products",
            waste="TF32",
        )
