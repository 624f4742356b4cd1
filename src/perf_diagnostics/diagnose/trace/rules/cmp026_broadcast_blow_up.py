"""CMP026 for traces: a number for each pair of rows and each feature, added up over the features at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.finding import Evidence, Family, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, grade
from perf_diagnostics.diagnose.rules.cmp026_broadcast_blow_up import BroadcastBlowUp, remedies_for
from perf_diagnostics.diagnose.trace.blow_ups import blow_ups
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.python_frames import in_functions
from perf_diagnostics.diagnose.trace.rule import caused, share_of_work
from perf_diagnostics.diagnose.wording import listing, percent


@dataclass(frozen=True)
class SpreadToBeAddedUp:
    """Small tensors are spread over each other, and what comes out is added up at once."""

    code: ClassVar[str] = BroadcastBlowUp.code
    name: ClassVar[str] = BroadcastBlowUp.name
    family: ClassVar[Family] = BroadcastBlowUp.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    limits: BroadcastBlowUp = field(default_factory=BroadcastBlowUp)

    def check(self, facts: TraceFacts) -> Answer:
        facts.require_sound()
        facts.require_steady()
        found = blow_ups(facts)
        if found is None:
            return cleared(self, "no tensor is spread over another one only to be added up")
        whole = share_of_work(facts, found.forward | found.nodes)
        needless = whole.scaled(1 - found.left)
        number = evidence("spreading, and adding up again", needless, "%", limit=self.limits.warn_share)
        levels = (Severity.INFO, self.limits.info_share), (Severity.WARNING, self.limits.warn_share)
        level = grade(needless, levels)
        if level is None:
            return cleared(self, f"spreading, and adding up again, takes {percent(needless.value)} of a step", number)
        size = "×".join(str(one) for one in found.size)
        return caused(
            self,
            facts,
            level,
            summary=f"{percent(whole.value)} of each step makes tensors of up to {size} numbers by spreading smaller "
            f"ones over each other ({listing(found.operators)}), of which only sums over their features are used"
            f"{in_functions(facts, found.forward)}.",
            numbers=(
                number,
                Evidence(
                    metric="numbers left after adding up, of all that are written", value=found.left * 100, unit="%"
                ),
                Evidence(metric="such tensors a step", value=found.calls),
            ),
            remedies=remedies_for(found.operators),
            gain=needless.reaching(whole.value),
        )
