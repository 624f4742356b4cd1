"""CMP008 for traces: the device's time in matrix products whose rows do not suit tensor cores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp008_misaligned_dimensions import MisalignedDimensions
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.products import Product, products
from perf_diagnostics.diagnose.wording import listing, percent

#: Sizes that are named; the rest is in the sum.
_NAMED = 3


@dataclass(frozen=True)
class OddProducts:
    """Matrix products in low precision have rows that are no multiple of what tensor cores take."""

    code: ClassVar[str] = MisalignedDimensions.code
    name: ClassVar[str] = MisalignedDimensions.name
    family: ClassVar[Family] = MisalignedDimensions.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: MisalignedDimensions = field(default_factory=MisalignedDimensions)
    form_share: float = field(
        default=0.01, metadata=limit("part of the device's work from which a size counts", "the catalogue's 1 %")
    )
    info_work: float = field(
        default=0.02, metadata=limit("part of the device's work in all such products to mention", "judgement")
    )
    warn_work: float = field(
        default=0.10, metadata=limit("part of the step in such products to warn from", "as for the parameters")
    )
    compute_share: float = field(
        default=0.60, metadata=limit("computing over the step from which sizes can matter", "as for CMP002")
    )
    starved_share: float = field(
        default=0.50, metadata=limit("f20 from which the host sets the pace", "17 public traces: 0.59 to 1.00")
    )

    def check(self, facts: TraceFacts) -> Answer:
        forms = products(facts)
        whole = facts.device_work_ns
        odd = [form for form in forms if form.odd and form.device_ns >= self.form_share * whole]
        share = sum(form.device_ns for form in odd) / whole
        computing = facts.share(Part.COMPUTE)
        numbers = (
            Evidence(metric="device's work in products of odd sizes", value=share * 100, unit="%",
                     limit=self.info_work * 100),
            Evidence(metric="device's work in products of known sizes", unit="%",
                     value=100 * sum(form.device_ns for form in forms) / whole),
            evidence("computing", computing, "%", limit=self.compute_share),
        )  # fmt: skip
        if share < self.info_work:
            return cleared(self, f"{percent(share)} of the device's work is in products of odd sizes", *numbers)
        if computing.value < self.compute_share or facts.prompt_share >= self.starved_share:
            return cleared(self, "the device waits for others, so that odd sizes cost nothing", *numbers)
        return self._found(facts, odd, share, computing, numbers)

    def _found(
        self,
        facts: TraceFacts,
        odd: Sequence[Product],
        share: float,
        computing: Interval,
        numbers: tuple[Evidence, ...],
    ) -> Finding:
        of_step = share * computing.value
        sure = all(form.known for form in odd)
        lengths = sorted({length for form in odd for length in form.odd})
        said = "rows" if sure else "sizes (how they lie in memory was not recorded)"
        # Without an interval of its own: of the step it is at most its part of the time in which the device computes.
        removable = Interval(of_step * (1 - 1 / self.limits.slower), None, None, len(facts.steps))
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if sure and of_step >= self.warn_work and not facts.thin else Severity.INFO,
            summary=f"{percent(share)} of the device's work is in matrix products whose {said} are no multiple of what "
            f"tensor cores take: {listing([f'{form} ({_type(form)})' for form in odd[:_NAMED]])}"
            f"{' and others' if len(odd) > _NAMED else ''}.",
            scope=facts.label,
            evidence=numbers,
            remedies=(
                Remedy(
                    f"Pad {listing(lengths[:_NAMED])}{' …' if len(lengths) > _NAMED else ''} to a multiple of 64 (at "
                    "least 8): a vocabulary or a width once, a length in every batch."
                ),
            ),
            recoverable=recoverable(removable, self.family),
            confidence=confidence(
                Tier.SHARE_AND_CAUSE if sure else Tier.SHARE, sure=True, coverage=facts.coverage, thin=facts.thin
            ),
        )


def _type(form: Product) -> str:
    return form.type.removeprefix("c10::")
