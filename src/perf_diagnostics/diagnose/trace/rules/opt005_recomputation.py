"""OPT005 for traces: operators of the forward that run once more inside of the backward."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.finding import Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.opt005_recomputation import Recomputation
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.rule import share_of_work
from perf_diagnostics.diagnose.wording import percent

#: What is kept for it, and looked up again, takes time in the forward and in the nodes as well: a transformer of 65
#: tensors on a CPU went through its layers again for 17 % of a step, and won 27 and 32 % without (torch 2.13).
_WITH_WHAT_GOES_BESIDE = 1.5


@dataclass(frozen=True)
class ForwardAgain:
    """Activations are computed again in the backward pass, as the operators of its nodes show."""

    code: ClassVar[str] = Recomputation.code
    name: ClassVar[str] = Recomputation.name
    family: ClassVar[Family] = Recomputation.family
    looks_at: ClassVar[Literal["trace"]] = "trace"

    info_share: float = field(default=0.05, metadata=limit("share of the step to mention", "judgement"))

    def check(self, facts: TraceFacts) -> Answer:
        share = share_of_work(facts, facts.require_nodes().again)
        number = evidence("forward's operators inside of backward", share, "%", limit=self.info_share)
        if share.value < self.info_share:
            return cleared(self, f"{percent(share.value)} of a step goes into computing activations again", number)
        most = min(1.0, share.value * _WITH_WHAT_GOES_BESIDE)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.INFO,
            summary=f"{percent(share.value)} of each step computes operators of the forward once more inside of the "
            "backward, to save memory (activation checkpointing). Whether there is room without it, a trace does not "
            "tell.",
            scope=facts.label,
            evidence=(number,),
            remedies=(
                Remedy(
                    "Where the memory has room, keep activations: checkpoint() around fewer blocks, or around none.",
                    {"gradient_checkpointing": False},
                ),
            ),
            # Where the memory is full nothing can be won.
            recoverable=recoverable(Interval(share.value, 0.0, most, share.n), self.family),
            confidence=confidence(Tier.SHARE_AND_CAUSE, sure=True, coverage=facts.coverage, thin=facts.thin),
        )
