"""CMP002 for traces: the device computes most of the time, which is where it should go."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.launches import Launches
from perf_diagnostics.diagnose.wording import duration, listing, percent, percent_between

#: Operators of the CPU that are named, each with at least this part of the step.
_MOST_NAMED, _WORTH_NAMING = 4, 0.04


@dataclass(frozen=True)
class Computing:
    """The model's own arithmetic sets the pace: the device computes for most of the step."""

    code: ClassVar[str] = ComputeBound.code
    name: ClassVar[str] = ComputeBound.name
    family: ClassVar[Family] = ComputeBound.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ComputeBound = field(default_factory=ComputeBound)

    def check(self, facts: TraceFacts) -> Answer:
        share = facts.share(Part.COMPUTE)
        numbers = [evidence("computing", share, "%", limit=self.limits.compute_share)]
        f20 = ask(lambda: facts.prompt_share)
        if f20 is not None:
            numbers.append(Evidence(metric="f20 (starts within 20 µs of the launch)", value=f20 * 100, unit="%"))
        if f20 is not None and f20 >= self.limits.starved_share:
            return cleared(
                self, f"{percent(f20)} of the kernels found the device idle: the host sets the pace", *numbers
            )
        if share.value < self.limits.compute_share:
            return cleared(self, f"computing takes {percent_between(share)} of a step", *numbers)
        what = "the device's own work on the model" if facts.on_device else f"operators on the CPU{_mostly(facts)}"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share.value)} of a step of {duration(facts.step_time_s.value)} is {what}.",
            scope=facts.label,
            evidence=(*numbers, *_matrix_products(facts)),
            confidence=confidence(
                Tier.DEEP_WINDOW,
                sure=share.surely_at_least(self.limits.compute_share),
                coverage=facts.coverage,
                thin=facts.thin,
            ),
            claims={str(Part.COMPUTE): share.value},
        )


def _mostly(facts: TraceFacts) -> str:
    """``: 47 % aten::convolution_backward and 21 % aten::mm``: those with the most time of their own."""
    own = ask(lambda: facts.own_times.by_name) or ()
    most = [f"{percent(one.share)} {one.name}" for one in own[:_MOST_NAMED] if one.share >= _WORTH_NAMING]
    return f": {listing(most)}" if most else ""


def _matrix_products(facts: TraceFacts) -> tuple[Evidence, ...]:
    if not facts.on_device:
        return ()
    launches: Launches = facts.launches
    share = ask(facts.kernel_share, launches.names.matrix_product(facts.trace.device))
    if share is None:
        return ()
    return (Evidence(metric="matrix products and convolutions, of the device's work", value=share * 100, unit="%"),)
