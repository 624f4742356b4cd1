"""CMP011 for traces: the device's time in kernels that turn images from one memory format into the other."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp011_conv_layout import CHANNELS_LAST, ConvLayout
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import of_the_step
from perf_diagnostics.diagnose.wording import percent

_CONVOLUTION = re.compile(r"^aten::(mkldnn_|thnn_|slow_)?conv")

#: On the CPU convolutions and norms win beside the copies, perhaps so much: a judgement by one U-Net, of which copies
#: took 16 % and 19 and 20 % were won (two cores, torch 2.13).
_BESIDE = 1.3


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
        if not facts.on_device:
            return self._on_the_cpu(facts)
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

    def _on_the_cpu(self, facts: TraceFacts) -> Answer:
        """There a copy into another order of memory is an operator, which a model asks for, or torch by itself."""
        own = facts.own_times
        if not any(_CONVOLUTION.match(one.name) for one in own.by_name):
            raise NotApplicable("operators", "no convolution is in the steps")
        share = own.share(own.inside("aten::contiguous") & own.named("aten::copy_"))
        number = Evidence(
            metric="copies into another order of memory", value=share * 100, unit="%", limit=self.change_share * 100
        )
        if share < self.change_share:
            return cleared(self, f"{percent(share)} of a step copies tensors into another order of memory", number)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if share >= self.warn_share and not facts.thin else Severity.INFO,
            summary=f"{percent(share)} of each step copies tensors into another order of memory (contiguous()), beside "
            "convolutions, which take channels last as well.",
            scope=facts.label,
            evidence=(number,),
            remedies=(CHANNELS_LAST,),
            recoverable=recoverable(Interval(share, 0.0, min(1.0, _BESIDE * share), len(facts.steps)), self.family),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
        )
