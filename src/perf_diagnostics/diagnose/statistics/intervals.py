"""Estimates with intervals for autocorrelated step times: batch means, ratios of sums, pooling of processes, trends.

Step times of one process are not independent, so an interval made from single steps is far too narrow: at a lag-1
correlation of 0.6 (0.9) it covers the true mean in about two thirds (one third) of the cases instead of 95 %. Every
interval here therefore comes from the means of consecutive batches. Nothing in this module knows what a step is.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from perf_diagnostics.batch_means import BATCHES, widening
from perf_diagnostics.records import Float64

#: The probability of every interval of this package.
COVERAGE = 0.95

#: A normal distribution's standard deviation over its median absolute deviation.
MAD_TO_SD = 1.4826

#: Theil-Sen looks at every pair; a longer series is first reduced to this many medians of neighbours.
TREND_POINTS = 400


@dataclass(frozen=True)
class Interval:
    """An estimate and the two ends of its 95 % interval; both ends are None where ``n`` values allow none."""

    value: float
    low: float | None
    high: float | None
    n: int

    def surely_at_least(self, limit: float) -> bool:
        """The whole interval lies at or above ``limit``; false without an interval."""
        return self.low is not None and self.low >= limit

    def surely_below(self, limit: float) -> bool:
        """The whole interval lies below ``limit``; false without an interval."""
        return self.high is not None and self.high < limit

    def scaled(self, factor: float) -> Interval:
        """The interval of ``factor`` (at least 0) times what was estimated."""
        low = None if self.low is None else self.low * factor
        high = None if self.high is None else self.high * factor
        return Interval(self.value * factor, low, high, self.n)

    def reaching(self, most: float) -> Interval:
        """The same estimate, with an upper end of at least ``most``."""
        return Interval(self.value, self.low, most if self.high is None else max(self.high, most), self.n)

    def within(self, least: float, most: float) -> Interval:
        """The same estimate, with value and ends held between two bounds (a share cannot lie below 0)."""

        def held(end: float) -> float:
            return min(max(end, least), most)

        low = None if self.low is None else held(self.low)
        high = None if self.high is None else held(self.high)
        return Interval(held(self.value), low, high, self.n)


@functools.lru_cache(maxsize=256)
def student_quantile(degrees: float) -> float:
    """The 97.5 % quantile of Student's t: half of a 95 % interval lies on either side."""
    return float(special.stdtrit(degrees, 0.5 + COVERAGE / 2))


def mean_interval(values: ArrayLike) -> Interval:
    """The mean of a series, shape ``(n,)``, with an interval that allows for autocorrelation.

    See :func:`ratio_interval`, of which it is the case "sum of values over number of values".
    """
    series = np.asarray(values, dtype=np.float64)
    return ratio_interval(series, np.ones_like(series))


