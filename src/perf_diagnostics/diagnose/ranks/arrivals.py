"""When ranks arrive at their exchange of gradients, by the few exchanges that DistributedDataParallel times itself.

All ranks leave an exchange together, so who waits in it for less arrived later, by just that difference: whatever made
it late. What a rank does before backward is recorded in each step; what lies beyond that is known of the timed ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from perf_diagnostics.diagnose.statistics.intervals import COVERAGE, Interval
from perf_diagnostics.records import Float64, Phase, TrialResult

#: An exchange is written beside a later step than its own. DDP puts it into its log when the next step's forward pass
#: begins, the log is read after that step, and what is read stands beside the step that then comes.
LAG = 2

#: DDP times the first ten exchanges one after another, and then each hundredth: what a rank does every ten steps may
#: be in all of these, and in hardly any of the first ones.
ONE_BY_ONE = 10

#: Of five arrivals not even the smallest and the largest hold the middle one between them with 95 %.
LEAST_ARRIVALS = 6


def exposed_ns(result: TrialResult) -> Float64 | None:
    """What each rank waited in the exchange of a step after its own backward had computed, shape ``(ranks, steps)``.

    The steps are those that all ranks recorded; NaN where it was not timed. None where none was, or where a step has
    not just one exchange: then it is not known which of a step's several was timed.
    """
    rates = [result.facts.get(f"exchanges_per_step_{end}") for end in ("least", "most")]
    if rates != [1, 1] or any(table.get("exchange_ns") is None for table in result.steps):
        return None
    steps = min(map(len, result.steps))
    exposed = np.full((len(result.steps), steps), np.nan)
    for rank, table in enumerate(result.steps):
        waits = table.columns["exchange_ns"] - table.columns["exchange_hidden_ns"]
        known = waits[LAG : steps + LAG]
        exposed[rank, : len(known)] = known
    return exposed


def median_interval(values: ArrayLike) -> Interval:
    """The middle of values, shape ``(n,)``, with the two of them that hold the true one between them with 95 %.

    Distribution-free (Conover, *Practical Nonparametric Statistics*, 1999, section 3.2), so that one odd value of nine
    moves nothing; fewer than six give no interval.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = ordered.size
    # As many as may lie outside on each side: P(Binomial(n, 1/2) < k) is at most 2.5 %.
    outside = sum(float(special.bdtr(k, n, 0.5)) <= (1 - COVERAGE) / 2 for k in range(n // 2))
    middle = float(np.median(ordered))
    if not outside:
        return Interval(middle, None, None, n)
    return Interval(middle, float(ordered[outside - 1]), float(ordered[n - outside]), n)


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Times of ranks in the steps whose exchange was timed on each, all of shape ``(ranks, steps)``, in ns.

    ``before_ns`` is each rank's own time before backward, ``backward_ns`` its backward with the wait in it, and
    ``exposed_ns`` that wait. Steps of the warm-up count, too: often there are hardly any others, and the middle of them
    is no odd one. ``numbers`` are those of the steps, shape ``(steps,)``; without them all are taken for neighbours.
    """

    before_ns: Float64
    backward_ns: Float64
    exposed_ns: Float64
    numbers: NDArray[np.intp] | None = None

    @property
    def count(self) -> int:
        """How many exchanges were timed."""
        return int(self.exposed_ns.shape[1])

    @cached_property
    def beyond_ns(self) -> Float64:
        """How much later a rank arrives than its time before backward explains, against the mean of all ranks.

        Shape ``(ranks, steps)``. It lies in backward, or in what came before the step: the last one's optimizer.
        """
        return _centred(-self.exposed_ns - self.before_ns)

    @cached_property
    def parts_ns(self) -> dict[Phase, Float64]:
        """The same, split: what backward computed, without the wait in it, and what came before the step."""
        backward = _centred(self.backward_ns - self.exposed_ns)
        return {Phase.BACKWARD: backward, Phase.OPTIMIZER: self.beyond_ns - backward}

    @cached_property
    def habits(self) -> dict[Phase, Float64]:
        """The parts in which any rank surely differs from the others in the middle step.

        Also in that of the steps that were timed one by one, where these are enough: each hundredth step alone may
        always meet the same beat.
        """
        ranks = range(len(self.exposed_ns))
        return {
            phase: times for phase, times in self.parts_ns.items() if any(self._is_habit(times, rank) for rank in ranks)
        }

    def _is_habit(self, times: Float64, rank: int) -> bool:
        whole = _sign(_against_others(times, rank))
        early = np.ones(self.count, dtype=np.bool_) if self.numbers is None else self.numbers < ONE_BY_ONE
        if not whole or int(early.sum()) < LEAST_ARRIVALS:
            return whole != 0
        return _sign(_against_others(times[:, early], rank)) == whole

    def habit_ns(self, rank: int) -> dict[Phase, Interval]:
        """By how much a rank is later than the median of the others in the middle step, for each of these."""
        return {phase: _against_others(times, rank) for phase, times in self.habits.items()}

    @cached_property
    def offsets_ns(self) -> Float64:
        """What to add to a rank's time before backward to get its arrival, shape ``(ranks, 1)``.

        The middle of what was measured where the ranks surely differ by habit, and else 0.
        """
        offsets = np.zeros((len(self.exposed_ns), 1))
        for times in self.habits.values():
            offsets += np.median(times, axis=1, keepdims=True)
        return offsets

    @cached_property
    def waits_ns(self) -> Interval:
        """A rank's mean wait for the one that arrives last, in the middle step."""
        return median_interval((self.exposed_ns - self.exposed_ns.min(axis=0)).mean(axis=0))


def _centred(times: Float64) -> Float64:
    """Against the mean of the ranks in each step."""
    centred: Float64 = times - times.mean(axis=0)
    return centred


def _sign(from_others: Interval) -> int:
    """1 or -1 where a rank is surely later or earlier than the others, and else 0."""
    low, high = from_others.low, from_others.high
    if low is None or high is None:
        return 0
    return int(low > 0) - int(high < 0)


def _against_others(times: Float64, rank: int) -> Interval:
    return median_interval(times[rank] - np.median(np.delete(times, rank, axis=0), axis=0))
