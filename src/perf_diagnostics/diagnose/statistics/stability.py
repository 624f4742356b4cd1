"""How steady a series of step times is: its course, trend, noise, changes of level, and long steps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import ndimage

from perf_diagnostics.batch_means import BATCHES
from perf_diagnostics.diagnose.statistics.intervals import (
    Interval,
    median_absolute_deviation,
    squared_correlation,
    student_quantile,
    theil_sen_slope,
)
from perf_diagnostics.records import Bools, Float64

#: See :func:`outliers_among`; from a pilot of planted stalls (43 % of the time lost, 2.5 % in 11 of 13 controls).
MANY_DEVIATIONS = 5.0
LEAST_EXCESS = 0.25

#: A step is compared with the median of so many around it, itself included: of up to half as many long ones in a row
#: it is told that they are long.
AROUND = 101

#: A line is drawn without the points far off it while so many are left.
_LEAST_KEPT = 0.75

#: So often, at most, points far off are looked for anew: by then it has settled, or never does.
_MOST_TURNS = 10


@dataclass(frozen=True)
class Drift:
    """A trend of the step time: ``rise`` over the whole series as a share of the median (negative: it fell).

    ``thirds`` are the medians of the three thirds: ``monotone`` says whether these rise or fall throughout,
    ``last_over_first`` compares the outer two.
    """

    rise: float
    thirds: tuple[float, float, float]

    @property
    def monotone(self) -> bool:
        first, middle, last = self.thirds
        return first < middle < last or first > middle > last

    @property
    def last_over_first(self) -> float:
        return self.thirds[2] / self.thirds[0]


def drift(step_times: ArrayLike) -> Drift:
    """The trend of at least three step times: Theil-Sen slope times their number, over the median."""
    times = np.asarray(step_times, dtype=np.float64)
    first, middle, last = (float(np.median(third)) for third in np.array_split(times, 3))
    rise = theil_sen_slope(times) * times.size / float(np.median(times))
    return Drift(rise, (first, middle, last))


def relative_noise(step_times: ArrayLike) -> float:
    """The spread of the middle of the step times: scaled median absolute deviation over the median."""
    times = np.asarray(step_times, dtype=np.float64)
    return median_absolute_deviation(times) / float(np.median(times))


@dataclass(frozen=True)
class Line:
    """A straight line through points: ``explains`` is R squared of those that are not ``far``, of shape ``(points,)``.

    ``scatter`` is the scaled median absolute deviation of the points from it, as a part of where it runs; NaN where it
    runs below 0.
    """

    explains: float
    far: Bools
    scatter: float


def line_through(x: ArrayLike, y: ArrayLike) -> Line | None:
    """The least-squares line through points without those far off it; None where either does not vary.

    Far off is what lies :data:`MANY_DEVIATIONS` scaled median absolute deviations from it, found in turns with the
    line. Where that were more than a quarter of the points none is left out. (Of 160 steps whose batches differed
    eightfold in length on a busy machine length explained 30 to 46 % plainly, and 87 to 99 % without 9 to 22 of them.)
    """
    at, values = (np.asarray(v, dtype=np.float64) for v in (x, y))
    plain = squared_correlation(at, values)
    if plain is None:
        return None
    kept = np.ones(values.size, dtype=np.bool_)
    line = np.polyfit(at, values, 1)
    for _ in range(_MOST_TURNS):
        off = values - np.polyval(line, at)
        off -= np.median(off[kept])
        near = np.abs(off) <= MANY_DEVIATIONS * median_absolute_deviation(off[kept])
        if near.mean() < _LEAST_KEPT or np.ptp(at[near]) == 0:
            kept[:] = True
            line = np.polyfit(at, values, 1)
            break
        if np.array_equal(near, kept):
            break
        kept = near
        line = np.polyfit(at[kept], values[kept], 1)
    runs = np.polyval(line, at)
    explains = plain if kept.all() else squared_correlation(at[kept], values[kept])
    scatter = median_absolute_deviation(values / runs) if runs.min() > 0 else math.nan
    return Line(0.0 if explains is None else explains, ~kept, scatter)


def course(values: ArrayLike) -> Float64:
    """The running median of a series, over :data:`AROUND` values: what is usual at each place.

    Before its first and behind its last value it goes on as a line (:func:`_going_on`), or at a start that fades the
    median would be that of steps which come later, and all steps of the start would lie above it.

    It follows a change of level at once and a drift with it, and single values do not move it (Tukey, *Exploratory Data
    Analysis*, 1977). A median of all values lies between two levels, and above the one half of a drift. Values that are
    not known (NaN) count as the median of the others; a series of none but these is 0 throughout. Up to half as many
    have one median.
    """
    series = np.asarray(values, dtype=np.float64)
    known = np.isfinite(series)
    if not known.any():
        return np.zeros(series.size)
    if not known.all():
        series = np.where(known, series, float(np.median(series[known])))
    if series.size <= AROUND // 2:
        return np.full(series.size, float(np.median(series)))
    beside = AROUND // 2
    padded = np.concatenate([_going_on(series[: beside + 1])[::-1], series, _going_on(series[: -beside - 2 : -1])])
    usual: Float64 = ndimage.median_filter(padded, size=AROUND)[beside:-beside]
    return usual


def _going_on(end: Float64) -> Float64:
    """What comes beyond the end of a series whose last values, that one first, these are: one value less of them.

    Their line (Theil and Sen's slope) drawn on, with their own scatter around it, mirrored at the end.
    """
    slope = theil_sen_slope(end)
    steps = np.arange(1, end.size)
    goes_on: Float64 = end[1:] - 2 * slope * steps
    return goes_on


def excess(values: ArrayLike) -> Float64:
    """How far each value lies above what is usual around it; NaN where it is not known."""
    above: Float64 = np.asarray(values, dtype=np.float64) - course(values)
    return above


def relative_excess(step_times: ArrayLike) -> Float64:
    """The same as a part of what is usual there; 0 where that is 0."""
    times = np.asarray(step_times, dtype=np.float64)
    usual = course(times)
    parts: Float64 = np.divide(times - usual, usual, out=np.zeros_like(usual), where=usual > 0)
    return parts


def outliers_among(step_times: ArrayLike) -> Bools:
    """Which steps took much longer than those around them.

    By more than five scaled median absolute deviations and by more than a quarter: the first alone fires on very quiet
    series, the second alone on noisy ones. Both are parts of what is usual around the step: a step that has become
    twice as long scatters by twice as much.
    """
    parts = relative_excess(step_times)
    far: Bools = parts > max(MANY_DEVIATIONS * median_absolute_deviation(parts), LEAST_EXCESS)
    return far


@dataclass(frozen=True)
class Change:
    """How the level of a series changed, once: ``before`` and ``after`` are medians, in the unit of the series.

    ``at`` is the position of the first value of the new level; None where the level changed little by little, by
    ``per_value`` from one value to the next (its two ends are then those of the line). ``explains`` is the part of how
    the running median varies that this describes.
    """

    before: float
    after: float
    at: int | None
    explains: float
    per_value: float = 0.0

    @property
    def rise(self) -> float:
        """What it changed by, as a part of what it was before."""
        return self.after / self.before - 1


#: Either side of a change of level has so many values at least, and this part of all.
LEAST_SIDE, LEAST_SIDE_PART = 10, 0.05

#: Two levels are told where they leave so much of what a line leaves: they have a parameter more.
SO_MUCH_BETTER = 0.5

#: Two levels, or a line, explain so much more of the course than its mean does, or neither is a description of it.
DESCRIBES = 0.7


def change_of(step_times: ArrayLike) -> Change | None:
    """The one change of level, or the line, that describes how a positive series went; None where neither does.

    Both are fitted to the running median by least squares, a change of level at every place in turn. Of how the running
    median varies the better one has to explain at least :data:`DESCRIBES`; two levels are preferred to a line where
    they leave clearly less (:data:`SO_MUCH_BETTER`).
    """
    times = np.asarray(step_times, dtype=np.float64)
    n, side = times.size, max(LEAST_SIDE, int(LEAST_SIDE_PART * times.size))
    if n < 2 * side:
        return None
    usual = course(times)
    around = usual - usual.mean()
    varies = float(np.dot(around, around))
    if varies <= n * (1e-9 * float(usual.mean())) ** 2:
        return None
    places = np.arange(side, n - side + 1)
    sums = np.cumsum(around)[places - 1]  # of the left side; the right side's is its opposite
    by_levels = sums**2 * (1 / places + 1 / (n - places))
    best = int(np.argmax(by_levels))
    steps = np.arange(n) - (n - 1) / 2
    by_line = float(np.dot(steps, around)) ** 2 / float(np.dot(steps, steps))
    if max(float(by_levels[best]), by_line) < DESCRIBES * varies:
        return None
    if varies - float(by_levels[best]) > SO_MUCH_BETTER * (varies - by_line):
        slope = theil_sen_slope(usual)
        middle = float(np.median(usual - slope * steps))
        ends = middle + slope * steps[0], middle + slope * steps[-1]
        return Change(*ends, None, by_line / varies, slope) if min(ends) > 0 else None
    at = int(places[best])
    before, after = float(np.median(times[:at])), float(np.median(times[at:]))
    return Change(before, after, at, float(by_levels[best]) / varies) if min(before, after) > 0 else None


def start_beyond_rest(step_times: ArrayLike) -> Interval:
    """How much longer steps are in the first third than in the last half, as a part of that, with its 95 % interval.

    By the medians of ten equal blocks, three of them and five, which neither stalls nor a rhythm move; and by the
    scatter of the last five alone, for a start that fades is no scatter (Student's t). Bursts of long steps are.
    """
    blocks = np.array_split(np.asarray(step_times, dtype=np.float64), BATCHES)
    medians = np.array([float(np.median(block)) for block in blocks])
    start, rest = medians[:3], medians[-5:]
    half = student_quantile(4) * float(rest.std(ddof=1)) * math.sqrt(1 / 3 + 1 / 5)
    value = float(start.mean() - rest.mean())
    return Interval(value, value - half, value + half, medians.size).scaled(1 / float(rest.mean()))
