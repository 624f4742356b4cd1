"""What the exchange of gradients costs by DistributedDataParallel's own times, without the wait for a late rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.not_measured import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.ranks.arrivals import exposed_ns, median_interval
from perf_diagnostics.diagnose.ranks.rank_facts import require_ranks, rows_of, shared_steps
from perf_diagnostics.diagnose.statistics.intervals import Interval, ratio_interval
from perf_diagnostics.records import Float64, Phase, StepTable, TrialResult

#: DDP times ten exchanges at first and then each hundredth. With several a step few are left, which are no evidence
#: (their interval has no ends), but an estimate. Those of the warm-up count, too: there is little that warms up.
LEAST_TIMED = 2


@dataclass(frozen=True, eq=False)
class ExchangeFacts:
    """The steps in which every rank's exchange of gradients was timed; ``wall_ns`` is that of a mean steady step.

    A rank that is ready early waits inside its exchange for the last one. Therefore the rank whose exchange was exposed
    for the shortest time speaks for a step: it waited for nobody. ``batches`` are those of a step, ``tensors`` the
    gradients that are exchanged (None: not known), ``room_ns`` what backward leaves for exposed exchanges in a mean
    steady step (None: not known).

    Raises NotApplicable where a trial has one rank or does not use DDP, NotMeasured where too little was timed.
    """

    tables: tuple[StepTable, ...]
    wall_ns: float
    per_step: float
    batches: float = 1.0
    tensors: float | None = None
    room_ns: float | None = None

    @classmethod
    def of(cls, result: TrialResult) -> ExchangeFacts:
        require_ranks(result)
        require_ddp(result)
        if any(table.get("exchange_ns") is None for table in result.steps):
            gap = result.gap("exchange_ns")
            raise NotMeasured("exchange_ns", "not every rank's exchanges were timed" if gap is None else gap.why)
        steady = shared_steps(result)
        shared = min(len(table) for table in result.steps)
        timed = np.all([np.isfinite(table.columns["exchange_ns"][:shared]) for table in result.steps], axis=0)
        if int(timed.sum()) < LEAST_TIMED:
            raise NotMeasured("exchange_ns", f"exchanges that were timed: {int(timed.sum())}; this needs {LEAST_TIMED}")
        few = tuple(rows_of(table, np.flatnonzero(timed)) for table in result.steps)
        wall_ns = float(np.mean([table.wall_ns for table in steady]))
        per_step = _told(result, "exchanges_per_step_least") or 1.0
        accumulated = _told(result, "accumulation_steps") or 1.0
        batches = max(1.0, accumulated, result.trial.settings.accumulation_steps or 1)
        return cls(
            few, wall_ns, max(1.0, per_step), batches, _told(result, "optimizer_tensors"), _room_ns(result, steady)
        )

    @property
    def count(self) -> int:
        """How many exchanges were timed."""
        return len(self.tables[0])

    @cached_property
    def exposed(self) -> Interval:
        """Time in which gradients are exchanged and backward computes nothing, over the wall time of a step.

        Most of the exchanges that are timed lie in the warm-up, and a busy machine makes some of them long: what steady
        backward passes have no room for does not count.
        """
        most = 1.0 if self.room_ns is None else min(1.0, self.room_ns / self.wall_ns)
        return ratio_interval(self._exposed_ns * self.per_step, self._walls_ns).within(0.0, most)

    @cached_property
    def waited(self) -> Interval:
        """What the other ranks wait on top of that for the last to arrive, in the middle exchange, over a step."""
        exposed = self._took_ns - self._hidden_ns
        waits = (exposed - self._exposed_ns).sum(axis=0) / (len(self.tables) - 1)
        return median_interval(waits).scaled(self.per_step / self.wall_ns).within(0.0, 1.0)

    @property
    def spokesman(self) -> int:
        """The rank that waits least in most of the exchanges."""
        return int(np.bincount(self._speaker).argmax())

    @cached_property
    def overlap(self) -> Interval:
        """The part of the exchange that is hidden behind backward, 0…1.

        Raises:
            NotMeasured: the exchanges took no time, of which nothing can be a part.
        """
        took = self._took_ns[self._speaker, np.arange(self.count)]
        if not took.sum() > 0:
            raise NotMeasured("exchange_ns", "the exchanges that were timed took no time at all: a clock is wrong")
        return ratio_interval(took - self._exposed_ns, took).within(0.0, 1.0)

    @cached_property
    def could_be_hidden(self) -> Interval:
        """Exposed time that backward passes could hide, over the wall time of a step.

        An exchange can run beside the computing of its own backward pass only, not beside those of other batches of the
        step; and a gradient is sent when it is complete, so that of ``n`` tensors of equal size the n-th part of the
        exchange, the last one's, has nothing left to run beside. Of a single tensor that is all of it.

        Raises:
            NotMeasured: backward was not timed.
        """
        backward = [table.phase_ns(Phase.BACKWARD) for table in self.tables]
        if any(values is None for values in backward):
            raise NotMeasured("host_backward_ns", "not every rank recorded backward")
        spoken = np.asarray(backward, dtype=np.float64)[self._speaker, np.arange(self.count)]
        hidden = self._hidden_ns[self._speaker, np.arange(self.count)]
        # What is left of backward without the wait at its end computes, and some of it hides something already.
        own = min(1.0, self.per_step / self.batches)
        free = np.maximum(0.0, (spoken - self.per_step * self._exposed_ns) * own - self.per_step * hidden)
        sent_last = 0.0 if not self.tensors else (self._exposed_ns + hidden) / self.tensors
        before_last = np.maximum(0.0, self._exposed_ns - sent_last)
        room = np.minimum(self.per_step * before_last, free)
        return ratio_interval(room, self._walls_ns).within(0.0, 1.0)

    @cached_property
    def _took_ns(self) -> Float64:
        took: Float64 = np.asarray([table.columns["exchange_ns"] for table in self.tables], dtype=np.float64)
        return took

    @cached_property
    def _hidden_ns(self) -> Float64:
        hidden: Float64 = np.asarray([table.columns["exchange_hidden_ns"] for table in self.tables], dtype=np.float64)
        return hidden

    @cached_property
    def _speaker(self) -> NDArray[np.intp]:
        """The rank whose exchange was exposed for the shortest time, for each timed step."""
        speaker: NDArray[np.intp] = np.argmin(self._took_ns - self._hidden_ns, axis=0)
        return speaker

    @cached_property
    def _exposed_ns(self) -> Float64:
        exposed: Float64 = np.min(self._took_ns - self._hidden_ns, axis=0)
        return exposed

    @property
    def _walls_ns(self) -> Float64:
        """The mean wall time of a steady step, once for each timed exchange."""
        return np.full(self.count, self.wall_ns)


def _room_ns(result: TrialResult, steady: Sequence[StepTable]) -> float | None:
    """What a mean steady backward takes beyond the quickest computing that was seen in one, in ns, of the rank with the
    shortest backward of each step; None where it was not timed.

    All ranks leave the exchange together, so that is the one that waits least. What backward computes is known of the
    steps whose exchange was timed, if each has one.
    """
    backward = [table.phase_ns(Phase.BACKWARD) for table in steady]
    whole = [table.phase_ns(Phase.BACKWARD) for table in result.steps]
    if any(times is None for times in (*backward, *whole)):
        return None
    took = float(np.min(np.asarray(backward, dtype=np.float64), axis=0).mean())
    exposed = exposed_ns(result)
    if exposed is None:
        return took
    shared = [np.asarray(times, dtype=np.float64)[: exposed.shape[1]] for times in whole]
    computing = (np.asarray(shared) - exposed)[:, np.isfinite(exposed).all(axis=0)]
    least = float(np.nanmin(computing)) if np.isfinite(computing).any() else 0.0
    return max(0.0, took - max(0.0, least))


def _told(result: TrialResult, fact: str) -> float | None:
    """A number among the trial's facts; None where it is not there."""
    value = result.facts.get(fact)
    return None if isinstance(value, bool) or not isinstance(value, int | float) else float(value)


def require_ddp(result: TrialResult) -> None:
    """Raise where the gradients are not exchanged by DistributedDataParallel."""
    if result.facts.get("data_parallel") == "DistributedDataParallel" or "ddp_buckets" in result.facts:
        return
    if "matmul_precision" not in result.facts:
        raise NotMeasured("data_parallel", "nobody looked at the model's wrappers")
    raise NotApplicable("data_parallel", "the model is not wrapped in DistributedDataParallel")
