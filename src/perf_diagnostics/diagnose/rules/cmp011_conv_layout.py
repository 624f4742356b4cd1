"""CMP011: convolutions in 16 bits with weights stored channel by channel first, or kernels that were never tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent

CHANNELS_LAST = Remedy(
    "Store filters and images channels last; results differ in their last digits.", {"channels_last": True}
)


@dataclass(frozen=True)
class ConvLayout:
    """Convolutions use a memory format that tensor cores do not take.

    What it measures:
        Whether a convolutional model in bfloat16 or float16 on a device keeps its filters contiguous (NCHW), and
        whether cuDNN may try its kernels (``torch.backends.cudnn.benchmark``). In a profiler window the part of the
        device's work in kernels that turn one format into the other, from 3 % on.

    Why it matters:
        Tensor cores read channels last; other formats are transposed before and after each convolution.

    What to try:
        ``model.to(memory_format=torch.channels_last)``, and the same for the images; ``cudnn.benchmark = True`` where
        shapes do not change.

    When it is wrong:
        Models with few or grouped channels win nothing. How long the convolutions take is not measured here,
        and what turning formats costs shows only in a profiler window.
    """

    code: ClassVar[str] = "CMP011"
    name: ClassVar[str] = "conv-layout"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    parameter_share: float = field(
        default=0.30, metadata=limit("part of the parameters in convolutions from which they matter", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        facts.require_accelerator("conv_memory_format")
        layout = facts.word("conv_memory_format")
        if layout is None:
            raise NotApplicable("conv_memory_format", "the model convolves no images")
        share = ask(facts.number, "convolution_parameter_share") or 0.0
        tried = facts.result.facts.get("cudnn_benchmark") is True
        numbers = (Evidence(metric="parameters in convolutions", value=share * 100, unit="%"),)
        precision = str(facts.result.trial.settings.precision)
        wrong = layout == "contiguous" and precision in ("bfloat16", "float16")
        if share < self.parameter_share or (not wrong and tried):
            return cleared(self, f"filters are {layout}, {percent(share)} of the parameters", *numbers)
        remedies = [CHANNELS_LAST] if wrong else []
        if not tried:
            remedies.append(Remedy("Let cuDNN try its kernels where shapes do not change: cudnn.benchmark = True."))
        if not wrong and facts.lengths_differ:
            return cleared(self, f"filters are {layout}, and shapes differ from step to step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"Convolutions in {precision} keep their filters contiguous: tensor cores need channels last."
            if wrong
            else "cuDNN takes the kernels for convolutions that it guesses to be fast, and tries none (benchmark off).",
            scope=facts.label,
            evidence=numbers,
            remedies=tuple(remedies),
            confidence=confidence(Tier.CONFIGURATION, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
