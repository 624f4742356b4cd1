"""How steady a series of step times is: trend over its length, noise, and time lost in single long steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perf_diagnostics.diagnose.statistics.intervals import median_absolute_deviation, theil_sen_slope

#: See :func:`outlier_bar`; from a pilot of planted stalls (43 % of the time lost, 2.5 % in 11 of 13 controls).
MANY_DEVIATIONS = 5.0
LEAST_EXCESS = 0.25


@dataclass(frozen=True)
class Drift:
    """A trend of the step time: ``rise`` over the whole series as a share of the median (negative: it fell).

    ``monotone`` says whether the medians of the three thirds rise or fall throughout, ``last_over_first`` compares
    the outer two.
    """

    rise: float
    monotone: bool
    last_over_first: float


def drift(step_times: ArrayLike) -> Drift:
    """The trend of at least three step times: Theil-Sen slope times their number, over the median."""
    times = np.asarray(step_times, dtype=np.float64)
    first, middle, last = (float(np.median(third)) for third in np.array_split(times, 3))
    rise = theil_sen_slope(times) * times.size / float(np.median(times))
    return Drift(rise, monotone=first < middle < last or first > middle > last, last_over_first=last / first)


def relative_noise(step_times: ArrayLike) -> float:
    """The spread of the middle of the step times: scaled median absolute deviation over the median."""
    times = np.asarray(step_times, dtype=np.float64)
    return median_absolute_deviation(times) / float(np.median(times))


def outlier_bar(step_times: ArrayLike) -> float:
    """How far above the median a step must lie to be an outlier.

    By more than five scaled median absolute deviations and by more than a quarter of the median: the first alone fires
    on very quiet series, the second alone on noisy ones.
    """
    times = np.asarray(step_times, dtype=np.float64)
    return max(MANY_DEVIATIONS * median_absolute_deviation(times), LEAST_EXCESS * float(np.median(times)))


def outlier_lost_share(step_times: ArrayLike) -> float:
    """The share of all time that outliers took beyond the median."""
    times = np.asarray(step_times, dtype=np.float64)
    excess = times - float(np.median(times))
    return float(excess[excess > outlier_bar(times)].sum() / times.sum())
