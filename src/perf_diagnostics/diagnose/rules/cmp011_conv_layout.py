"""CMP011: convolutions with filters stored channel by channel first, or kernels that were never tried."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity, Share
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Phase

CHANNELS_LAST = Remedy(
    "Store filters and images channels last; results differ in their last digits.", {"channels_last": True}
)

#: The most that channels last won on the CPU, of a step that is nearly all forward and backward: see the docstring.
WON = 0.35


@dataclass(frozen=True)
class ConvLayout:
    """Convolutions use a memory format that tensor cores do not take, or that the CPU turns into another one.

    What it measures:
        Whether a convolutional model keeps its filters contiguous (NCHW), in bfloat16 or float16 on a device or in any
        precision on the CPU, and on a device whether cuDNN may try its kernels (``torch.backends.cudnn.benchmark``). In
        a profiler window the part of the device's work in kernels that turn one format into the other, from 3 % on; in
        one of the CPU, or a trace, the part of the step in copies by ``contiguous()`` beside convolutions.

    Why it matters:
        Tensor cores read channels last; other formats are transposed before and after each convolution. So does
        oneDNN on the CPU, with a blocked format of its own, before and after what is no convolution. Six networks on
        one and two cores (torch 2.13, float32): five took 5 to 35 % less time channels last, those with pooling or many
        channel-wise convolutions most; one of two convolutions and large products 1 to 4 % more.

    What to try:
        ``model.to(memory_format=torch.channels_last)``, and the same for the images; ``cudnn.benchmark = True`` where
        shapes do not change.

    When it is wrong:
        Models with few or grouped channels win nothing on a device. How long the convolutions take is not measured
        here, and what turning formats costs shows only in a profiler window: no gain is sure. A compiled model chooses
        by itself.
    """

    code: ClassVar[str] = "CMP011"
    name: ClassVar[str] = "conv-layout"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    parameter_share: float = field(
        default=0.30, metadata=limit("part of the parameters in convolutions from which they matter", "judgement")
    )

    def check(self, facts: TrialFacts) -> Answer:
        layout = facts.word("conv_memory_format")
        if layout is None:
            raise NotApplicable("conv_memory_format", "the model convolves no images")
        share = ask(facts.number, "convolution_parameter_share") or 0.0
        if not facts.on_accelerator:
            return self._on_the_cpu(facts, layout, share)
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

    def _on_the_cpu(self, facts: TrialFacts, layout: str, share: float) -> Answer:
        numbers = [Evidence(metric="parameters in convolutions", value=share * 100, unit="%")]
        says = f"filters are {layout}, {percent(share)} of the parameters"
        if facts.compiled:
            return cleared(self, f"{says}, and the compiler chooses", *numbers)
        if share < self.parameter_share or layout != "contiguous":
            return cleared(self, says, *numbers)
        computing = facts.joint_share(Phase.FORWARD, Phase.BACKWARD)
        numbers.append(evidence("forward and backward", computing, "%"))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary="Convolutions on the CPU keep their filters contiguous: each is turned into another format and "
            "back.",
            scope=facts.label,
            evidence=tuple(numbers),
            remedies=(CHANNELS_LAST,),
            recoverable=Share(computing.value * WON / 2, 0.0, computing.value * WON),
            confidence=confidence(Tier.SWITCH, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
