"""COM004 for traces: in every step another rank is last, and all others wait for it in their collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rules.com004_rank_imbalance import RankImbalance
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts, share_interval
from perf_diagnostics.diagnose.trace.ranks import rank_steps, require_all
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class TakingTurns:
    """In every step some rank is late, and it is not always the same one."""

    code: ClassVar[str] = RankImbalance.code
    name: ClassVar[str] = RankImbalance.name
    family: ClassVar[Family] = RankImbalance.family
    looks_at: ClassVar[Literal["ranks"]] = "ranks"

    limits: RankImbalance = field(default_factory=RankImbalance)
    explained: float = field(
        default=0.5,
        metadata=limit("part of the wait that unequal computing explains, to lay it to the batches", "judgement"),
    )

    def check(self, ranks: Sequence[TraceFacts]) -> Answer:
        if len(ranks) < 2:
            raise NotApplicable("ranks", "one trace was given; give those of all ranks to compare them")
        steps = rank_steps(ranks)
        last = np.bincount(np.argmax(steps.work_ns, axis=0), minlength=len(ranks))
        often = float(last.max()) / steps.wall_ns.size
        late = steps.work_ns.max(axis=0) - steps.work_ns.mean(axis=0)
        waited = share_interval(late.astype(np.int64), steps.wall_ns)
        uneven = steps.computing_ns.max(axis=0) - steps.computing_ns.mean(axis=0)
        by_computing = min(1.0, float(uneven.sum()) / float(late.sum())) if late.sum() > 0 else 0.0
        numbers = (
            evidence("mean wait for the last rank", waited, "%", limit=self.limits.warn_share),
            Evidence(metric="steps in which the same rank is last", value=often * 100, unit="%",
                     limit=self.limits.same_rank_share * 100, n=steps.wall_ns.size),
            Evidence(metric="of it in unequal computing", value=by_computing * 100, unit="%",
                     limit=self.explained * 100),
        )  # fmt: skip
        if often >= self.limits.same_rank_share or not waited.surely_at_least(self.limits.warn_share):
            require_all(ranks)
            return cleared(self, f"the ranks wait {percent(waited.value)} of a step for whichever is last", *numbers)
        computing = by_computing >= self.explained
        why = (
            "its device computes longer than the others', as with batches of uneven size"
            if computing
            else "its device does not compute longer than the others', so that it is not the batches"
        )
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING if computing else Severity.INFO,
            summary=f"The {len(ranks)} ranks wait {percent(waited.value)} of each step for whichever is last, and it "
            f"is not always the same; {why}.",
            scope="all ranks",
            evidence=numbers,
            remedies=(
                Remedy("Group samples of similar length across the ranks, or give batches a fixed number of tokens."),
            )
            if computing
            else (Remedy("Look at what the hosts do: loading, collections and logging that hit one rank at a time."),),
            recoverable=recoverable(waited, self.family) if computing else None,
            confidence=confidence(Tier.DEEP_WINDOW if computing else Tier.SHARE, sure=True),
            claims={str(Part.COMMUNICATION): waited.value},
        )
