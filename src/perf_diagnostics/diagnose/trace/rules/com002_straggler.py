"""COM002: one rank is later than the others, which wait for it in their collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.rule_parts.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import TraceFacts, share_interval
from perf_diagnostics.diagnose.trace.ranks import rank_steps, require_all
from perf_diagnostics.diagnose.wording import percent


@dataclass(frozen=True)
class Straggler:
    """One rank takes longer than the others, which wait for it.

    What it measures:
        For each step that all ranks' traces share, every rank's time outside exposed communication: what it does
        before it is ready to communicate. Which rank takes longest, how often, and by how much more than the middle
        rank.

    Why it matters:
        A synchronous job runs at the pace of its slowest rank. The victims show long collectives and look bound by
        communication; the culprit shows short ones.

    What to try:
        Look at the slow rank's own findings: its loader, its host, its clocks. If the slow rank changes from step to
        step, balance the lengths of batches instead.

    When it is wrong:
        Pipeline and expert parallel ranks have different work by design. Steps are matched by the profiler's number,
        so all ranks have to be profiled over the same steps.
    """

    code: ClassVar[str] = "COM002"
    name: ClassVar[str] = "straggler"
    family: ClassVar[Family] = Family.COMMUNICATION
    looks_at: ClassVar[Literal["ranks"]] = "ranks"

    same_rank_share: float = field(
        default=0.60, metadata=limit("share of steps in which the same rank is last", "TraceML's bucket rule: 60 %")
    )
    warn_share: float = field(
        default=0.10, metadata=limit("mean excess over the middle rank, of the step", "TraceML, GPU profilers: 10 %")
    )

    def check(self, ranks: Sequence[TraceFacts]) -> Answer:
        if len(ranks) < 2:
            raise NotApplicable("ranks", "one trace was given; give those of all ranks to compare them")
        steps = rank_steps(ranks)
        work, wall = steps.work_ns, steps.wall_ns
        last = np.bincount(np.argmax(work, axis=0), minlength=len(ranks))
        slow = int(np.argmax(last))
        often = float(last[slow]) / work.shape[1]
        others = np.delete(work, slow, axis=0)
        excess = share_interval((work[slow] - np.median(others, axis=0)).astype(np.int64), wall)
        numbers = (
            evidence("excess over the other ranks' median", excess, "%", limit=self.warn_share),
            Evidence(
                metric=f"steps in which {ranks[slow].label} is last",
                value=often * 100,
                unit="%",
                limit=self.same_rank_share * 100,
                n=work.shape[1],
            ),
        )
        if often < self.same_rank_share or not excess.surely_at_least(self.warn_share):
            require_all(ranks)
            return cleared(self, f"no rank is surely last by {percent(self.warn_share)} of a step", *numbers)
        return Finding(
            code=self.code,
            name=self.name,
            family=self.family,
            severity=Severity.WARNING,
            summary=f"{ranks[slow].label} is last in {percent(often)} of the steps, by {percent(excess.value)} of a "
            "step; the other ranks wait for it in their collectives.",
            scope=ranks[slow].label,
            evidence=numbers,
            remedies=(
                Remedy(f"Look at what {ranks[slow].label} does differently; its own trace says what it waits for."),
            ),
            recoverable=recoverable(excess, self.family),
            confidence=confidence(Tier.DEEP_WINDOW, sure=True),
            claims={str(Part.COMMUNICATION): excess.value},
        )
