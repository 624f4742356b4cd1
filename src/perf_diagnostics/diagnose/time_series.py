"""Repetition in a series of steps: how alike a series is to itself some steps later, and events at equal distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perf_diagnostics.diagnose.statistics import Interval, ratio_interval

#: Fewer repetitions are no rhythm: three events stand at equal distances by chance in one of some hundred cases.
LEAST_CYCLES = 3

#: So much of what is lost has to lie on the beat, and so many of the beats have to be heard.
ON_THE_BEAT = 0.8


@dataclass(frozen=True)
class Period:
    """Events every ``steps`` steps, the first at ``offset``; ``part`` of everything that is lost lies on this beat."""

    steps: int
    offset: int
    part: float


def autocorrelation(values: ArrayLike, lag: int) -> float | None:
    """The correlation of a series with itself ``lag`` steps later; None where it does not vary or is too short.

    The usual (biased) estimate: products of neighbours over all squares, so that it never exceeds 1.
    """
    series = np.asarray(values, dtype=np.float64)
    if not 0 < lag < series.size:
        return None
    around = series - series.mean()
    energy = float(np.dot(around, around))
    return None if energy == 0 else float(np.dot(around[lag:], around[:-lag])) / energy


def period_of(lost: ArrayLike) -> Period | None:
    """The distance at which losses return, from what each step lost (0: nothing); None where there is no rhythm.

    At least three beats, at least 80 % of what is lost on them, and something lost on at least 80 % of them. The
    longest such distance is the rhythm: what returns every 40 steps also does so every 20, with every second beat
    missing.
    """
    series = np.asarray(lost, dtype=np.float64)
    total = float(series.sum())
    if not total > 0:
        return None
    for steps in range(series.size // LEAST_CYCLES, 1, -1):
        positions = np.arange(series.size) % steps
        sums = np.bincount(positions, weights=series, minlength=steps)
        offset = int(np.argmax(sums))
        beats = series[offset::steps]
        if beats.size < LEAST_CYCLES or sums[offset] < ON_THE_BEAT * total:
            continue
        if float(np.mean(beats > 0)) >= ON_THE_BEAT:
            return Period(steps, offset, float(sums[offset]) / total)
    return None


def cycle_ratio(numerators: ArrayLike, denominators: ArrayLike, begins: NDArray[Any]) -> Interval:
    """The ratio of two sums over whole cycles, each from one of the positions ``begins`` up to the next.

    What returns with a rhythm makes batches of steps unequal, and an interval from them far too wide; whole cycles are
    alike and independent (the regenerative method: Crane & Iglehart, Operations Research 23, 1975). With fewer than
    three whole cycles the interval is that of the single steps.

    Raises:
        ValueError: see :func:`ratio_interval`.
    """
    x, w = np.asarray(numerators, dtype=np.float64), np.asarray(denominators, dtype=np.float64)
    if begins.size <= LEAST_CYCLES:
        return ratio_interval(x, w)
    whole = slice(int(begins[0]), int(begins[-1]))
    edges = begins[:-1] - begins[0]
    found = ratio_interval(np.add.reduceat(x[whole], edges), np.add.reduceat(w[whole], edges))
    return Interval(found.value, found.low, found.high, x.size)
