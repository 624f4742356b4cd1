"""CMP045 for traces: products of which at most half of the numbers go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp045_mostly_unread import DIAGONAL_ALONE, MostlyUnread
from perf_diagnostics.diagnose.trace.cut_products import CutProducts, cut_products
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.wording import percent

_CUT_FIRST = Remedy("Cut first, and multiply what is left: layer(x[:, -1]) in place of layer(x)[:, -1].")
_ROWS_FIRST = Remedy("Take the rows first, and multiply what is left: layer(x[mask]) in place of layer(x)[mask].")


@dataclass(frozen=True)
class ProductsMostlyUnread:
    """Much of what products compute is cut off directly afterwards."""

    code: ClassVar[str] = MostlyUnread.code
    name: ClassVar[str] = MostlyUnread.name
    family: ClassVar[Family] = MostlyUnread.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: MostlyUnread = field(default_factory=MostlyUnread)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        cut = cut_products(facts)
        if cut is None:
            return cleared(self, "no product is cut directly afterwards to at most a half that nothing else reads")
        whole = share_of_work(facts, cut.forward | cut.nodes)
        unread = whole.scaled(1 - cut.part)
        number = evidence("products that are mostly unread", unread, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(unread, levels)
        if level is None:
            return cleared(self, f"what is cut off from products takes {percent(unread.value)} of a step", number)
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(unread.value)} of each step goes into numbers of products that nothing reads, forward "
            f"and backward: {_what(cut)}{in_functions(facts, cut.forward)}.",
            numbers=(number, Evidence(metric="such products a step", value=cut.calls)),
            remedies=(DIAGONAL_ALONE if cut.diagonal else _ROWS_FIRST if cut.rows else _CUT_FIRST,),
            gain=unread.reaching(whole.value),
        )


def _what(cut: CutProducts) -> str:
    if cut.diagonal:
        return f"only the diagonal goes on{f' ({cut.size:,} numbers wide)' if cut.size else ''}"
    return f"only {round(cut.part * cut.size):,} of {cut.size:,} {'rows' if cut.rows else 'places'} go on"
