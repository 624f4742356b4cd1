"""When ranks arrive at their exchange of gradients, by the few exchanges that DistributedDataParallel times itself.

All ranks leave an exchange together, so who waits in it for less arrived later, by just that difference: whatever made
it late. What a rank does before backward is recorded in each step; what lies beyond that is known of the timed ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from perf_diagnostics.diagnose.statistics import Interval, mean_interval
from perf_diagnostics.records import Bools, Float64, TrialResult

#: An exchange is written beside a later step than its own. DDP puts it into its log when the next step's forward pass
#: begins, the log is read after that step, and what is read stands beside the step that then comes.
LAG = 2

#: Fewer arrivals say nothing about a habit. Of a short training's first ten, warm-up and lag leave six.
LEAST_ARRIVALS = 4


def exposed_ns(result: TrialResult, steps: int) -> Float64 | None:
    """What each rank waited in the exchange of a step after its own backward had computed, shape ``(ranks, steps)``.

    NaN where it was not timed. None where none was, or where a step has not just one exchange: then it is not known
    which of a step's several was timed.
    """
    rates = [result.facts.get(f"exchanges_per_step_{end}") for end in ("least", "most")]
    if rates != [1, 1] or any(table.get("exchange_ns") is None for table in result.steps):
        return None
    exposed = np.full((len(result.steps), steps), np.nan)
    for rank, table in enumerate(result.steps):
        waits = table.columns["exchange_ns"] - table.columns["exchange_hidden_ns"]
        known = waits[LAG : steps + LAG]
        exposed[rank, : len(known)] = known
    return exposed


@dataclass(frozen=True, eq=False)
class Arrivals:
    """Times of ranks in the same steps, all of shape ``(ranks, steps)``, in ns.

    ``before_ns`` is each rank's own time before backward, ``backward_ns`` its backward with the wait in it, and
    ``exposed_ns`` that wait, NaN in steps whose exchange was not timed.
    """

    before_ns: Float64
    backward_ns: Float64
    exposed_ns: Float64

    @cached_property
    def timed(self) -> Bools:
        """The steps whose exchange was timed on every rank, shape ``(steps,)``."""
        known: Bools = np.isfinite(self.exposed_ns).all(axis=0)
        return known

    @property
    def count(self) -> int:
        """How many they are."""
        return int(self.timed.sum())

    @cached_property
    def beyond_ns(self) -> Float64:
        """How much later a rank arrives than its time before backward explains, against the mean of all ranks.

        Shape ``(ranks, timed steps)``. It lies in backward, or in the optimizer's step before.
        """
        beyond = -self.exposed_ns[:, self.timed] - self.before_ns[:, self.timed]
        late: Float64 = beyond - beyond.mean(axis=0)
        return late

    def habit_ns(self, rank: int) -> Interval:
        """The mean of that, against the median of the other ranks."""
        others = np.delete(self.beyond_ns, rank, axis=0)
        return mean_interval(self.beyond_ns[rank] - np.median(others, axis=0))

    @cached_property
    def sure(self) -> bool:
        """Whether any rank is surely later, or earlier, than its time before backward explains."""
        if self.count < LEAST_ARRIVALS:
            return False
        habits = [self.habit_ns(rank) for rank in range(len(self.before_ns))]
        return any((h.low or 0.0) > 0 or (0.0 if h.high is None else h.high) < 0 for h in habits)

    @cached_property
    def offsets_ns(self) -> Float64:
        """What to add to the time before backward to get the arrival, shape ``(ranks, steps)``.

        Where the exchange was timed it is measured; elsewhere it is the mean of that where the ranks surely differ by
        habit, and else 0.
        """
        offsets = np.zeros_like(self.before_ns)
        if self.sure:
            offsets += self.beyond_ns.mean(axis=1)[:, np.newaxis]
        if self.count >= LEAST_ARRIVALS:
            offsets[:, self.timed] = self.beyond_ns
        return offsets

    @cached_property
    def backward_own_ns(self) -> Float64:
        """Each rank's mean backward pass without the wait in it, shape ``(ranks,)``."""
        own: Float64 = (self.backward_ns - self.exposed_ns)[:, self.timed].mean(axis=1)
        return own

    def waits_ns(self) -> Float64:
        """A rank's mean wait for the one that arrives last, shape ``(timed steps,)``."""
        exposed = self.exposed_ns[:, self.timed]
        waits: Float64 = (exposed - exposed.min(axis=0)).mean(axis=0)
        return waits
