"""CMP023 for traces: one-hot rows that are made and multiplied."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade, limit
from perf_diagnostics.diagnose.rules.cmp023_products_with_zeros import ONE_HOT_ROWS, ProductsWithZeros
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.one_hot_products import one_hot_products
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.wording import percent, times

_SUMS = Remedy(
    "Sums by class need no one-hot rows: x.new_zeros(classes, width).index_add_(0, ids, x), and torch.bincount(ids, "
    "minlength=classes) for their counts."
)


@dataclass(frozen=True)
class OneHotMultiplied:
    """One-hot rows are made, and multiplied like other numbers."""

    code: ClassVar[str] = ProductsWithZeros.code
    name: ClassVar[str] = ProductsWithZeros.name
    family: ClassVar[Family] = ProductsWithZeros.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ProductsWithZeros = field(default_factory=ProductsWithZeros)
    info_step_share: float = field(
        default=0.05, metadata=limit("share of the step to mention", "as CMP026; a judgement")
    )

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = one_hot_products(facts)
        if found is None:
            return cleared(self, "no one-hot rows are multiplied")
        share = share_of_work(facts, found.forward | found.nodes)
        number = evidence("one-hot rows and their products", share, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.info_step_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(share, levels)
        if level is None:
            return cleared(self, f"one-hot rows and their products take {percent(share.value)} of a step", number)
        rows, classes = found.size[0], found.size[-1]
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(share.value)} of each step makes one-hot rows of up to {classes:,} classes and "
            f"multiplies them ({times(found.calls, 'time')} a step, {rows:,} rows)"
            f"{in_functions(facts, found.forward)}: all but one number of a row are zeros.",
            numbers=(number, Evidence(metric="classes of the one-hot rows", value=classes)),
            remedies=(_SUMS, ONE_HOT_ROWS) if found.summed else (ONE_HOT_ROWS, _SUMS),
            gain=share,
        )
