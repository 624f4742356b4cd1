"""CMP014: the device is busy, with kernels so short that they can hardly fill it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.wording import duration, percent


@dataclass(frozen=True)
class TinyKernels:
    """Much of the device's busy time goes to kernels of a few microseconds.

    What it measures:
        The part of the device's work in kernels shorter than 10 µs, in steps in which the device is busy most of the
        time.

    Why it matters:
        A kernel so short starts and ends with most of the device empty. The driver's utilisation still reads 100 %.

    What to try:
        A larger batch, fused operators (compile, foreach or fused optimizers), fewer and larger tensors.

    When it is wrong:
        How many blocks a kernel has is not looked at: a short one may fill the device. Where the host cannot keep up,
        that is launch-bound's (HST001) to say.
    """

    code: ClassVar[str] = "CMP014"
    name: ClassVar[str] = "tiny-kernels"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trace"]] = "trace"

    short_us: float = field(default=10.0, metadata=limit("µs under which a kernel is short", "TraceLens"))
    short_share: float = field(default=0.40, metadata=limit("part of the device's work in them", "judgement"))
    compute_share: float = field(default=0.60, metadata=limit("computing from which the device is busy", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        device = facts.trace.device
        share = facts.kernel_share((device.kind == Kind.KERNEL) & (device.duration_ns < self.short_us * 1e3))
        computing = facts.share(Part.COMPUTE)
        numbers = (
            Evidence(
                metric=f"device's work in kernels under {self.short_us:g} µs",
                value=share * 100,
                unit="%",
                limit=self.short_share * 100,
            ),
            evidence("computing", computing, "%", limit=self.compute_share),
        )
        if share < self.short_share or computing.value < self.compute_share:
            return cleared(self, f"{percent(share)} of the device's work is in short kernels", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the device's work is in kernels shorter than "
            f"{duration(self.short_us / 1e6)}, which can hardly fill it.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("Compile the model, which fuses small operators.", {"compile_mode": "default"}),
                Remedy("Train with a larger batch, if memory allows. It changes the optimisation."),
            ),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
            symptom_of=("HST001",),
        )
