"""Whether a series rises all along, as what is gone through whole and grows in each step makes it, and what that costs.

The lower quartiles of ten equal blocks follow a course that neither stalls nor a rhythm move, nor other programs' load
as long as a quarter of a block is free of it. A parabola through them holds what grows in proportion to the steps and
what grows ever faster; the block that lies farthest from it is left out, for one that was disturbed throughout.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perf_diagnostics.batch_means import BATCHES, widening
from perf_diagnostics.diagnose.statistics.intervals import Interval, student_quantile
from perf_diagnostics.records import Float64

#: So many values make a block at least: the median of fewer is moved by single ones.
LEAST_IN_BLOCK = 6

#: So much of how the medians vary the parabola has to explain: one change of level leaves more.
EXPLAINS = 0.85

#: At its end it still has to rise at this part of its mean pace, for what fills up or settles does not go on; and at
#: its beginning fall at no more than this part.
GOES_ON, FALLS = 0.25, 0.25

#: Of the ten blocks one is left out, and the parabola has three coefficients.
_DEGREES = BATCHES - 1 - 3


@dataclass(frozen=True)
class Rising:
    """How a series rose, in its own unit: from ``first`` to ``last``, by ``per_value`` from one value to the next.

    ``above`` is how far all values lie above the first one, on average.
    """

    first: float
    last: float
    per_value: float
    above: Interval


def rising(values: ArrayLike, *, least_in_block: int = LEAST_IN_BLOCK) -> Rising | None:
    """How a series of shape ``(n,)`` rises, all along and little by little; None where it does not surely do so.

    None of it is negative. Surely: the 95 % interval of how far its mean lies above the first value excludes 0, by
    Student's t on what the parabola leaves, widened by its correlation. Little by little: two levels do not describe
    the blocks better.

    Args:
        values: shape ``(n,)``.
        least_in_block: so many make one of ten blocks at least; one is enough where each value is a mean or a sum.
    """
    series = np.asarray(values, dtype=np.float64)
    n = series.size
    if n < least_in_block * BATCHES:
        return None
    blocks = np.array_split(series, BATCHES)
    levels = np.array([_level(block) for block in blocks])
    at = np.array([float(block.mean()) for block in np.array_split(np.arange(n) / (n - 1), BATCHES)])
    fits = [_parabola(np.delete(at, out), np.delete(levels, out)) for out in range(BATCHES)]
    fitted, left, inverse = min(fits, key=lambda fit: float(fit[1] @ fit[1]))
    _, slope, bend = (float(one) for one in fitted)
    rise = slope + bend
    if not rise > 0 or slope + 2 * bend < GOES_ON * rise or slope < -FALLS * rise:
        return None
    unexplained = float(left @ left)
    varies = unexplained + float(np.var(slope * at + bend * at**2)) * (BATCHES - 1)
    if unexplained > (1 - EXPLAINS) * varies or unexplained >= _of_two_levels(levels):
        return None
    mean = np.array([0.0, 1 / 2, 1 / 3])  # of the parabola, above its value at 0, the first one; 1 is the last
    error = math.sqrt(unexplained / _DEGREES * float(mean @ inverse @ mean)) * widening(left)
    half = student_quantile(_DEGREES) * error
    if float(mean @ fitted) - half <= 0:
        return None
    # What cannot be negative begins at 0 at least, and at what the first block shows at most.
    first = min(max(0.0, float(fitted[0])), float(levels[0]))
    last, whole = float(fitted.sum()), float(fitted[0] + mean @ fitted)
    # Scatter that grows with the level puts the quartiles below the middle: the medians may be what the rise costs.
    most = max(whole, float(np.mean([np.median(block) for block in blocks])))
    above = Interval(whole - first, max(0.0, whole - first - half), min(most, most - first + half), n)
    return Rising(first, last, (last - first) / (n - 1), above)


def _level(block: Float64) -> float:
    """The lower quartile; of few values, of which none tells what undisturbed ones are, the median."""
    return float(np.quantile(block, 0.25 if block.size >= LEAST_IN_BLOCK else 0.5))


def _parabola(at: Float64, levels: Float64) -> tuple[Float64, Float64, Float64]:
    """Its coefficients by least squares, from the constant on, what it leaves, and the inverse of the normal matrix."""
    design = np.column_stack([np.ones(at.size), at, at**2])
    inverse = np.linalg.inv(design.T @ design)
    fitted = inverse @ design.T @ levels
    return fitted, levels - design @ fitted, inverse


def _of_two_levels(levels: Float64) -> float:
    """The least sum of squares that two levels leave, without the one that lies farthest from its own."""
    found = []
    for cut in range(1, levels.size):
        beside = np.concatenate([(side - side.mean()) ** 2 for side in (levels[:cut], levels[cut:])])
        found.append(float(beside.sum() - beside.max()))
    return min(found)
