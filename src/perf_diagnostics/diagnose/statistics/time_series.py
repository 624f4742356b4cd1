"""Repetition in a series of steps: how alike a series is to itself some steps later, and events at equal distances."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perf_diagnostics.batch_means import widening
from perf_diagnostics.diagnose.statistics.intervals import Interval, event_interval, ratio_interval, student_quantile
from perf_diagnostics.records import Float64

#: Fewer repetitions are no rhythm: three events stand at equal distances by chance in one of some hundred cases.
LEAST_CYCLES = 3

#: Up to this share of the steps, losses are events that can be counted; beyond it every batch of steps has some.
RARE = 0.2

#: A beat is heard if it lost this part of the mean beat: small losses at every step are no rhythm of the large ones.
HEARD = 0.1

#: So much of what is lost has to lie on the beat, and so many of the beats have to be heard.
ON_THE_BEAT = 0.8


@dataclass(frozen=True, eq=False)
class Period:
    """Events every ``steps`` steps; ``part`` of everything that is lost lies on this beat.

    ``beats`` are the places in the series of the steps on it, shape ``(beats,)``, ascending.
    """

    steps: int
    part: float
    beats: NDArray[np.intp]


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


def period_of(lost: ArrayLike, numbers: NDArray[np.intp] | None = None) -> Period | None:
    """The distance at which losses return, from what each step lost (0: nothing); None where there is no rhythm.

    At least three beats, at least 80 % of what is lost on them, and a tenth of their mean lost on at least 80 % of
    them. The longest such distance is the rhythm: what returns every 40 steps also does so every 20, with every second
    beat missing.

    Args:
        lost: what each step lost, shape ``(steps,)``.
        numbers: of these steps in the training, ascending, shape ``(steps,)``; None: they follow each other. Where
            steps between them are left out (warm-up again, a step that was looked through), the beat goes on.
    """
    series = np.asarray(lost, dtype=np.float64)
    total, struck = float(series.sum()), np.flatnonzero(series)
    if not total > 0:
        return None
    at = np.arange(series.size) if numbers is None else numbers - numbers[0]
    losses, struck_at, size = series[struck], at[struck], int(at[-1]) + 1
    # A beat is one step: so many of them, the heaviest, it takes to hold 80 % of what is lost, and at least 80 % of the
    # beats are among the steps that lost something. Few distances lie between the two, however long the series is.
    needed = 1 + int(np.searchsorted(np.cumsum(np.sort(losses)[::-1]), ON_THE_BEAT * total))
    longest = min(size // LEAST_CYCLES, (size - 1) // max(1, needed - 1))
    shortest = max(2, int(ON_THE_BEAT * series.size / struck.size) - 1)
    for steps in range(longest, shortest - 1, -1):
        offsets, which = np.unique(struck_at % steps, return_inverse=True)
        sums = np.bincount(which, weights=losses)
        best = int(np.argmax(sums))
        if sums[best] < ON_THE_BEAT * total:
            continue
        beats = np.flatnonzero(at % steps == offsets[best])
        if beats.size < LEAST_CYCLES:
            continue
        heard = np.count_nonzero(losses[which == best] > HEARD * float(sums[best]) / beats.size)
        if heard >= ON_THE_BEAT * beats.size:
            return Period(steps, float(sums[best]) / total, beats)
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


def lost_ratio(lost: ArrayLike, wall: ArrayLike, period: Period | None = None) -> Interval:
    """What some steps lost, over all time: the interval by whole cycles, by events, or by batches of steps.

    Losses with a rhythm are compared round by round (:func:`_of_beats`). Of others, what a
    fifth of the steps lose beyond the rest are events that come by chance, and are counted (:func:`event_interval`);
    what the rest loses, too, is in every batch of steps (a collector's short pauses beside its long ones). The
    intervals of both parts are put together as those of independent sums (MOVER: Zou & Donner, Statistics in Medicine
    27, 2008).

    Args:
        lost: what each step lost, 0 where it lost nothing; what a step won is left out.
        wall: how long each step took, in the same unit.
        period: the rhythm of the losses, if they have one.

    Raises:
        ValueError: see :func:`ratio_interval`.
    """
    x, w = np.maximum(0.0, np.asarray(lost, dtype=np.float64)), np.asarray(wall, dtype=np.float64)
    if period is not None:
        return _of_beats(x, w, period.beats)
    common = np.minimum(x, float(np.quantile(x, 1 - RARE, method="lower"))) if x.size else x
    rare = event_interval(x - common, w)
    if not common.any():
        return rare
    base = ratio_interval(common, w)
    if base.low is None or base.high is None or rare.low is None or rare.high is None or not rare.value:
        return base if not rare.value else Interval(base.value + rare.value, None, None, x.size)
    value = base.value + rare.value
    down = math.hypot(base.value - base.low, rare.value - rare.low)
    up = math.hypot(base.high - base.value, rare.high - rare.value)
    return Interval(value, value - down, value + up, x.size)


def _of_beats(lost: Float64, wall: Float64, begins: NDArray[Any]) -> Interval:
    """What is lost over all time where losses have a rhythm: by how much the rounds differ in what they lose.

    How many came is no chance then, and the time is what it was: steps that became twice as long in mid-run make the
    share no less sure, as they would if it were taken round by round. Student's t on the sums of what each round lost,
    widened by their correlation; three equal rounds are enough, of which batches of steps would say nothing.
    """
    rounds, total = np.add.reduceat(lost, begins), float(wall.sum())
    value = float(lost.sum()) / total
    half = student_quantile(rounds.size - 1) * float(rounds.std(ddof=1)) * math.sqrt(rounds.size) / total
    half *= widening(rounds - rounds.mean())
    return Interval(value, value - half, value + half, lost.size)
