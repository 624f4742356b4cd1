"""CMP051 for traces of the CPU: sorts, of which a trace does not tell how much is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp051_sorted_for_few import SortedForFew
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.own_times import OwnTime
from perf_diagnostics.diagnose.wording import counted, percent

#: What ``argsort``, ``msort`` and ``quantile`` call as well.
_SORT = "aten::sort"

_FEW = Remedy(
    "If only a few are read: x.topk(k), x.kthvalue(k) or x.max() find these alone. Metrics by rank (precision, recall, "
    "AUC) need no sort in each step: keep the scores, and compute them once for many steps."
)


@dataclass(frozen=True)
class Sorts:
    """Much of a step on the CPU goes into putting numbers in order."""

    code: ClassVar[str] = SortedForFew.code
    name: ClassVar[str] = SortedForFew.name
    family: ClassVar[Family] = SortedForFew.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: SortedForFew = field(default_factory=SortedForFew)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        if facts.on_device:
            raise NotApplicable("operators", "of sorts on a device no rule is known")
        sorts = next((one for one in facts.own_times.by_name if one.name == _SORT), OwnTime(_SORT, 0.0, 0.0))
        share = sorts.share
        number = Evidence(metric="sorts", value=share * 100, unit="%", limit=self.limits.info_share * 100)
        if share < self.limits.info_share:
            return cleared(self, f"sorts take {percent(share)} of a step", number)
        calls = round(sorts.calls)
        many = counted(calls, "sort") if calls else "sorts, on average: some steps have none"
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share)} of each step goes into {many}. How many of the sorted numbers are read, a trace "
            "does not tell.",
            scope=facts.label,
            evidence=(number,),
            remedies=(_FEW,),
            # Of a sort whose order is needed nothing can be won.
            recoverable=recoverable(Interval(share, 0.0, share, len(facts.steps)), self.family),
            confidence=confidence(Tier.SHARE, sure=True, thin=facts.thin),
        )
