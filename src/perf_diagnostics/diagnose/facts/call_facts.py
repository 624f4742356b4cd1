"""How often a step of a training calls what it trains, and what it calls once more than it has to."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.facts.facts import Interval, NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.statistics.intervals import mean_interval
from perf_diagnostics.records import Int64

#: What is in a step in less than this part of them is an exception, and no way of training. A judgement.
USUAL = 0.5


def calls_a_step(facts: TrialFacts, column: str) -> Interval:
    """The mean of a column of counts over the steady steps.

    Raises:
        NotMeasured: calls are counted in trainings of the user's own where some are seen, and since that is done.
    """
    return mean_interval(_counted(facts, column))


def usually(facts: TrialFacts, column: str) -> bool:
    """Whether the column counts something in at least half of the steps."""
    return float(np.mean(_counted(facts, column) > 0)) >= USUAL


def share_of_calls(facts: TrialFacts, column: str) -> Interval:
    """The time of a column of calls over that of the steps.

    Raises:
        NotApplicable: on a device the host only queues what a call computes, and how long that takes is not told
            apart by calls.
        NotMeasured: as :func:`calls_a_step`.
    """
    times = _counted(facts, column)
    if facts.on_accelerator:
        raise NotApplicable(column, "on a device the host's time of a call is that of queueing its work")
    return facts.ratio(column, times, facts.column("wall_ns")).within(0.0, 1.0)


def _counted(facts: TrialFacts, column: str) -> Int64:
    facts.column("wall_ns")
    if facts.table.get(column) is None:
        raise facts.missing(
            column,
            "no call of a model was seen, or they were not counted: a sweep and older records do not",
        )
    found: Int64 = facts.column(column)
    return found


def require_backwards(facts: TrialFacts) -> Interval:
    """Backwards a step, of which there are some.

    Raises:
        NotMeasured: as :func:`calls_a_step`, or none was seen.
    """
    backwards = calls_a_step(facts, "backwards")
    if not backwards.value:
        raise NotMeasured("backwards", "no call of backward was seen")
    return backwards
