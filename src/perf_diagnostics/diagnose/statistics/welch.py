"""Two groups of processes, one number each: their ratio with its interval, and how sure a difference is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from perf_diagnostics.diagnose.statistics.intervals import Interval, student_quantile
from perf_diagnostics.records import Float64


@dataclass(frozen=True)
class RatioTest:
    """NEW over BASE with its 95 % interval, and the probability of such a difference where there is none.

    ``p_value`` is None, and the interval has no ends, where either side holds fewer than two processes.
    """

    ratio: Interval
    p_value: float | None


def geometric_mean(values: ArrayLike) -> float:
    """The mean on the logarithms: the quotient of two of them is the ratio that :func:`ratio_test` estimates."""
    return float(np.exp(np.log(np.asarray(values, dtype=np.float64)).mean()))


def ratio_test(base: ArrayLike, new: ArrayLike) -> RatioTest:
    """Welch's t test on the logarithms of per-process means, shapes ``(m,)`` and ``(n,)``, all above 0.

    One value a process, whatever its number of steps: steps of one process share its memory layout and its
    neighbours, so pooling them calls most comparisons of equal with equal different (Kalibera & Jones, ISMM 2013).
    On the logarithms a slowdown by a factor and the speed-up by the same factor are equally far from 1, and the
    interval of the ratio comes without an approximation. Degrees of freedom: Welch–Satterthwaite.

    Values without any spread on both sides (bytes that an allocator counts are exact) give an interval of no width;
    the difference is then certain or absent.

    Raises:
        ValueError: a side is empty, or a value is not above 0.
    """
    x, y = np.asarray(base, dtype=np.float64), np.asarray(new, dtype=np.float64)
    if not x.size or not y.size:
        raise ValueError(f"{x.size} against {y.size} processes have no ratio.")
    if not ((x > 0).all() and (y > 0).all()):
        raise ValueError("A value that is not above 0 has no logarithm, so there is no ratio.")
    # In units of the first value equal values have the logarithm 0 exactly, and no spread out of rounding.
    u, v = np.log(x / x[0]), np.log(y / x[0])
    difference, n = float(v.mean() - u.mean()), x.size + y.size
    value = math.exp(difference)
    if min(x.size, y.size) < 2:
        return RatioTest(Interval(value, None, None, n), None)
    a, b = _squared_error(u), _squared_error(v)
    if a + b == 0:
        return RatioTest(Interval(value, value, value, n), 1.0 if difference == 0 else 0.0)
    degrees = (a + b) ** 2 / (a**2 / (x.size - 1) + b**2 / (y.size - 1))
    error = math.sqrt(a + b)
    half = student_quantile(degrees) * error
    p_value = 2 * float(special.stdtr(degrees, -abs(difference) / error))
    return RatioTest(Interval(value, math.exp(difference - half), math.exp(difference + half), n), p_value)


def _squared_error(logs: Float64) -> float:
    """The squared standard error of a mean."""
    return 0.0 if np.ptp(logs) == 0 else float(logs.var(ddof=1)) / logs.size


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """The p values, each raised so that below 0.05 the chance of even one false alarm among them all is below 5 %.

    Holm's step-down method (Scandinavian Journal of Statistics 6, 1979), which needs no independence.

    >>> holm([0.01, 0.04, 0.03])
    (0.03, 0.06, 0.06)
    """
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, index in enumerate(order):
        least = max(least, min(1.0, (len(order) - rank) * p_values[index]))
        adjusted[index] = least
    return tuple(adjusted)
