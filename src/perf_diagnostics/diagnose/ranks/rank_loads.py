"""How evenly the ranks of a training are loaded, in tokens or samples, and whether that is why they wait."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.code.phase_looks import proportion
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.ranks.rank_facts import LEAST_SHARED_STEPS, RankFacts
from perf_diagnostics.diagnose.statistics.intervals import Interval, ratio_interval
from perf_diagnostics.records import Bools, Phase


def load_over_others(ranks: RankFacts, column: str, rank: int, steps: Bools) -> float:
    """What this rank has in these steps, over the mean of the others."""
    loads = ranks.load(column)[:, steps]
    others = float(np.delete(loads, rank, axis=0).mean()) if loads.size else 0.0
    if not others > 0:
        raise NotMeasured(column, f"the other ranks have no {column} in these steps")
    return float(loads[rank].mean()) / others


def most_loaded_is_last(ranks: RankFacts, column: str) -> Interval:
    """The part of the steps in which somebody is waited for that it is (one of) the rank(s) with the most.

    Steps in which all have the same are left out: of these it says nothing.

    Raises:
        NotMeasured: it was not counted, or too few steps are left.
    """
    loads, lost = ranks.load(column), ranks.waited_for.lost_ns
    asked = (lost.max(axis=0) > 0) & (np.ptp(loads, axis=0) > 0)
    if int(asked.sum()) < LEAST_SHARED_STEPS:
        raise NotMeasured(column, f"in {int(asked.sum())} steps a rank with other {column} is waited for")
    last = lost.argmax(axis=0)
    fits = loads[last, np.arange(ranks.steps)] == loads.max(axis=0)
    return proportion(float(fits[asked].mean()), float(asked.sum()))


def load_spread(ranks: RankFacts, column: str) -> float:
    """Mean over the steps of (largest − mean) / mean of the ranks' loads; 0 where all have the same."""
    loads = ranks.load(column)
    means = loads.mean(axis=0)
    if not (means > 0).all():
        raise NotMeasured(column, f"a step without {column}")
    return float(((loads.max(axis=0) - means) / means).mean())


def evened_out(ranks: RankFacts, column: str) -> Interval:
    """What even loads would win at most, over the wall time of a step.

    What the rank with the largest load computes beyond the mean load, forward and backward: those who wait for it
    before the exchange wait for it inside of backward as well, where no clock tells their waiting from computing.
    """
    loads = ranks.load(column)
    longest, steps = loads.argmax(axis=0), np.arange(ranks.steps)
    computing = (ranks.phase_ns(Phase.FORWARD) + ranks.phase_ns(Phase.BACKWARD))[longest, steps]
    needless = computing * (1 - loads.mean(axis=0) / loads.max(axis=0))
    return ratio_interval(needless[ranks.usual], ranks.wall_ns[ranks.usual])
