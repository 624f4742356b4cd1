"""CMP014: the device is busy, with kernels so small that they cannot fill it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.events import Bool, Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.waves import multiprocessors
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class TinyKernels:
    """Much of the device's busy time goes to kernels that are too small to fill it.

    What it measures:
        The part of the device's work in kernels with fewer blocks than the device has multiprocessors, in steps in
        which the device is busy most of the time. Where the trace does not say how many blocks a kernel has: in kernels
        shorter than 10 µs.

    Why it matters:
        Such a kernel leaves multiprocessors without work from its start to its end. The driver's utilisation still
        reads 100 %.

    What to try:
        A larger batch, fused operators (compile, foreach or fused optimizers), fewer and larger tensors.

    When it is wrong:
        Kernels of several streams may fill the device together; persistent ones of few large blocks fill it alone.
        Without blocks a short kernel may fill it, too. Collectives, which have few blocks by design, are left out.
        Where the host cannot keep up, that is launch-bound's (HST001) to say.
    """

    code: ClassVar[str] = "CMP014"
    name: ClassVar[str] = "tiny-kernels"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trace"]] = "trace"

    short_us: float = field(default=10.0, metadata=limit("µs under which one of unknown blocks is small", "TraceLens"))
    short_share: float = field(default=0.40, metadata=limit("part of the device's work in them", "judgement"))
    compute_share: float = field(default=0.60, metadata=limit("computing from which the device is busy", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        device = facts.trace.device
        small, how = self._small(facts)
        # Collectives have few blocks by design: what they move fills the links, not the multiprocessors.
        kernels = (device.kind == Kind.KERNEL) & ~facts.launches.names.communication(device)
        share = facts.kernel_share(kernels & small)
        computing = facts.share(Part.COMPUTE)
        numbers = (
            Evidence(
                metric=f"device's work in kernels {how}",
                value=share * 100,
                unit="%",
                limit=self.short_share * 100,
            ),
            evidence("computing", computing, "%", limit=self.compute_share),
        )
        if share < self.short_share or computing.value < self.compute_share:
            return cleared(self, f"{percent(share)} of the device's work is in kernels {how}", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the device's work is in kernels {how}, which can hardly fill it.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy("Compile the model, which fuses small operators.", {"compile_mode": "default"}),
                Remedy("Train with a larger batch, if memory allows. It changes the optimisation."),
            ),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
            symptom_of=("HST001",),
        )

    def _small(self, facts: TraceFacts) -> tuple[Bool, str]:
        """Which of the device's events are small, and what that means here, in words."""
        device = facts.trace.device
        short = device.duration_ns < self.short_us * 1e3
        there = ask(multiprocessors, facts)
        if there is None or not (device.size[device.kind == Kind.KERNEL] > 0).any():
            return short, f"under {self.short_us:g} µs"
        return np.where(device.size > 0, device.size < there, short), f"of fewer than {there} blocks"
