"""CMP044 for traces: layers over rows that have just been copied from fewer ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp044_more_rows_than_needed import LAYER_FIRST, MoreRowsThanNeeded
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.gathered_rows import gathered_rows
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.wording import percent, times

#: Where a layer makes more numbers of a row than it is given, what is gathered behind it is larger (judgement).
_AT_LEAST = 0.5


@dataclass(frozen=True)
class LayersOverCopies:
    """A layer multiplies each copy of a row."""

    code: ClassVar[str] = MoreRowsThanNeeded.code
    name: ClassVar[str] = MoreRowsThanNeeded.name
    family: ClassVar[Family] = MoreRowsThanNeeded.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: MoreRowsThanNeeded = field(default_factory=MoreRowsThanNeeded)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = gathered_rows(facts)
        if found is None:
            return cleared(self, "no layer is applied to twice the rows that were there before they were copied")
        whole = share_of_work(facts, found.forward | found.nodes)
        needless = whole.scaled(found.needless)
        number = evidence("layers over copies of rows", needless, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(needless, levels)
        if level is None:
            return cleared(self, f"layers over copies of rows take {percent(needless.value)} of a step", number)
        least = _AT_LEAST * (needless.value if needless.low is None else needless.low)
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(needless.value)} of each step applies layers to copies of rows, forward and backward: "
            f"{found.rows:,} rows that aten::{found.copies} makes of {found.different:,}, "
            f"{times(found.calls, 'such layer')} a step{in_functions(facts, found.forward)}.",
            numbers=(
                number,
                Evidence(metric="rows that are multiplied", value=found.rows),
                Evidence(metric="different rows among them, at most", value=found.different),
            ),
            remedies=(LAYER_FIRST,),
            gain=Interval(needless.value, least, whole.high, whole.n),
        )
