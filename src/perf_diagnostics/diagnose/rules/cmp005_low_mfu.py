"""CMP005: the device works all the time, and far below what its own fastest product reaches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts import roofline
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.wording import percent, significant
from perf_diagnostics.records import Phase


@dataclass(frozen=True)
class LowMfu:
    """The arithmetic runs far below what the hardware can do.

    What it measures:
        The operations of a step (matrix products, convolutions, attention: forward, backward and recomputation,
        counted in a process of its own) over its time, as a share of the fastest matrix product measured in the same
        run and precision. Beside it the model flops utilisation: the model's own operations over the maker's dense
        peak, where the device is in the table.

    Why it matters:
        A step whose time goes to forward and backward may still waste it: kernels that move bytes, matrices too small
        or badly aligned, a fixed cost for each operator. About half of the peak is good on a large GPU.

    What to try:
        What the findings on alignment, attention, memory and overhead name; larger matrices (batch, width); a
        compiled model, which fuses what is not a product.

    When it is wrong:
        Operators without a formula are not counted, so that the share is a lower bound; the run says which. Where
        something else sets the pace, this rule is silent. A ceiling measured while others used the machine is low,
        and the share then too high.
    """

    code: ClassVar[str] = "CMP005"
    name: ClassVar[str] = "low-mfu"
    family: ClassVar[Family] = Family.COMPUTE
    looks_at: ClassVar[Literal["trial"]] = "trial"

    least_share: float = field(
        default=0.30,
        metadata=limit("part of the measured ceiling below which it is mentioned", "GraphProf warns at 30 %"),
    )

    def check(self, facts: TrialFacts) -> Answer:
        share = roofline.ceiling_share(facts)
        held = roofline.held_back_by(facts)
        numbers = (evidence("of the fastest product", share, "%", limit=self.least_share), *_numbers(facts))
        if held is not None:
            return cleared(self, f"{percent(share.value)} of the fastest product; {held} sets the pace", *numbers)
        if share.value >= self.least_share:
            return cleared(self, f"{percent(share.value)} of what the fastest product reaches", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"Forward and backward set the pace, and reach {percent(share.value)} of the operations a second "
            "of this device's fastest product: kernels, shapes or overhead waste the rest.",
            scope=facts.label,
            evidence=numbers,
            remedies=() if facts.compiled else (Remedy("Compile the model.", {"compile_mode": "default"}),),
            confidence=confidence(
                Tier.SHARE, sure=share.surely_below(self.least_share), coverage=facts.coverage, thin=facts.thin
            ),
            claims={str(phase): facts.share(phase).value for phase in (Phase.FORWARD, Phase.BACKWARD)},
            symptom_of=(
                "SWP001",
                "CMP003",
                "CMP006",
                "CMP007",
                "CMP008",
                "CMP009",
                "CMP011",
                "HST001",
                "HST008",
                "HST012",
            ),
        )


def _numbers(facts: TrialFacts) -> tuple[Evidence, ...]:
    ceiling = roofline.fastest_product(facts)
    size, unit = (1e12, "TFLOP/s") if ceiling >= 1e12 else (1e9, "GFLOP/s")
    found = [
        evidence("operations a second", roofline.flops_per_s(facts).scaled(1 / size), unit),
        Evidence(
            metric="fastest product",
            value=ceiling / size,
            unit=unit,
            source="measured in this run",
        ),
    ]
    peak = ask(roofline.sheet_flops, facts)
    if peak is not None:
        # Not asked with ask(): more than 100 % is an error that has to be seen, and makes this rule abstain.
        source = f"of {significant(peak / 1e12)} TFLOP/s: {roofline.sheet(facts).source}"
        found.append(evidence("model flops utilisation", roofline.mfu(facts), "%", source=source))
    return tuple(found)
