"""CMP003: the device spends its time on matrix products in full single precision."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.hardware.data_sheets import half_precision, peak
from perf_diagnostics.diagnose.hardware.peaks import Peak
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.products import products
from perf_diagnostics.diagnose.trace.rule import of_the_step
from perf_diagnostics.diagnose.wording import percent, significant

_AMD = re.compile(r"AMD|Radeon|Instinct|\bMI\d{3}", re.IGNORECASE)


@dataclass(frozen=True)
class SinglePrecision:
    """Matrix products run in full single precision on a device that has faster units for lower ones.

    What it measures:
        The share of the device's work that goes to kernels which say in their name that they multiply matrices or
        convolve in float32 on ordinary cores, while the device computes for nearly all of the step and is kept fed;
        and whether others beside them run in lower precision, so that these were left out of it.

    Why it matters:
        Tensor cores do the same products several times as fast in TF32, bfloat16 or float16. Where the host, the
        loader or communication sets the pace, precision changes nothing, and this rule says nothing.

    What to try:
        Automatic mixed precision: bfloat16 on devices from 2020 on, float16 with gradient scaling on older ones; TF32
        (``torch.set_float32_matmul_precision("high")``) where results must stay close to float32.

    When it is wrong:
        Only names that are known count; a kernel with an unknown name is not float32, and not lower precision either.
        Sheets promise more than kernels hold, and on a device without a sheet no gain is predicted.
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
    least_speedup: float = field(
        default=1.5, metadata=limit("the sheet's speed-up from which it is worth a word", "judgement")
    )
    mixed_share: float = field(
        default=0.10,
        metadata=limit(
            "products in lower precision over the device's work, from which others are left out", "judgement"
        ),
    )
    prompt_share: float = field(
        default=0.05, metadata=limit("f20 up to which the device is fed", "17 public traces: fed 0.00 to 0.03")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("precision")
        computing, trace_device = facts.share(Part.COMPUTE), facts.trace.device
        share = facts.part_of_computing(facts.launches.names.single_precision(trace_device))
        numbers: tuple[Evidence, ...] = (
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
        major, minor, device_name = _device(facts)
        if major < 7:
            return cleared(self, "the device has no tensor cores", *numbers)
        half = half_precision(device_name, (major, minor)) or "bfloat16"
        sheet = peak(device_name)
        faster = _times(sheet, half)
        tf32 = (_times(sheet, "tf32") or 0.0) >= self.least_speedup if sheet else major >= 8 and not _amd(device_name)
        if faster is not None:
            source = sheet.source if sheet else ""
            numbers = (*numbers, Evidence(metric=f"{half} products, times as fast", value=faster,
                                          limit=self.least_speedup, source=source))  # fmt: skip
            if faster < self.least_speedup:
                says = f"by its sheet this device does {half} products {significant(faster, 2)} times as fast"
                return cleared(self, says, *numbers)
        lower = facts.part_of_computing(facts.launches.names.lower_precision(trace_device))
        mixed = lower >= self.mixed_share
        if mixed:
            said = Evidence(metric="products in lower precision, of the device's work", value=lower * 100, unit="%")
            numbers = (*numbers, said)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if faster is None or facts.forward_only else Severity.WARNING,
            summary=f"{percent(share)} of the device's work is matrix products and convolutions in float32 on "
            f"ordinary cores{_largest(facts)}, and the device computes for {percent(computing.value)} of the step: "
            + (
                f"they are left out of the lower precision in which others run ({percent(lower)})."
                if mixed
                else "a lower precision may pay."
            ),
            scope=facts.label,
            evidence=numbers,
            remedies=_remedies(facts, half, tf32=tf32, mixed=mixed),
            recoverable=None if faster is None else recoverable(_removable(facts, share, faster), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, thin=facts.thin),
        )


def _remedies(facts: TraceFacts, half: str, *, tf32: bool, mixed: bool) -> tuple[Remedy, ...]:
    changes = "Results differ in their digits." if facts.forward_only else CHANGES_TRAINING
    names, device = facts.launches.names, facts.trace.device
    single = names.single_precision(device)
    convolves = facts.part_of_computing(single & names.convolution(device)) > facts.part_of_computing(single) / 2
    allow = "torch.backends.cudnn.allow_tf32 = True" if convolves else 'torch.set_float32_matmul_precision("high")'
    if mixed:
        found = [
            Remedy(
                f"Have these products in {half}, too: inside of torch.autocast, without autocast(enabled=False) or "
                f".float() before them. {changes}"
            )
        ]
        if tf32:
            found.append(Remedy(f"Let float32 products use TF32, beside autocast: {allow}."))
        return tuple(found)
    with_scaler = " with gradient scaling" if half == "float16" and not facts.forward_only else ""
    do = "Run" if facts.forward_only else "Train"
    found = [Remedy(f"{do} in {half}{with_scaler}. {changes}", {"precision": half})]
    if tf32:
        found.append(Remedy(f"Let float32 products use TF32: {allow}.", {"precision": "tf32"}))
    return tuple(found)


def _removable(facts: TraceFacts, share: float, faster: float) -> Interval:
    """The share of the step that goes if the products become as much faster as the sheet says; at best so does half of
    what other kernels move in float32.
    """
    names, device = facts.launches.names, facts.trace.device
    update = facts.update
    moves = names.in_float32(device) & ~names.single_precision(device)
    # Autocast leaves parameters, and what the optimizer keeps, in float32.
    others = facts.part_of_computing(moves if update is None else moves & ~update.launched)
    products, moved = of_the_step(facts, share * (1 - 1 / faster)), of_the_step(facts, others / 2)
    return products.reaching((products.high or 0.0) + (moved.high or 0.0)).within(0.0, 1.0)


def _largest(facts: TraceFacts) -> str:
    """The product of float32 that takes longest, where the trace tells sizes."""
    try:
        in_float32 = [one for one in products(facts) if one.type == "float"]
    except NotMeasured:
        return ""
    return f" (the longest: {in_float32[0]})" if in_float32 else ""


def _times(sheet: Peak | None, precision: str) -> float | None:
    """How many times as fast as in float32 products are by the sheet."""
    if sheet is None or sheet.float32 is None:
        return None
    flops = sheet.flops(precision)
    return None if flops is None else flops / sheet.float32


def _amd(device_name: str | None) -> bool:
    """Whether the device is AMD's: generations are numbered otherwise (gfx9 …), and TF32 is the MI300's alone."""
    return device_name is not None and _AMD.search(device_name) is not None


def _device(facts: TraceFacts) -> tuple[int, int, str | None]:
    """Compute capability and name of the trace's first device.

    Raises:
        NotMeasured: the trace does not tell the former.
    """
    devices = facts.trace.about.get("deviceProperties")
    first = devices[0] if isinstance(devices, list) and devices else None
    told = first if isinstance(first, dict) else {}
    major, minor, name = told.get("computeMajor"), told.get("computeMinor"), told.get("name")
    if type(major) is not int:
        raise NotMeasured("device_properties", "the trace does not say which device it is (deviceProperties)")
    return major, minor if type(minor) is int else 0, name if isinstance(name, str) else None
