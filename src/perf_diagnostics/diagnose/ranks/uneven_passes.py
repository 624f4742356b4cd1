"""How many steps each rank takes in a pass over its data, and how long ranks are without a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.ranks.rank_facts import require_ranks
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import StepTable, TrialResult

#: From one pass alone nobody can tell whether a rank's loader ended, or another one of it was read in between.
_LEAST_PASSES = 2


@dataclass(frozen=True)
class UnevenPasses:
    """Whole passes over the data of all ranks of a trial.

    ``steps`` are the steps of each rank in one of them, ``count`` is how many passes all ranks have ended, and ``idle``
    the part of the ranks' time, while the one with the most steps takes its passes, of ranks without a batch left. It
    is counted, not estimated: its interval has no width.
    """

    steps: tuple[int, ...]
    count: int
    idle: Interval

    @classmethod
    def of(cls, result: TrialResult) -> UnevenPasses:
        """Raises NotApplicable for one rank, NotMeasured where ranks or their whole passes are not known."""
        require_ranks(result)
        ended = [_whole_passes(table) for table in result.steps]
        count = min(len(lengths) for lengths in ended)
        if count < _LEAST_PASSES:
            raise NotMeasured("epoch", "fewer than two passes over the data were seen to end on all ranks")
        for rank, lengths in enumerate(ended):
            # Other loaders count as well where they are read between the steps of one rank only, to evaluate, say.
            if len(set(lengths[:count])) > 1:
                raise NotMeasured("epoch", f"the passes of rank {rank} have {_few(lengths)} steps")
        steps = tuple(lengths[0] for lengths in ended)
        longest = result.steps[steps.index(max(steps))].wall_ns[: count * max(steps)].astype(np.float64)
        number = np.arange(longest.size) % max(steps)
        without = np.mean([number >= own for own in steps], axis=0)
        idle = float((without * longest).sum() / longest.sum())
        return cls(steps, count, Interval(idle, idle, idle, longest.size))


def _whole_passes(table: StepTable) -> tuple[int, ...]:
    """Steps of each pass that another one follows, from a trial's first step on."""
    epoch = table.get("epoch")
    if epoch is None or not len(table):
        return ()
    begins = np.flatnonzero(np.diff(epoch, prepend=epoch[0] - 1))
    return tuple(int(steps) for steps in np.diff(begins))


def _few(lengths: Sequence[int]) -> str:
    return f"{min(lengths)} to {max(lengths)}"
