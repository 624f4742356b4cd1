"""CMP051 for traces of the CPU: sorts, of which a trace does not tell how much is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp051_sorted_for_few import SortedForFew
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import share_of_operators
from perf_diagnostics.diagnose.trace.sorts import SortsOfSteps, sorts_of
from perf_diagnostics.diagnose.wording import counted, percent

#: From this part of the sorts' time on all of them are meant.
_ALL = 0.95

_IF_FEW = Remedy(
    "If only a few are read: x.topk(k), x.kthvalue(k) or x.max() find these alone. Metrics by rank (precision, recall, "
    "AUC) need no sort in each step: keep the scores, and compute them once for many steps."
)
_FEW = Remedy(
    "Find these alone: x.topk(k, dim, largest=...) from one end, in order (among equal numbers it may choose others "
    "than a sort does), x.max(dim) or x.min(dim) for one, x.kthvalue(k, dim) for one in the midst."
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
        facts.require_steady()
        if facts.on_device:
            raise NotApplicable("operators", "of sorts on a device no rule is known")
        sorts = sorts_of(facts)
        whole, few = (share_of_operators(facts, rows) for rows in (sorts.rows, sorts.rows.where(sorts.few)))
        number = evidence("sorts", whole, "%", limit=self.limits.info_share)
        if whole.value < self.limits.info_share:
            return cleared(self, f"sorts take {percent(whole.value)} of a step", number)
        level = grade(few, ((Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)))
        calls = facts.calls_in_steps(sorts.rows)
        many = counted(round(calls.mean()), "sort") if calls.all() else "sorts, on average: some steps have none"
        of_few = "" if few.value > _ALL * whole.value else f", {percent(few.value)} into those"
        numbers = f"{counted(sorts.count, 'number')} of {sorts.size:,}"
        what = (
            f"{many}. How many of the sorted numbers are read, a trace does not tell."
            if level is None
            else f"{many}{of_few} of which a few are taken directly afterwards ({numbers})."
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO if level is None or facts.thin else level.severity,
            summary=f"{percent(whole.value)} of each step goes into {what}",
            scope=facts.label,
            evidence=(number, *self._few(sorts, few)),
            remedies=(_IF_FEW if level is None else _FEW,),
            # Of a sort whose order is needed nothing can be won.
            recoverable=recoverable(Interval(whole.value, 0.0, whole.value, len(facts.steps)), self.family)
            if level is None
            else recoverable(few.scaled(1 - sorts.instead).reaching(whole.value), self.family),
            confidence=confidence(
                Tier.SHARE if level is None else Tier.SHARE_AND_CAUSE, sure=level is None or level.sure, thin=facts.thin
            ),
        )

    def _few(self, sorts: SortsOfSteps, few: Interval) -> tuple[Evidence, ...]:
        if not sorts.size:
            return ()
        return (
            evidence("sorts of which a few are taken", few, "%", limit=self.limits.warn_share),
            Evidence(metric="numbers that are sorted", value=sorts.size),
            Evidence(metric="numbers among them that are taken", value=sorts.count),
        )
