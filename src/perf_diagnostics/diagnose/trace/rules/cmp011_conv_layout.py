"""CMP011 for traces: the device's time in kernels that turn images from one memory format into the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp011_conv_layout import CHANNELS_LAST, ConvLayout
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import of_the_step
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class LayoutChanges:
    """Images are turned from one memory format into the other around convolutions."""

    code: ClassVar[str] = ConvLayout.code
    name: ClassVar[str] = ConvLayout.name
    family: ClassVar[Family] = ConvLayout.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    change_share: float = field(
        default=0.03, metadata=limit("part of the device's work in these kernels", "the catalogue's 3 %")
    )

    warn_share: float = field(default=0.10, metadata=limit("… to warn from", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_device("kernels")
        share = facts.part_of_computing(facts.launches.names.layout_change(facts.trace.device))
        number = Evidence(
            metric="device's work in changes of memory format",
            value=share * 100,
            unit="%",
            limit=self.change_share * 100,
        )
        if share < self.change_share:
            return cleared(self, f"{percent(share)} of the device's work changes memory formats", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if share >= self.warn_share else Severity.INFO,
            summary=f"{percent(share)} of the device's work turns images from one memory format into the other, around "
            "convolutions that take channels last.",
            scope=facts.label,
            evidence=(number,),
            remedies=(CHANNELS_LAST,),
            recoverable=recoverable(of_the_step(facts, share), self.family),
            confidence=confidence(Tier.DEEP_WINDOW, sure=True, thin=facts.thin),
        )
