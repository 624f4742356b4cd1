"""How the time of a step grows with its batch: a fixed cost a step plus a cost a sample, or a refusal to say so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.statistics.intervals import Interval, student_quantile
from perf_diagnostics.records import Float64, Phase

#: A line through fewer points, or over a narrower range of batches, cannot separate the two costs.
LEAST_POINTS = 4
LEAST_SPAN = 8.0

#: The largest relative error of an accepted fit. On 90 published batch-size sweeps (milabench) the median of the
#: relative errors is 3.8 % and their 90th percentile 10.5 %.
LARGEST_ERROR = 0.15

#: Below this largest error it does not matter whether the errors still show a pattern.
HARMLESS_ERROR = 0.05

SIGNAL = "batch_size_fit"


@dataclass(frozen=True)
class LinearCost:
    """``seconds = overhead_s + per_sample_s * batch`` over the measured batches, and nowhere else.

    ``overhead_s`` (s a step) and ``per_sample_s`` (s a sample) are never negative; ``worst_error`` is the largest
    relative error over the points. ``covariance`` is that of the two estimates.
    """

    overhead_s: Interval
    per_sample_s: Interval
    worst_error: float
    batches: tuple[float, ...]
    covariance: Float64

    @property
    def half_batch(self) -> float | None:
        """The batch at which half of the step is overhead (``a / b``); None where it lies outside what was measured."""
        if self.per_sample_s.value == 0:
            return None
        half = self.overhead_s.value / self.per_sample_s.value
        return half if min(self.batches) <= half <= max(self.batches) else None

    def overhead_share(self, batch: float) -> Interval:
        """The part of a step of ``batch`` samples that is overhead, ``a / (a + b * batch)``, by the delta method.

        Raises:
            ValueError: ``batch`` lies outside the measured batches. From the three smallest batches of the 90
                published sweeps, throughput at the largest is over-predicted by 12.6 % (median) and 80 % (p90).
        """
        if not min(self.batches) <= batch <= max(self.batches):
            raise ValueError(f"Batch {batch} lies outside the measured {min(self.batches)} to {max(self.batches)}.")
        a, b, n = self.overhead_s.value, self.per_sample_s.value, len(self.batches)
        seconds = a + b * batch
        slope = np.array([b * batch, -a * batch]) / seconds**2
        half = student_quantile(n - 2) * math.sqrt(max(0.0, float(slope @ self.covariance @ slope)))
        share = a / seconds
        return Interval(share, share - half, share + half, n).within(0.0, 1.0)


def fit_cost(
    batches: ArrayLike, seconds: ArrayLike, *, largest_error: float = LARGEST_ERROR, noun: str = "sample"
) -> LinearCost:
    """Fit the cost of a step to measured step times, both of shape ``(points,)``; batches in samples (or tokens).

    Method: least squares of the *relative* errors with both costs held at 0 or above, so that a small batch counts
    as much as a large one; intervals by Student's t on the residuals. After DeepView's ``t = slope * batch + bias``
    (Yu et al., UIST 2020, "Skyline"), over all measured batches.

    Raises:
        NotMeasured: there are too few points, or a straight line does not describe them.
    """
    x, t = np.asarray(batches, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    _require_points(x)
    free, covariance = _free_fit(x, t)
    # A clearly negative overhead means that samples get dearer as the batch grows; no line through 0 tells why.
    reach = student_quantile(x.size - 2) * np.sqrt(np.diag(covariance))
    if free[0] + reach[0] < 0:
        raise NotMeasured(
            SIGNAL, "a step's time grows faster than its batch, so no fixed cost can be separated from it"
        )
    _require_span(x)
    a, b = _held_at_zero(x, t, 1 / t, free)
    errors = (a + b * x) / t - 1
    worst = float(np.abs(errors).max())
    if worst > largest_error:
        raise NotMeasured(
            SIGNAL,
            f"a fixed cost and a cost a {noun} miss the measured step times by up to {worst:.0%} "
            f"(accepted: {largest_error:.0%})",
        )
    if worst > HARMLESS_ERROR and _has_pattern(errors):
        raise NotMeasured(SIGNAL, f"the step time bends: errors of up to {worst:.0%} change sign too rarely for chance")
    overhead = Interval(a, max(0.0, a - float(reach[0])), a + float(reach[0]), x.size)
    per_sample = Interval(b, max(0.0, b - float(reach[1])), b + float(reach[1]), x.size)
    return LinearCost(overhead, per_sample, worst, tuple(float(v) for v in x), covariance)


def overhead_by_phase(batches: ArrayLike, seconds: ArrayLike, phases: Mapping[Phase, ArrayLike]) -> dict[Phase, float]:
    """The fixed cost of each phase in s a step: the same fit, with the step's own weights, phase by phase.

    With equal weights the fixed costs of all phases add up to that of the step, as long as none is held at 0.
    """
    x, t = np.asarray(batches, dtype=np.float64), np.asarray(seconds, dtype=np.float64)
    found: dict[Phase, float] = {}
    for phase, values in phases.items():
        y = np.asarray(values, dtype=np.float64)
        found[phase] = float(_held_at_zero(x, y, 1 / t, _solve(x, y, 1 / t))[0])
    return found


def _require_points(batches: Float64) -> None:
    different = np.unique(batches).size
    if different < LEAST_POINTS:
        sizes = "size was" if different == 1 else "sizes were"
        raise NotMeasured(
            SIGNAL, f"{different} batch {sizes} measured; the fixed cost of a step needs at least {LEAST_POINTS}"
        )


def _require_span(batches: Float64) -> None:
    span = float(batches.max() / batches.min())
    if span < LEAST_SPAN:
        raise NotMeasured(
            SIGNAL,
            f"the measured batch sizes span a factor of {span:.3g}; the fixed cost of a step needs at least "
            f"{LEAST_SPAN:.0f}",
        )


def _free_fit(x: Float64, t: Float64) -> tuple[Float64, Float64]:
    """Weighted least squares without bounds, and the covariance of the two costs from the residuals."""
    solution = _solve(x, t, 1 / t)
    design = np.column_stack([1 / t, x / t])
    errors = design @ solution - 1
    variance = float(errors @ errors) / (x.size - 2)
    covariance: Float64 = np.asarray(variance * np.linalg.inv(design.T @ design), dtype=np.float64)
    return solution, covariance


def _solve(x: Float64, y: Float64, weights: Float64) -> Float64:
    design = np.column_stack([weights, x * weights])
    solution: Float64 = np.asarray(np.linalg.lstsq(design, y * weights, rcond=None)[0], dtype=np.float64)
    return solution


def _held_at_zero(x: Float64, y: Float64, weights: Float64, free: Float64) -> tuple[float, float]:
    """The best pair of costs of which none is negative: with two unknowns, the best of three closed forms."""
    a, b = float(free[0]), float(free[1])
    if a >= 0 and b >= 0:
        return a, b
    square = weights**2
    only_slope = max(0.0, float(np.sum(x * y * square) / np.sum(x * x * square)))
    only_fixed = max(0.0, float(np.sum(y * square) / np.sum(square)))
    candidates = ((0.0, only_slope), (only_fixed, 0.0))
    return min(candidates, key=lambda pair: float(np.sum(((pair[0] + pair[1] * x - y) * weights) ** 2)))


def _has_pattern(errors: Float64) -> bool:
    """Whether the signs of the errors change too rarely for chance: Wald-Wolfowitz runs test, exact, at 5 %."""
    signs = errors[errors != 0] > 0
    above, below = int(signs.sum()), int((~signs).sum())
    if above == 0 or below == 0:
        return False
    runs = 1 + int(np.count_nonzero(signs[1:] != signs[:-1]))
    ways = sum(_arrangements(above, below, count) for count in range(2, runs + 1))
    return ways / math.comb(above + below, above) <= 0.05


def _arrangements(above: int, below: int, runs: int) -> int:
    """In how many orders ``above`` pluses and ``below`` minuses form exactly ``runs`` runs."""
    half, odd = divmod(runs, 2)
    if not odd:
        return 2 * math.comb(above - 1, half - 1) * math.comb(below - 1, half - 1)
    return math.comb(above - 1, half) * math.comb(below - 1, half - 1) + math.comb(above - 1, half - 1) * math.comb(
        below - 1, half
    )
