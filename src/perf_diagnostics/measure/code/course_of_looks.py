"""Counts looks by stretches of the time, of which there are never many: what a training does early, and what late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Generic, TypeVar

#: How long the stretches are at first, in ns, and how many there are at most; then two become one, so that a training
#: of 12 s and longer is told by 13 to 24.
STRETCH_NS = 500_000_000
MOST_STRETCHES = 24

Way = TypeVar("Way", bound=Hashable)


class CourseOfLooks(Generic[Way]):
    """How often each way to stand somewhere was seen in each stretch; the first one begins with the first look."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._stretch_ns = STRETCH_NS
        self._counts: list[Counter[Way]] = []

    @property
    def stretch_s(self) -> float:
        """How long each stretch is, in s."""
        return self._stretch_ns / 1e9

    def count(self, way: Way, at_ns: int, looks: int) -> None:
        """So many looks at this moment (ns of the looks' clock); one before the first of all belongs to its stretch."""
        began = self._began_ns = at_ns if self._began_ns is None else self._began_ns
        while (stretch := max(0, at_ns - began) // self._stretch_ns) >= MOST_STRETCHES:
            pairs = zip(self._counts[::2], [*self._counts[1::2], Counter[Way]()], strict=False)
            self._counts = [one + other for one, other in pairs]
            self._stretch_ns *= 2
        self._counts.extend(Counter() for _ in range(stretch + 1 - len(self._counts)))
        self._counts[stretch][way] += looks

    def of(self, way: Way) -> tuple[int, ...]:
        """The looks at a way in each stretch so far."""
        return tuple(counts[way] for counts in self._counts)
