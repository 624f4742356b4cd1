"""Sets of time: disjoint, sorted, half-open intervals in whole nanoseconds, and their exact algebra in O(n log n)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from perf_diagnostics.records import Int64

_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True, eq=False)
class Times:
    """The union of disjoint intervals ``[start, end)``, ascending, none empty and none touching the next."""

    start: Int64
    end: Int64

    @staticmethod
    def none() -> Times:
        return Times(_NONE, _NONE)

    @staticmethod
    def union(start: Int64, end: Int64, *, bridging: int = 0) -> Times:
        """The union of any intervals, shapes ``(n,)``; gaps of up to ``bridging`` ns between them are filled."""
        some = end > start
        start, end = start[some], end[some]
        if not start.size:
            return Times.none()
        order = np.argsort(start, kind="stable")
        start, reach = start[order], np.maximum.accumulate(end[order])
        opens = np.concatenate(([True], start[1:] > reach[:-1] + bridging))
        closes = np.concatenate((opens[1:], [True]))
        return Times(start[opens], reach[closes])

    def __len__(self) -> int:
        return int(self.start.size)

    @property
    def total_ns(self) -> int:
        return int((self.end - self.start).sum())

    def before(self, at: Int64) -> Int64:
        """How much of this set lies before each of the points ``at``, in ns."""
        if not len(self):
            return np.zeros(np.shape(at), np.int64)
        lengths = np.concatenate(([0], np.cumsum(self.end - self.start)))
        index = np.searchsorted(self.start, at, side="right")
        last = np.maximum(index - 1, 0)
        # Of the interval that the point lies in, what comes after the point does not count.
        beyond = np.where(index > 0, np.maximum(self.end[last] - at, 0), 0)
        within: Int64 = lengths[index] - beyond
        return within

    def within(self, windows: Times) -> Int64:
        """How much of this set lies in each window, in ns."""
        return self.before(windows.end) - self.before(windows.start)

    def __and__(self, other: Times) -> Times:
        return _combined(self, other, both=True)

    def __sub__(self, other: Times) -> Times:
        return _combined(self, other, both=False)

    def __or__(self, other: Times) -> Times:
        return Times.union(np.concatenate((self.start, other.start)), np.concatenate((self.end, other.end)))

    def containing(self, at: Int64, *, slack: int = 0) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """For each point the index of the interval around it (its end included, plus ``slack``), or -1."""
        if not len(self):
            return np.full(np.shape(at), -1, np.intp)
        index = np.searchsorted(self.start, at, side="right") - 1
        inside = (index >= 0) & (at <= self.end[np.maximum(index, 0)] + slack)
        return np.where(inside, index, -1)


def _combined(one: Times, other: Times, *, both: bool) -> Times:
    """What lies in ``one`` and in ``other``, or in ``one`` and not in ``other``."""
    if not len(one):
        return one
    if not len(other):
        return Times.none() if both else one
    at = np.concatenate((one.start, one.end, other.start, other.end))
    step_one = np.concatenate((np.ones(len(one)), -np.ones(len(one)), np.zeros(2 * len(other)))).astype(np.int8)
    step_other = np.concatenate((np.zeros(2 * len(one)), np.ones(len(other)), -np.ones(len(other)))).astype(np.int8)
    order = np.argsort(at, kind="stable")
    at = at[order]
    in_one = np.cumsum(step_one[order], dtype=np.int64)[:-1] > 0
    in_other = np.cumsum(step_other[order], dtype=np.int64)[:-1] > 0
    chosen = in_one & (in_other if both else ~in_other)
    # Points that coincide leave empty pieces, which the union drops; pieces that touch are joined again.
    return Times.union(at[:-1][chosen], at[1:][chosen])
