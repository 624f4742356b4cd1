"""CMP003: the device spends its time on matrix products in full single precision."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.wording import percent

_AMD = re.compile(r"AMD|Radeon|Instinct|\bMI\d{3}", re.IGNORECASE)


@dataclass(frozen=True)
class SinglePrecision:
    """Matrix products run in full single precision on a device that has faster units for lower ones.

    What it measures:
        The share of the device's work that goes to kernels which say in their name that they multiply matrices or
        convolve in float32 on ordinary cores, while the device computes for nearly all of the step and is kept fed.

    Why it matters:
        Tensor cores do the same products several times as fast in TF32, bfloat16 or float16. Where the host, the
        loader or communication sets the pace, precision changes nothing, and this rule says nothing.

    What to try:
        Automatic mixed precision: bfloat16 on devices from 2020 on, float16 with gradient scaling on older ones; TF32
        (``torch.set_float32_matmul_precision("high")``) where results must stay close to float32.

    When it is wrong:
        Only names that are known count; a kernel with an unknown name is not float32, and not lower precision either.
        What it would gain is not predicted: it depends on shapes, and a paired run measures it.
    """

    code: ClassVar[str] = "CMP003"
    name: ClassVar[str] = "single-precision"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trace"]] = "trace"

    compute_share: float = field(
        default=0.85, metadata=limit("computing over the step from which precision can matter", "judgement")
    )
    product_share: float = field(
        default=0.30, metadata=limit("float32 products over the device's work to mention", "judgement")
    )
    prompt_share: float = field(
        default=0.05, metadata=limit("f20 up to which the device is fed", "17 public traces: fed 0.00 to 0.03")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("precision")
        computing, device = facts.share(Part.COMPUTE), facts.trace.device
        share = facts.kernel_share(facts.launches.names.single_precision(device))
        numbers = (
            Evidence(
                metric="float32 products, of the device's work",
                value=share * 100,
                unit="%",
                limit=self.product_share * 100,
            ),
            evidence("computing", computing, "%", limit=self.compute_share),
        )
        if computing.value < self.compute_share or facts.prompt_share > self.prompt_share:
            return cleared(
                self, f"computing takes {percent(computing.value)} of a step: precision is not what to change", *numbers
            )
        if share < self.product_share:
            return cleared(self, f"float32 products take {percent(share)} of the device's work", *numbers)
        major = _compute_capability(facts)
        if major < 7:
            return cleared(self, "the device has no tensor cores", *numbers)
        half, name = ("float16 with gradient scaling", "float16") if major < 8 else ("bfloat16", "bfloat16")
        remedies = [Remedy(f"Train in {half}. {CHANGES_TRAINING}", {"precision": name})]
        if major >= 8 and not _made_by_amd(facts):
            remedies.append(Remedy("Let float32 products use TF32.", {"precision": "tf32"}))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the device's work is matrix products and convolutions in float32 on "
            f"ordinary cores, and the device computes for {percent(computing.value)} of the step: "
            "a lower precision may pay.",
            scope=facts.label,
            evidence=numbers,
            remedies=tuple(remedies),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, thin=facts.thin),
        )


def _made_by_amd(facts: TraceFacts) -> bool:
    """Whether the device is AMD's: generations are numbered otherwise (gfx9 …), and TF32 is the MI300's alone."""
    devices = facts.trace.about.get("deviceProperties")
    names = [one.get("name") for one in devices if isinstance(one, dict)] if isinstance(devices, list) else []
    return any(isinstance(name, str) and _AMD.search(name) is not None for name in names)


def _compute_capability(facts: TraceFacts) -> int:
    devices = facts.trace.about.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    major = first.get("computeMajor") if isinstance(first, dict) else None
    if not isinstance(major, int) or isinstance(major, bool):
        raise NotMeasured("device_properties", "the trace does not say which device it is (deviceProperties)")
    return major
