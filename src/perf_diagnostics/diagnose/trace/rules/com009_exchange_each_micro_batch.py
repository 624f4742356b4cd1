"""COM009 for traces: gradients are exchanged after each accumulated batch instead of once an update."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, Grade, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.com009_exchange_each_micro_batch import NO_SYNC, ExchangeEachMicroBatch
from perf_diagnostics.diagnose.trace.exchanges import exchanges
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import caused, claims_of
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class ExchangedForNothing:
    """All-reduces of gradients to which those of another batch are added before the update."""

    code: ClassVar[str] = ExchangeEachMicroBatch.code
    name: ClassVar[str] = ExchangeEachMicroBatch.name
    family: ClassVar[Family] = ExchangeEachMicroBatch.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: ExchangeEachMicroBatch = field(default_factory=ExchangeEachMicroBatch)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = exchanges(facts)
        number = Evidence(metric="exchanges an update", value=found.an_update, limit=self.limits.once)
        if found.an_update < self.limits.once:
            return cleared(self, "gradients are exchanged once an update", number)
        alone, whole = facts.share_of(found.alone), facts.share_of(found.needless)
        # What runs beside computing takes memory's time, and on the CPU a core: it may cost nothing, or all it takes.
        needless = alone.reaching(whole.value)
        level = grade(alone, ((Severity.WARNING, self.limits.warn_share),)) or Grade(
            Severity.INFO, self.limits.warn_share, sure=True
        )
        return caused(
            self,
            facts,
            level,
            summary=f"Gradients are exchanged {found.an_update:.3g} times an update, after each of the accumulated "
            f"batches; all but the last exchange are for nothing: {percent(alone.value)} of a step with nothing "
            "computed meanwhile.",
            numbers=(
                number,
                evidence("needless exchanges", alone, "%", limit=self.limits.warn_share),
                evidence("needless exchanges, beside computing or not", whole, "%"),
            ),
            remedies=(NO_SYNC,),
            gain=needless,
            claims=claims_of(facts, found.alone),
        )
