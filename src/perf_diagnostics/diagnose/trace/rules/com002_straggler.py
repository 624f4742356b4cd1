"""COM002: one rank is later than the others, which wait for it in their collectives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import ClassVar, Literal

import numpy as np

from perf_diagnostics.diagnose.facts import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Remedy, Severity
from perf_diagnostics.diagnose.gain import Tier, confidence, recoverable
from perf_diagnostics.diagnose.rule import Answer, cleared, evidence, limit
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import LEAST_STEPS, TraceFacts, share_interval
from perf_diagnostics.diagnose.wording import percent
from perf_diagnostics.records import Int64


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
        work, wall = _work(ranks)
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
            _require_all(ranks)
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


def _require_all(ranks: Sequence[TraceFacts]) -> None:
    """Nobody is cleared of being late for a rank that was not looked at."""
    size = max((rank.trace.world_size or 0 for rank in ranks), default=0)
    if size > len(ranks):
        raise NotMeasured("ranks", f"traces of {len(ranks)} of {size} ranks were given: one of the others may be late")


def _work(ranks: Sequence[TraceFacts]) -> tuple[Int64, Int64]:
    """Time outside exposed communication, shape ``(ranks, steps)``, and the mean wall time of each shared step."""
    numbers = [rank.trace.rank for rank in ranks if rank.trace.rank is not None]
    twice = next((number for number in numbers if numbers.count(number) > 1), None)
    if twice is not None:
        raise NotMeasured("ranks", f"more than one trace is of rank {twice}")
    talking = [len(rank.split.communicating) > 0 for rank in ranks]
    if not all(talking):
        raise NotMeasured("communication", f"no collective kernels on {ranks[talking.index(False)].label}")
    shared = reduce(np.intersect1d, [rank.steps.number for rank in ranks])
    if shared.size < LEAST_STEPS:
        raise NotMeasured("shared_steps", f"the traces share {shared.size} step numbers; {LEAST_STEPS} are needed")
    rows = [np.isin(rank.steps.number, shared) for rank in ranks]
    wall = np.array([rank.wall_ns[row] for rank, row in zip(ranks, rows, strict=True)])
    talk = np.array([rank.per_step_ns(Part.COMMUNICATION)[row] for rank, row in zip(ranks, rows, strict=True)])
    return wall - talk, wall.mean(axis=0).astype(np.int64)
