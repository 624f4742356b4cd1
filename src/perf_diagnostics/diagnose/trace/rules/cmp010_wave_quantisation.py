"""CMP010: matrix products whose blocks do not divide evenly among the device's multiprocessors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import CHANGES_TRAINING, Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.waves import efficiency, multiprocessors
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Float64, Int64


@dataclass(frozen=True)
class WaveQuantisation:
    """Matrix products leave multiprocessors idle at their end, because their blocks do not divide evenly.

    What it measures:
        For each matrix product and convolution the blocks of its grid over the device's multiprocessors: with 1.1
        blocks for each of them some work on two while the others have one, and the efficiency is 1.1 / 2. The part of
        the device's work in products below the limit, and what of it the imbalance costs.

    Why it matters:
        A product with one tile too many takes up to twice as long. The driver's utilisation reads 100 % meanwhile.

    What to try:
        Another batch or width, so that the tiles fill whole rounds; only a measured sweep tells which.

    When it is wrong:
        Kernels that hand out tiles themselves (persistent, stream-K) have one block for each multiprocessor, whatever
        their tiles: they look even. Blocks of unequal work, or work of another stream in the gap, change the figure.
    """

    code: ClassVar[str] = "CMP010"
    name: ClassVar[str] = "wave-quantisation"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trace"]] = "trace"

    even: float = field(
        default=0.7, metadata=limit("blocks over what their rounds hold, below which it counts", "the catalogue's 0.7")
    )
    least_share: float = field(
        default=0.05, metadata=limit("part of the device's work in such products", "the catalogue's 5 %")
    )
    starved_share: float = field(
        default=0.50, metadata=limit("f20 from which the host sets the pace", "17 public traces: 0.59 to 1.00")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        device = facts.trace.device
        products = (device.kind == Kind.KERNEL) & facts.launches.names.matrix_product(device)
        known = products & (device.size > 0)
        if products.any() and not known.any():
            raise NotMeasured("grid", "the trace does not say how many blocks its kernels have")
        even = efficiency(device.size, multiprocessors(facts)) if known.any() else np.ones(len(device))
        uneven = known & (even < self.even)
        share = facts.kernel_share(uneven)
        lost = share * (1 - _weighted(even[uneven], device.duration_ns[uneven]))
        numbers = (
            Evidence(
                metric="device's work in uneven products", value=share * 100, unit="%", limit=self.least_share * 100
            ),
            Evidence(metric="of the device's work lost to it", value=lost * 100, unit="%"),
        )
        if share < self.least_share:
            return cleared(self, f"{percent(share)} of the device's work is in uneven products", *numbers)
        if facts.prompt_share >= self.starved_share:
            return cleared(self, "the host sets the pace, not the products", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of the device's work is in matrix products whose blocks fill less than "
            f"{percent(self.even)} of their rounds over the multiprocessors; {percent(lost)} may be lost to that.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy(f"Measure batch sizes around this one, in small steps. {CHANGES_TRAINING}"),),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
        )


def _weighted(even: Float64, took_ns: Int64) -> float:
    """The mean efficiency, weighted by time; 1 without any."""
    return float(np.average(even, weights=took_ns)) if took_ns.sum() else 1.0
