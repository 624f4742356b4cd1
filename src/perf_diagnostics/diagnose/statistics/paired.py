"""Pairs of processes that differ in one thing: the ratio of the two with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from perf_diagnostics.diagnose.statistics.intervals import Interval, student_quantile


def paired_ratio(pairs: Sequence[tuple[float, float]]) -> Interval:
    """The second of each pair over the first, with its 95 % interval; all values above 0.

    Student's t on the differences of the logarithms, one difference a pair: what both members of a pair share (a
    machine that is slow just now, the order of the data) cancels. Two pairs are needed for an interval.

    >>> paired_ratio([(2.0, 1.0)])
    Interval(value=0.5, low=None, high=None, n=1)

    Raises:
        ValueError: no pair, or a value that is not above 0.
    """
    values = np.asarray(pairs, dtype=np.float64).reshape(-1, 2)
    if not values.size:
        raise ValueError("No pair has no ratio.")
    if not (values > 0).all():
        raise ValueError("A value that is not above 0 has no logarithm, so there is no ratio.")
    differences = np.log(values[:, 1] / values[:, 0])
    n, mean = differences.size, float(differences.mean())
    if n < 2:
        return Interval(math.exp(mean), None, None, n)
    half = student_quantile(n - 1) * float(differences.std(ddof=1)) / math.sqrt(n)
    return Interval(math.exp(mean), math.exp(mean - half), math.exp(mean + half), n)