def ratio_interval(numerators: ArrayLike, denominators: ArrayLike, *, as_it_went: bool = False) -> Interval:
    """The ratio of two sums over the same steps, ``sum(x) / sum(w)``, both of shape ``(n,)``.

    This is the share of a phase (its time over the wall time) and a throughput (samples over wall time): never a
    mean of rates, so that long steps weigh as much as they last.

    Method: the residuals ``x - ratio * w`` are summed over ten consecutive batches; Student's t with one degree less
    than batches on their spread (ratio estimator: Cochran, *Sampling Techniques*, 1977, chapter 6). What correlation
    is left between neighbouring batches widens the interval by ``sqrt((1 + r) / (1 - r))``, as in Skart (Tafazzoli &
    Wilson, IIE Transactions 43, 2011), where there are ten batches to see it in. Simulated coverage of the nominal
    95 % with 200 steps: 96.1 % at no autocorrelation, 95.7 % at AR(1) with rho 0.6, 92.5 % with rho 0.9 (without the
    widening 87.6 %); with 20 steps 96.6 %, 89.2 % and only 68.4 %. Fewer than three steps give no interval.

    Args:
        numerators: what is a part, shape ``(n,)``.
        denominators: of what it is a part.
        as_it_went: the ratio is that of the course the series took, if a line or two levels describe it
            (:func:`_beside_its_course`): a part that grew from nothing to all was a half, and with batches of all
            steps its interval would be all there is. How it will go on is not known then.

    Raises:
        ValueError: the shapes differ, or the denominators do not add up to more than 0.
    """
    x, w = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    total = float(w.sum())
    if x.shape != w.shape or x.ndim != 1:
        raise ValueError(f"Shapes {x.shape} and {w.shape} are not two series of equal length.")
    if not total > 0:
        raise ValueError(f"The denominators add up to {total}, so there is no ratio.")
    ratio, n = float(x.sum()) / total, x.size
    if n < 3:
        return Interval(ratio, None, None, n)
    batches = min(BATCHES, max(3, n // 2))
    residuals = np.add.reduceat(x - ratio * w, _edges(n, batches))
    scatter, known = _beside_its_course(residuals) if as_it_went else (residuals, 0)
    degrees = batches - 1 - known
    spread = math.sqrt(float(np.dot(scatter, scatter)) / degrees) * math.sqrt(batches) / total
    half = student_quantile(degrees) * spread * widening(scatter)
    return Interval(ratio, ratio - half, ratio + half, n)


@functools.lru_cache(maxsize=64)
def _edges(size: int, batches: int) -> NDArray[np.intp]:
    """Where so many consecutive batches of as equal lengths as possible begin."""
    return np.linspace(0, size, batches + 1).astype(np.intp)[:-1]


#: A line or two levels are the course of ten batches if they explain so much of how these vary.
COURSE = 0.85


def _beside_its_course(residuals: Float64) -> tuple[Float64, int]:
    """What is left of batch residuals beside the line, or the two levels, that they follow; and what that took to know.

    The residuals themselves where neither explains them, or where there are fewer than ten batches to see it in.
    """
    centred = residuals - residuals.mean()
    energy = float(np.dot(centred, centred))
    if centred.size < BATCHES or energy == 0:
        return centred, 0
    size = centred.size
    at = np.arange(size) - (size - 1) / 2
    slope = float(np.dot(at, centred)) / float(np.dot(at, at))
    left, known = centred - at * slope, 1
    # Of two levels, each split takes away what its two means explain: the one sum is the other's opposite.
    before = np.arange(2, size - 1)
    explained = np.cumsum(centred)[1:-2] ** 2 * (1 / before + 1 / (size - before))
    split = int(before[explained.argmax()])
    if energy - float(explained.max()) < float(np.dot(left, left)):
        sides = centred[:split], centred[split:]
        left, known = np.concatenate([side - side.mean() for side in sides]), 2
    return (left, known) if float(np.dot(left, left)) <= (1 - COURSE) * energy else (centred, 0)


def event_interval(lost: ArrayLike, weights: ArrayLike) -> Interval:
    """The ratio of two sums, ``sum(x) / sum(w)``, where most ``x`` are 0 and the others come by chance.

    What long steps lose, or collections: ten batches of them hold an event or two each, and say little about how many
    there would be next time. Here the events are what is counted: a weighted sum of Poisson counts, with the gamma
    interval of Fay & Feuer (Statistics in Medicine 16, 1997), which for equal events is Garwood's (Biometrika 28,
    1936). Events in steps that follow each other are one event. Negative ``x`` count as 0.

    Simulated coverage of the nominal 95 % with 3, 12 and 100 expected events of exponential size: 82, 96 and 97 %,
    where batch means reach 76, 92 and 95 %; with 30 equal events a share of twice a limit is surely above it in 88 %
    of cases, by batch means in 62 %.

    Raises:
        ValueError: the shapes differ, or the weights do not add up to more than 0.
    """
    x, w = np.maximum(0.0, np.asarray(lost, dtype=np.float64)), np.asarray(weights, dtype=np.float64)
    total = float(w.sum())
    if x.shape != w.shape or x.ndim != 1:
        raise ValueError(f"Shapes {x.shape} and {w.shape} are not two series of equal length.")
    if not total > 0:
        raise ValueError(f"The weights add up to {total}, so there is no ratio.")
    struck = x > 0
    begins = np.flatnonzero(struck & ~np.concatenate([[False], struck[:-1]]))
    if not begins.size:
        # With no event, up to 3.7 of them (Poisson, 97.5 %) could have come; of what size, nobody knows.
        return Interval(0.0, 0.0, 0.0, x.size)
    sizes = np.add.reduceat(x, begins) / total
    value, variance, largest = float(sizes.sum()), float(np.dot(sizes, sizes)), float(sizes.max())
    low = _gamma_quantile(value, variance, (1 - COVERAGE) / 2)
    high = _gamma_quantile(value + largest, variance + largest**2, (1 + COVERAGE) / 2)
    return Interval(value, low, high, x.size)


def _gamma_quantile(mean: float, variance: float, probability: float) -> float:
    """The quantile of a gamma distribution of this mean and variance."""
    return variance / mean * float(special.gammaincinv(mean**2 / variance, probability))


def proportion(hits: int, of: int) -> Interval:
    """A share of independent looks, with the exact interval of Clopper & Pearson (Biometrika 26, 1934).

    Raises:
        ValueError: nobody looked, or more was seen than was looked at.
    """
    if not 0 <= hits <= of or not of:
        raise ValueError(f"{hits} of {of} is no share.")
    low = float(special.betaincinv(hits, of - hits + 1, (1 - COVERAGE) / 2)) if hits else 0.0
    high = float(special.betaincinv(hits + 1, of - hits, (1 + COVERAGE) / 2)) if hits < of else 1.0
    return Interval(hits / of, low, high, of)


def pooled(processes: Sequence[Interval]) -> Interval:
    """One quantity measured in several processes: the mean of the per-process means.

    Processes differ by more than their steps tell (memory layout, neighbours), so with three or more the interval is
    Student's t on the per-process means (Kalibera & Jones, ISMM 2013). Two allow no such interval: the result spans
    both of theirs. One keeps its own. ``n`` is the number of steps.

    Raises:
        ValueError: there is no process.
    """
    if not processes:
        raise ValueError("Nothing to pool: no process measured this.")
    if len(processes) == 1:
        return processes[0]
    values = np.array([process.value for process in processes])
    mean, n = float(values.mean()), sum(process.n for process in processes)
    if len(processes) >= 3:
        half = student_quantile(values.size - 1) * float(values.std(ddof=1)) / math.sqrt(values.size)
        return Interval(mean, mean - half, mean + half, n)
    lows = [process.low for process in processes if process.low is not None]
    highs = [process.high for process in processes if process.high is not None]
    if len(lows) < len(processes) or len(highs) < len(processes):
        return Interval(mean, None, None, n)
    return Interval(mean, min(lows), max(highs), n)


def quotient(above: Interval, below: Interval) -> Interval:
    """The ratio of two independent estimates of positive quantities, such as the throughputs of two trials.

    Method: MOVER on the logarithms, which recovers the interval of a difference from those of its parts (Zou &
    Donner, Statistics in Medicine 27, 2008). No interval where either has none, or reaches 0.

    Raises:
        ValueError: an estimate is not positive.
    """
    if not (above.value > 0 and below.value > 0):
        raise ValueError(f"The ratio of {above.value} and {below.value} has no logarithm.")
    value, n = above.value / below.value, min(above.n, below.n)
    if above.low is None or above.high is None or below.low is None or below.high is None:
        return Interval(value, None, None, n)
    if above.low <= 0 or below.low <= 0:
        return Interval(value, None, None, n)
    down = math.hypot(math.log(above.value / above.low), math.log(below.high / below.value))
    up = math.hypot(math.log(above.high / above.value), math.log(below.value / below.low))
    return Interval(value, value * math.exp(-down), value * math.exp(up), n)


def against_the_best(ratio: Interval, of: int, *, scatter: float = 0.0) -> Interval:
    """The ratio of an estimate to the largest of ``of`` others, with an interval that allows for the choice.

    The largest of several is large by luck as well: at 95 % each, the last of seven equal trials is "surely" slower
    than the best of the others in up to 5 % of cases, and far more often where processes differ by more than their
    steps tell. Here every one of the ``of`` comparisons holds at once (Dunn, JASA 56, 1961), and ``scatter``, the
    standard deviation of the ratio's logarithm that neither interval has in it, is added in quadrature. Simulated for
    seven equal batch sizes, of which the last is called slower: 0 to 0.3 % of sweeps without such scatter (95 % each:
    up to 5 %), 2.3 % with 1 % of it in a process a size (33 %).

    Raises:
        ValueError: the best of none was asked for.
    """
    if of < 1:
        raise ValueError(f"The best of {of} is none.")
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return ratio
    reach = float(special.ndtri(1 - (1 - COVERAGE) / 2 / of))
    wider = reach / float(special.ndtri(0.5 + COVERAGE / 2))
    down, up = math.log(ratio.value / ratio.low), math.log(ratio.high / ratio.value)
    low, high = (math.hypot(wider * end, reach * scatter) for end in (down, up))
    return Interval(ratio.value, ratio.value * math.exp(-low), ratio.value * math.exp(high), ratio.n)


def scatter_around_a_hill(values: ArrayLike) -> float:
    """The scatter of values, shape ``(n,)``, that should first rise and then fall, wherever their top lies; 0 below 3.

    Root mean square, over the values between the two ends, of how far each lies below both a value before it and a
    value after it: no hill explains that, however steep it is. A series that only rises and falls has none, and of
    equal values with a normal scatter it finds on average 85 % of it in seven, 65 % in five and 28 % in three.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 3:
        return 0.0
    before, after = np.maximum.accumulate(series), np.maximum.accumulate(series[::-1])[::-1]
    dips = np.minimum(before, after) - series
    return math.sqrt(float(np.dot(dips, dips)) / (series.size - 2))


def median_absolute_deviation(values: ArrayLike) -> float:
    """The median distance from the median, scaled to a normal distribution's standard deviation."""
    series = np.asarray(values, dtype=np.float64)
    return MAD_TO_SD * median(np.abs(series - median(series)))


def median(values: Float64) -> float:
    """As numpy's, which takes thrice as long for few values, of which a diagnosis asks thousands of times.

    NaN where any value is, or where there is none.
    """
    size = values.size
    if not size:
        return math.nan
    middle = size // 2
    ordered = np.partition(values, (max(0, middle - 1), middle, size - 1))
    if math.isnan(ordered[-1]):
        return math.nan
    return float(ordered[middle] if size % 2 else (ordered[middle - 1] + ordered[middle]) / 2)


def theil_sen_slope(values: ArrayLike) -> float:
    """The median slope over all pairs of points of an evenly spaced series, in its unit per step.

    Up to 29 % of the points may be wild without moving it (Sen, JASA 63, 1968). Series longer than
    :data:`TREND_POINTS` are first reduced to the medians of as many equal stretches.
    """
    series = np.asarray(values, dtype=np.float64)
    if series.size < 2:
        return 0.0
    times = np.arange(series.size, dtype=np.float64)
    if series.size > TREND_POINTS:
        cuts = np.linspace(0, series.size, TREND_POINTS + 1).astype(np.intp)[1:-1]
        times = np.array([part.mean() for part in np.split(times, cuts)])
        series = np.array([float(np.median(part)) for part in np.split(series, cuts)])
    first, second = _pairs(series.size)
    return median((series[second] - series[first]) / (times[second] - times[first]))


@functools.lru_cache(maxsize=16)
def _pairs(size: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first and the second of all pairs of so many positions."""
    first, second = np.triu_indices(size, k=1)
    return first, second


def squared_correlation(x: ArrayLike, y: ArrayLike) -> float | None:
    """R squared of a straight line through the points; None where either does not vary."""
    dx, dy = (np.asarray(v, dtype=np.float64) - np.mean(np.asarray(v, dtype=np.float64)) for v in (x, y))
    scale = float(np.dot(dx, dx)) * float(np.dot(dy, dy))
    return None if scale == 0 else min(1.0, float(np.dot(dx, dy)) ** 2 / scale)
