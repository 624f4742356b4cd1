"""CMP008: matrices whose sizes do not suit tensor cores, by the part of the model they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.wording import listing, percent


@dataclass(frozen=True)
class MisalignedDimensions:
    """Layers have sizes that are no multiples of 8, in a 16-bit precision.

    What it measures:
        The part of the parameters that lies in linear layers of which inputs or outputs are no multiple of 8. In a
        profiler window or trace that tells sizes: the device's time in products of 16-bit types, of 8-bit types (there
        16 counts) and of TF32 (there 4) whose rows in memory are no such multiple.

    Why it matters:
        Tensor cores take 16-bit operands in pieces of 16 bytes; other sizes need padding or slower kernels. Making a
        feed-forward width of 10922 one of 10944 was published to raise a product from 273 to 398 TFLOP/s.

    What to try:
        Pad vocabulary and widths to a multiple of 64 (at least 8).

    When it is wrong:
        Newer libraries lose less by it. Without a window the sizes of activations (batch times length) are not looked
        at, and how long these products take is not measured: their part of the parameters stands in for it. Old traces
        do not say how factors lie in memory; any odd size counts there, and is no more than a remark.
    """

    code: ClassVar[str] = "CMP008"
    name: ClassVar[str] = "misaligned-dimensions"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    info_share: float = field(
        default=0.01, metadata=limit("part of the parameters to mention", "below it nothing shows")
    )
    warn_share: float = field(default=0.10, metadata=limit("part of the parameters to warn from", "judgement"))
    slower: float = field(
        default=1.46, metadata=limit("times as long as an aligned product takes", "MLE: 398.4 over 272.7 TFLOP/s")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("misaligned_parameter_share")
        precision = str(facts.result.trial.settings.precision)
        if precision not in ("bfloat16", "float16"):
            return cleared(self, f"it trains in {precision}, which takes any size")
        share = facts.number("misaligned_parameter_share")
        numbers = (
            Evidence(metric="parameters in odd layers", value=share * 100, unit="%", limit=self.info_share * 100),
        )
        if share < self.info_share:
            return cleared(self, f"{percent(share)} of the parameters lie in layers of odd sizes", *numbers)
        held = roofline.held_back_by(facts)
        if held is not None:
            return cleared(self, f"{held} sets the pace, not the products", *numbers)
        computing = roofline.computing(facts)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if share >= self.warn_share else Severity.INFO,
            summary=f"{percent(share)} of the parameters lie in layers whose sizes are no multiple of 8: "
            f"{listing(_layers(facts))}.",
            scope=facts.label,
            evidence=numbers,
            remedies=(Remedy("Pad these sizes to a multiple of 64; padded entries are never chosen nor read."),),
            recoverable=recoverable(computing.scaled(share * (1 - 1 / self.slower)), self.family),
            confidence=confidence(Tier.CONFIGURATION, sure=True, coverage=facts.coverage, thin=facts.thin),
        )


def _layers(facts: TrialFacts) -> list[str]:
    layers = facts.result.facts.get("misaligned_layers")
    if not isinstance(layers, Mapping) or not layers:
        return ["their names were not recorded"]
    return [f"{name} ({' x '.join(map(str, sizes))})" for name, sizes in layers.items() if isinstance(sizes, list)][:3]
