"""What the traces of several ranks say about the steps that all of them show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.trace.breakdown import Part
from perf_diagnostics.diagnose.trace.facts import LEAST_STEPS, TraceFacts
from perf_diagnostics.records import Int64


@dataclass(frozen=True, eq=False)
class RankSteps:
    """The steps that all traces share: ns outside exposed communication and ns of computing, shapes
    ``(ranks, steps)``, and the mean wall time of each step over the ranks, shape ``(steps,)``.
    """

    work_ns: Int64
    computing_ns: Int64
    wall_ns: Int64


def rank_steps(ranks: Sequence[TraceFacts]) -> RankSteps:
    """Match the ranks' steps by the profiler's number.

    Raises:
        NotMeasured: a trace cannot be trusted, two are of one rank, one has no collective, or too few steps are shared.
    """
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
    pairs = list(zip(ranks, rows, strict=True))
    wall = np.array([rank.wall_ns[row] for rank, row in pairs])
    talk, computing = (
        np.array([rank.per_step_ns(part)[row] for rank, row in pairs]) for part in (Part.COMMUNICATION, Part.COMPUTE)
    )
    return RankSteps(wall - talk, computing, wall.mean(axis=0).astype(np.int64))


def require_all(ranks: Sequence[TraceFacts]) -> None:
    """Nobody is cleared for a rank that was not looked at; raises NotMeasured."""
    size = max((rank.trace.world_size or 0 for rank in ranks), default=0)
    if size > len(ranks):
        raise NotMeasured("ranks", f"traces of {len(ranks)} of {size} ranks were given: one of the others may be late")
