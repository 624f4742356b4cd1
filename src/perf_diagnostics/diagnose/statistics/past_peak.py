"""How surely the last of several batch sizes is slower than the best of them, whatever equal processes differ by.

The best of several equal sizes is large by luck, and two processes that do the same differ: published sweeps repeat
within 1 % in the median, one in ten only within 12 %. Where sizes ran more than once, their repeats tell by how much.
Where each ran once nearly nothing does: that throughput rose smoothly before says little, for a steep rise hides any
scatter. Nothing in this module knows a record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from perf_diagnostics.diagnose.statistics.intervals import (
    COVERAGE,
    Interval,
    against_the_best,
    pooled,
    quotient,
    scatter_around_a_hill,
)

#: Degrees of freedom from which what repeats differ by is known well enough to be used.
LEAST_DEGREES = 2

#: With so many processes a batch size their own scatter is in the interval of their mean (``statistics.pooled``).
POOLED = 3

#: So many sizes at the end, each slower than the one before: of equal sizes, whose orders are all alike to chance, one
#: sweep in 5! = 120 does so, however much processes differ.
FALLING = 5


@dataclass(frozen=True)
class Scatter:
    """What equal processes differ by: one standard deviation of the logarithm, and its degrees of freedom."""

    value: float
    degrees: int

    def reach(self, of: int) -> float:
        """How many of these standard deviations the last of ``of`` + 1 sizes may lie below the best by chance.

        Each of the ``of`` comparisons holds at 1 - 0.05 / ``of`` (Dunn, JASA 56, 1961), by Student's t: the many-to-one
        comparison of Dunnett (JASA 50, 1955), with a bound in place of his tables.
        """
        return float(special.stdtrit(self.degrees, 1 - (1 - COVERAGE) / 2 / of))


def scatter_of_repeats(rates: Sequence[Sequence[float]]) -> Scatter | None:
    """What the processes of a size differ by, pooled over the sizes; None below :data:`LEAST_DEGREES`.

    Args:
        rates: for each size the throughput of each process, above 0.
    """
    degrees = sum(len(size) - 1 for size in rates)
    if degrees < LEAST_DEGREES:
        return None
    squares = 0.0
    for size in rates:
        logs = [math.log(rate) for rate in size]
        middle = fmean(logs)
        squares += sum((log - middle) ** 2 for log in logs)
    return Scatter(math.sqrt(squares / degrees), degrees)


def scatter_around_a_line(load: ArrayLike, seconds: ArrayLike) -> Scatter | None:
    """How far step times lie from a fixed cost plus a cost a sample; None where fewer than two degrees are left.

    Least squares of the relative errors, the fixed cost free to be negative: what does not follow the line adds to the
    scatter, and never takes from it.

    Args:
        load: samples (or tokens) a step, shape ``(sizes,)``: of all sizes but the one that is judged.
        seconds: their step times, shape ``(sizes,)``, above 0.
    """
    x, t = np.asarray(load, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    degrees = x.size - 2
    if degrees < LEAST_DEGREES:
        return None
    design = np.column_stack([1 / t, x / t])
    errors = design @ np.linalg.lstsq(design, np.ones_like(t), rcond=None)[0] - 1
    return Scatter(math.sqrt(float(errors @ errors) / degrees), degrees)


def last_of_best(throughputs: Sequence[Interval], processes: Sequence[int], *, single: float) -> Interval:
    """The last size's throughput over the best one's, which was chosen among all the others.

    Args:
        throughputs: of all sizes, at least two, all above 0.
        processes: in how many processes each size ran.
        single: the least that equal processes differ by, as a share (one standard deviation).
    """
    last = len(throughputs) - 1
    best = max(range(len(throughputs)), key=lambda index: throughputs[index].value)
    if best == last:
        return Interval(1.0, 1.0, 1.0, throughputs[last].n)
    uneven = scatter_around_a_hill(np.log([one.value for one in throughputs]))
    # Of three processes and more their scatter is in the interval already.
    alone = [single**2 / processes[index] + uneven**2 for index in (best, last) if processes[index] < POOLED]
    return against_the_best(
        quotient(throughputs[last], throughputs[best]), len(throughputs) - 1, scatter=math.sqrt(sum(alone))
    )


def last_over_best(
    sizes: Sequence[Sequence[Interval]],
    load: Sequence[float],
    seconds: Sequence[float],
    *,
    single: float,
    unknown: float,
) -> Interval:
    """The last size's throughput over the best one's, with a 95 % interval that allows for what processes differ by.

    From repeats, where there are any. Where each size ran once: what :func:`last_of_best` takes for granted, if the
    sizes fall one after the other (:data:`FALLING`); else, by whichever is the less, ``unknown``, or how far the other
    sizes lie from a straight line in step time. Simulated, of 3 to 8 sizes, for sweeps that are flat from any size on
    and whose processes differ by 2 to 10 %: with one process a size at most 5 % come out as surely 5 % slower, with two
    or three at most 1 % (``tests/diagnose/statistics/test_past_peak.py``).

    Args:
        sizes: throughput of each process of each size, at least two sizes, all above 0.
        load: samples (or tokens) of a step of each size.
        seconds: step time of each size.
        single: the least that equal processes differ by.
        unknown: what single processes are taken to differ by (both: one standard deviation of the logarithm).
    """
    rates = [[process.value for process in size] for size in sizes]
    means, last = [fmean(size) for size in rates], len(sizes) - 1
    best = max(range(len(sizes)), key=lambda index: means[index])
    if best == last:
        return Interval(1.0, 1.0, 1.0, sum(process.n for process in sizes[last]))
    parts = math.sqrt(1 / len(sizes[best]) + 1 / len(sizes[last]))
    repeated = scatter_of_repeats(rates)
    ratio, n = means[last] / means[best], min(sum(process.n for process in sizes[index]) for index in (best, last))
    if repeated is not None:
        return _around(ratio, repeated.reach(last) * repeated.value * parts, n)
    of_sizes = [pooled(size) for size in sizes]
    if falls_throughout(means) >= FALLING:
        return last_of_best(of_sizes, [len(size) for size in sizes], single=single)
    known = against_the_best(quotient(of_sizes[last], of_sizes[best]), last, scatter=unknown * parts)
    line = scatter_around_a_line(load[:last], seconds[:last])
    if line is None or known.high is None:
        return known
    by_line = _around(ratio, line.reach(last) * line.value * parts, n)
    return by_line if by_line.high is not None and by_line.high < known.high else known


def falls_throughout(rates: Sequence[float]) -> int:
    """How many sizes at the end are each slower than the one before, the first of them included."""
    falling = 1
    while falling < len(rates) and rates[-falling - 1] > rates[-falling]:
        falling += 1
    return falling


def _around(ratio: float, reach: float, n: int) -> Interval:
    return Interval(ratio, ratio * math.exp(-reach), ratio * math.exp(reach), n)
