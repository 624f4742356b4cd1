"""What the records of several ranks say together: who is late for the collectives, by how much, and why.

With data parallelism every rank waits for the last one inside its backward pass (or in its optimizer), so all ranks'
steps take equally long and the culprit cannot be told by them. What a rank does *before* it can communicate is its own:
waiting for data, copying, the forward pass, and what lies outside the phases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.statistics import Interval, ratio_interval
from perf_diagnostics.records import Float64, Phase, StepTable, TrialResult

#: What a rank does before its gradients can be exchanged.
BEFORE_COLLECTIVES = (Phase.DATA_WAIT, Phase.TRANSFER, Phase.FORWARD, Phase.OTHER)

#: Fewer steps in common say nothing about who is last how often.
LEAST_SHARED_STEPS = 10


@dataclass(frozen=True, eq=False)
class RankFacts:
    """The steady steps that all ranks share, by their number from the trial's first step on.

    Raises NotApplicable where a trial has one rank, NotMeasured where its ranks do not record the same.
    """

    tables: tuple[StepTable, ...]

    @classmethod
    def of(cls, result: TrialResult) -> RankFacts:
        if len(result.steps) < 2:
            raise NotApplicable("ranks", "the trial has one rank")
        shared = min(len(table) for table in result.steps)
        steady = np.all([~table.columns["warmup"][:shared] for table in result.steps], axis=0)
        if int(steady.sum()) < LEAST_SHARED_STEPS:
            raise NotMeasured(
                "ranks", f"the ranks share {int(steady.sum())} steady steps; {LEAST_SHARED_STEPS} are needed"
            )
        rows = [np.flatnonzero(steady)] * len(result.steps)
        return cls(tuple(_rows(table, row) for table, row in zip(result.steps, rows, strict=True)))

    @property
    def count(self) -> int:
        """How many ranks there are."""
        return len(self.tables)

    @property
    def steps(self) -> int:
        """Steady steps that all of them share."""
        return len(self.tables[0])

    @cached_property
    def wall_ns(self) -> Float64:
        """Mean wall time of each shared step over the ranks, shape ``(steps,)``."""
        walls: Float64 = np.mean([table.wall_ns for table in self.tables], axis=0)
        return walls

    def phase_ns(self, phase: Phase) -> Float64:
        """A phase's time, shape ``(ranks, steps)``."""
        times = [table.phase_ns(phase) for table in self.tables]
        if any(column is None for column in times):
            rank = next(index for index, column in enumerate(times) if column is None)
            raise NotMeasured(str(phase), f"rank {rank} did not record {phase}")
        return np.asarray(times, dtype=np.float64)

    @cached_property
    def own_ns(self) -> Float64:
        """What each rank does before it can communicate, shape ``(ranks, steps)``, in ns."""
        own: Float64 = np.sum(list(self._before.values()), axis=0)
        return own

    @cached_property
    def _before(self) -> dict[Phase, Float64]:
        """The times of the phases before the collectives; one that no rank marks is part of its ``other``."""
        self.phase_ns(Phase.BACKWARD)  # where it is not marked, the wait for the others lies in other
        marked = [phase for phase in BEFORE_COLLECTIVES if any(t.phase_ns(phase) is not None for t in self.tables)]
        return {phase: self.phase_ns(phase) for phase in marked}

    @cached_property
    def last(self) -> NDArray[np.intp]:
        """The rank that is ready last in each step, shape ``(steps,)``."""
        latest: NDArray[np.intp] = np.argmax(self.own_ns, axis=0)
        return latest

    def often_last(self, rank: int) -> float:
        """Share of the steps in which this rank is ready last."""
        return float((self.last == rank).mean())

    def excess(self, rank: int) -> Interval:
        """How much longer a rank takes than the median of the others, over the mean wall time of a step."""
        others = np.delete(self.own_ns, rank, axis=0)
        return ratio_interval(self.own_ns[rank] - np.median(others, axis=0), self.wall_ns)

    def excess_by_phase(self, rank: int) -> dict[Phase, float]:
        """The same, split into the phases it is made of; these add up to the excess over the mean of the others."""
        found: dict[Phase, float] = {}
        for phase, times in self._before.items():
            difference = times[rank] - np.delete(times, rank, axis=0).mean(axis=0)
            found[phase] = float(difference.sum() / self.wall_ns.sum())
        return found

    @cached_property
    def waited(self) -> Interval:
        """What a rank waits on average for the one that is ready last, over the wall time of a step."""
        return ratio_interval((self.own_ns.max(axis=0) - self.own_ns).mean(axis=0), self.wall_ns)

    def load(self, column: str) -> Float64:
        """``samples`` or ``tokens`` of each rank's steps, shape ``(ranks, steps)``."""
        values = [table.get(column) for table in self.tables]
        if any(value is None for value in values):
            raise NotMeasured(column, f"not every rank counted its {column}")
        return np.asarray(values, dtype=np.float64)

    def load_spread(self, column: str) -> float:
        """Mean over the steps of (largest − mean) / mean of the ranks' loads; 0 where all have the same."""
        loads = self.load(column)
        means = loads.mean(axis=0)
        if not (means > 0).all():
            raise NotMeasured(column, f"a step without {column}")
        return float(((loads.max(axis=0) - means) / means).mean())


def _rows(table: StepTable, rows: Sequence[int] | NDArray[np.intp]) -> StepTable:
    return StepTable({name: values[rows] for name, values in table.columns.items()})
