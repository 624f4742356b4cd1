"""How the times of single steps spread: the median, the median distance from it, and percentiles, beside the mean."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perf_diagnostics.records import Float64

#: A percentile is told where at least so many steps are expected beyond it; else it is little more than the extreme.
BEYOND = 1.0


@dataclass(frozen=True)
class Spread:
    """Times of ``n`` steps, in s. ``mad_s`` is the median distance from the median, as it is (not scaled to anything).

    A percentile is None where there are too few steps for it: the 5th and 95th take 20, the 99th takes 100.
    """

    n: int
    median_s: float
    mad_s: float
    p5_s: float | None
    p95_s: float | None
    p99_s: float | None


def spread_of(seconds: ArrayLike) -> Spread:
    """The spread of a series of step times, shape ``(n,)``, in s.

    Every step counts, also those that took long for a reason that is known.

    Raises:
        ValueError: there is no step.
    """
    times = np.asarray(seconds, dtype=np.float64)
    if not times.size:
        raise ValueError("No step has no spread.")
    median = float(np.median(times))
    p5, p95, p99 = (_percentile(times, part) for part in (5, 95, 99))
    return Spread(times.size, median, float(np.median(np.abs(times - median))), p5, p95, p99)


def _percentile(times: Float64, part: int) -> float | None:
    rarer = min(part, 100 - part)
    return float(np.percentile(times, part)) if times.size * rarer >= 100 * BEYOND else None
