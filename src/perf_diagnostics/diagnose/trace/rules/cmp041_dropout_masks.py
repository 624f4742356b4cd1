"""CMP041 for traces of the CPU: what drawing dropout's masks number by number takes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.cmp041_dropout_masks import BITS, LEFT_UNTRIED, LESS, DropoutMasks
from perf_diagnostics.diagnose.trace.events import Kind
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import share_of_operators
from perf_diagnostics.diagnose.wording import mean_count, percent

#: What draws each number of a mask by itself.
_DRAWS = "aten::bernoulli_"


@dataclass(frozen=True)
class MasksDrawn:
    """Much of a step on the CPU goes into drawing dropout's masks."""

    code: ClassVar[str] = DropoutMasks.code
    name: ClassVar[str] = DropoutMasks.name
    family: ClassVar[Family] = DropoutMasks.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: DropoutMasks = field(default_factory=DropoutMasks)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        if facts.on_device:
            raise NotApplicable("operators", "on a device drawing masks takes little")
        operators = facts.trace.of(Kind.OPERATOR)
        draws = operators.where(facts.trace.named(lambda name: name == _DRAWS)[operators.name])
        drawing = share_of_operators(facts, draws)
        saved = drawing.scaled(1 - LEFT_UNTRIED)
        number = evidence("drawing masks, beyond what it has to take", saved, "%", limit=self.limits.info_share)
        if saved.value < self.limits.info_share:
            return cleared(self, f"drawing masks takes {percent(drawing.value)} of a step", number)
        calls = float(facts.calls_in_steps(draws).mean())
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(drawing.value)} of each step draws {mean_count(calls)} masks number by number, as "
            f"dropout's are on the CPU; from whole random words it takes about {percent(LEFT_UNTRIED)} of that.",
            scope=facts.label,
            evidence=(number, Evidence(metric="masks drawn a step", value=calls)),
            remedies=(BITS, LESS),
            # Without dropout all of it goes.
            recoverable=recoverable(Interval(saved.value, saved.low, drawing.value, saved.n), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
