"""What the records of several ranks say together: who is late for the collectives, by how much, and why.

With data parallelism every rank waits for the last one inside its backward pass (or in its optimizer), so all ranks'
steps take equally long and the culprit cannot be told by them. What a rank does *before* it can communicate is its own:
waiting for data, copying, the forward pass, and what lies outside the phases, without the waits for collectives that
were seen in these. Its own part of backward is known by when it arrives at the exchanges that were timed
(``arrivals.py``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.recorded import ask
from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.ranks.arrivals import LEAST_ARRIVALS, Arrivals, exposed_ns
from perf_diagnostics.diagnose.ranks.lateness import late_ns, noise_ns, often_last
from perf_diagnostics.diagnose.ranks.waited_for import WaitedFor
from perf_diagnostics.diagnose.statistics.intervals import Interval, ratio_interval
from perf_diagnostics.records import Bools, Float64, Phase, StepTable, TrialResult

#: What a rank does before its gradients can be exchanged.
BEFORE_COLLECTIVES = (Phase.DATA_WAIT, Phase.TRANSFER, Phase.FORWARD, Phase.OTHER)

#: Fewer steps in common say nothing about who is last how often.
LEAST_SHARED_STEPS = 10

#: Who is late how much is asked of steps up to so many times the middle one. A longer one is a stall, and no habit of a
#: rank; it may also be a rank that waits for what this tool does between the steps of another.
LONGEST_STEP = 4.0

#: Time outside of all phases beyond the middle step is a stop from this part of a step on.
LEAST_STOP = 0.25


def require_several(result: TrialResult) -> None:
    """Raise NotApplicable where a training has one rank."""
    if result.ranks < 2:
        raise NotApplicable("ranks", "the trial has one rank")


def require_ranks(result: TrialResult) -> None:
    """Raise NotApplicable where a training has one rank, NotMeasured where others of several were not recorded."""
    require_several(result)
    told, recorded = result.ranks, len(result.steps)
    if told > recorded:
        # The rank that the others wait for may be one of those that are missing.
        were = "one was" if recorded == 1 else f"{recorded} were"
        raise NotMeasured("ranks", f"of {told} ranks {were} recorded; they need a results folder that all can see")


def shared_numbers(result: TrialResult) -> NDArray[np.intp]:
    """Which of the recorded steps are steady ones that all ranks recorded whole, ascending, shape ``(steps,)``.

    A step of which one rank's device lost a timing event is left out.
    """
    shared = min(len(table) for table in result.steps)
    steady = _whole(result) & np.all([~table.columns["warmup"][:shared] for table in result.steps], axis=0)
    if int(steady.sum()) < LEAST_SHARED_STEPS:
        raise NotMeasured("ranks", f"the ranks share {int(steady.sum())} steady steps; {LEAST_SHARED_STEPS} are needed")
    return np.flatnonzero(steady)


def shared_steps(result: TrialResult) -> tuple[StepTable, ...]:
    """A table a rank with these steps."""
    numbers = shared_numbers(result)
    return tuple(rows_of(table, numbers) for table in result.steps)


def _whole(result: TrialResult) -> Bools:
    """The steps that all ranks recorded and of which no device lost a timing event, shape ``(steps,)``."""
    shared = min(len(table) for table in result.steps)
    whole = np.ones(shared, dtype=np.bool_)
    for table in result.steps:
        for name, values in table.columns.items():
            if name.startswith("device_") and name.endswith("_ns"):
                whole &= np.isfinite(values[:shared])
    return whole


@dataclass(frozen=True, eq=False)
class RankFacts:
    """The steady steps that all ranks share, by their number from the trial's first step on.

    ``numbers`` say which of the recorded steps these are, shape ``(steps,)``; ``arrivals`` is what DDP's own times of
    exchanges say; None where too few were timed.

    Raises NotApplicable where a trial has one rank, NotMeasured where its ranks do not record the same.
    """

    tables: tuple[StepTable, ...]
    numbers: NDArray[np.intp]
    arrivals: Arrivals | None = None

    @classmethod
    def of(cls, result: TrialResult) -> RankFacts:
        require_ranks(result)
        return cls(shared_steps(result), shared_numbers(result), _arrivals(result))

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
        """What each rank does before it arrives at the exchange, shape ``(ranks, steps)``, in ns.

        That is what it does before backward but wait for other ranks, and what the times of exchanges say beyond it (a
        difference between the ranks, which is 0 on average over them).
        """
        own: Float64 = np.sum(list(self._own.values()), axis=0)
        return own if self.arrivals is None else own + self.arrivals.offsets_ns

    @cached_property
    def before_ns(self) -> Float64:
        """What each rank does before backward, its waits for others there included, shape ``(ranks, steps)``, in ns."""
        before: Float64 = np.sum(list(self._before.values()), axis=0)
        return before

    @cached_property
    def _before(self) -> dict[Phase, Float64]:
        """The times of the phases before the collectives; one that no rank marks is part of its ``other``."""
        self.phase_ns(Phase.BACKWARD)  # where it is not marked, the wait for the others lies in other
        marked = [phase for phase in BEFORE_COLLECTIVES if any(t.phase_ns(phase) is not None for t in self.tables)]
        return {phase: self.phase_ns(phase) for phase in marked}

    @cached_property
    def _own(self) -> dict[Phase, Float64]:
        """These times without the waits for collectives in them."""
        return {phase: np.maximum(0.0, times - self.collective_ns(phase)) for phase, times in self._before.items()}

    def collective_ns(self, phase: Phase) -> Float64:
        """What each rank was seen to wait for collectives in a phase, shape ``(ranks, steps)``, in ns.

        0 where nobody looked, and on a device, whose stream waits when the host does not.
        """
        if not self.sees_collectives(phase):
            return np.zeros((self.count, self.steps))
        return np.asarray([table.columns[f"collective_{phase}_ns"] for table in self.tables], dtype=np.float64)

    def sees_collectives(self, phase: Phase) -> bool:
        """Whether the waits for collectives in a phase were timed on all ranks, by the clock that the phase has."""
        return all(f"collective_{phase}_ns" in t.columns and t.device_ns(phase) is None for t in self.tables)

    def often_last(self, rank: int) -> float:
        """Share of the steps in which this rank arrives last, by more than noise."""
        return often_last(self.own_ns, rank, self._step_ns)

    def noise(self, rank: int) -> float:
        """By what part of the middle step a rank has to be later than the others to be last in a step."""
        return noise_ns(late_ns(self.own_ns, rank), self._step_ns) / self._step_ns

    @property
    def _step_ns(self) -> float:
        return float(np.median(self.wall_ns))

    def excess(self, rank: int) -> Interval:
        """How much later a rank arrives than the median of the others, over the mean wall time of a step."""
        return self._as_sure_as_habits(
            ratio_interval(late_ns(self.own_ns, rank)[self.usual], self.wall_ns[self.usual]), rank
        )

    def lost(self, rank: int) -> Interval:
        """What the job loses to a rank in the steps in which it is waited for, over the wall time of all."""
        return self._as_sure_as_habits(self.waited_for.share(rank), rank)

    def _as_sure_as_habits(self, seen: Interval, rank: int) -> Interval:
        """What a rank is late by in backward is known of few steps, and taken for that of all."""
        if self.arrivals is None or seen.low is None or seen.high is None:
            return seen
        mean_ns = float(self.wall_ns[self.usual].mean())
        unsure = [(h.value - h.low) / mean_ns for h in self.arrivals.habit_ns(rank).values() if h.low is not None]
        low = seen.value - math.hypot(seen.value - seen.low, *unsure)
        return Interval(seen.value, low, seen.value + math.hypot(seen.high - seen.value, *unsure), seen.n)

    def excess_by_phase(self, rank: int) -> dict[Phase, float]:
        """The same, split into the phases it is made of; these add up to about that.

        What each phase before backward has beyond the mean of the other ranks in all steps, and in the timed ones the
        middle of what backward has beyond their median, and what delayed the rank before the step: the optimizer.
        """
        found: dict[Phase, float] = {}
        for phase, times in self._own.items():
            difference = times[rank] - np.delete(times, rank, axis=0).mean(axis=0)
            found[phase] = float(difference.sum() / self.wall_ns.sum())
        habits = {} if self.arrivals is None else self.arrivals.habit_ns(rank)
        return found | {phase: habit.value / float(self.wall_ns.mean()) for phase, habit in habits.items()}

    def seconds_of(self, rank: int, seconds: Mapping[Phase, float]) -> dict[str, float]:
        """Where in the first rank's own steps what a late rank takes longer lies: these are the steps that all rules
        but those of several ranks read.

        Args:
            rank: the late one.
            seconds: what it takes longer, by phase, over the wall time of a step.

        Returns:
            By phase, over the wall time of a step. On the first rank itself it is where it is. On others it is waited
            for: for as long as they wait longer than it in collectives there, and for the rest in backward.
        """
        if rank == 0:
            return {str(phase): share for phase, share in seconds.items() if share > 0}
        left, found = sum(seconds.values()), dict[str, float]()
        for phase in BEFORE_COLLECTIVES:
            waits = self.collective_ns(phase)
            found[str(phase)] = min(left, max(0.0, float((waits[0] - waits[rank]).sum() / self.wall_ns.sum())))
            left -= found[str(phase)]
        return {phase: share for phase, share in found.items() if share > 0} | {str(Phase.BACKWARD): max(0.0, left)}

    @cached_property
    def waited_for(self) -> WaitedFor:
        """For whom the ranks wait in each step, stalls included."""
        return WaitedFor.of(self.own_ns, self.wall_ns, self.numbers)

    def lost_by_phase(self, rank: int) -> dict[Phase, float]:
        """Over the wall time of all steps, what each phase before backward has beyond the mean of the other ranks in
        the steps in which this rank is waited for."""
        late = self.waited_for.steps(rank)
        return {
            phase: float((times[rank] - np.delete(times, rank, axis=0).mean(axis=0))[late].sum() / self.wall_ns.sum())
            for phase, times in self._own.items()
        }

    def lost_in_turn(self) -> dict[Phase, float]:
        """The same, of whichever rank is waited for in each step."""
        each = [self.lost_by_phase(rank) for rank in range(self.count)]
        return {phase: sum(one[phase] for one in each) for phase in self._own}

    @cached_property
    def waited(self) -> Interval:
        """What a rank waits on average for the one that arrives last, over the wall time of a step."""
        waits = (self.own_ns.max(axis=0) - self.own_ns).mean(axis=0)
        seen = ratio_interval(waits[self.usual], self.wall_ns[self.usual])
        if self.arrivals is None or self.arrivals.habits:
            return seen
        # No rank is late in backward by habit; some may be in turn, which only the timed steps show.
        timed = self.arrivals.waits_ns.scaled(1.0 / float(self.wall_ns.mean()))
        return timed if seen.high is not None and timed.surely_at_least(seen.high) else seen

    @cached_property
    def usual(self) -> Bools:
        """The steps that are no stalls, shape ``(steps,)``."""
        usual: Bools = self.wall_ns <= LONGEST_STEP * self._step_ns
        return usual

    def pauses_ns(self) -> Float64:
        """Pauses of each rank that have nothing to do with its batch, shape ``(ranks, steps)``, in ns.

        Python's collections and, outside of all phases, what lasts beyond the rank's middle step by a quarter of a step
        or more: saving, evaluating, logging.
        """
        pauses = []
        for table in self.tables:
            collected, other = table.get("gc_ns"), table.phase_ns(Phase.OTHER)
            if collected is None and other is None:
                raise NotMeasured("gc_ns", "neither collections nor the time outside of the phases were recorded")
            found = np.zeros(self.steps) if collected is None else np.asarray(collected, dtype=np.float64)
            if other is not None:
                beyond = np.asarray(other, dtype=np.float64) - float(np.nanmedian(other))
                stops = np.where(beyond >= LEAST_STOP * self._step_ns, beyond, 0.0)
                found = np.maximum(found, stops)
            pauses.append(found)
        return np.asarray(pauses)

    def load(self, column: str) -> Float64:
        """``samples`` or ``tokens`` of each rank's steps, shape ``(ranks, steps)``."""
        values = [table.get(column) for table in self.tables]
        if any(value is None for value in values):
            raise NotMeasured(column, f"not every rank counted its {column}")
        return np.asarray(values, dtype=np.float64)


def rows_of(table: StepTable, rows: Sequence[int] | NDArray[np.intp]) -> StepTable:
    return StepTable({name: values[rows] for name, values in table.columns.items()})


def _arrivals(result: TrialResult) -> Arrivals | None:
    """When the ranks arrived at the exchanges that were timed; None where too few were, or a phase is missing."""
    exposed = exposed_ns(result)
    if exposed is None:
        return None
    rows = np.flatnonzero(_whole(result) & np.isfinite(exposed).all(axis=0))
    if len(rows) < LEAST_ARRIVALS:
        return None
    timed = RankFacts(tuple(rows_of(table, rows) for table in result.steps), rows)
    return ask(lambda: Arrivals(timed.before_ns, timed.phase_ns(Phase.BACKWARD), exposed[:, rows], rows))
