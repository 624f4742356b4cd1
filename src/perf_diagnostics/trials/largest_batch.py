"""The search for the largest batch that fits: double until one does not, bisect, and take a margin that is run too."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from perf_diagnostics.errors import InvalidSettings


class Fit(enum.StrEnum):
    """What came of one size. ``fits`` and ``too_large`` go on, the others end the search."""

    FITS = "fits"
    TOO_LARGE = "too_large"
    FAILED = "failed"
    OUT_OF_TIME = "out_of_time"
    INTERRUPTED = "interrupted"

    @property
    def ends(self) -> bool:
        return self not in (Fit.FITS, Fit.TOO_LARGE)


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One size and what came of it.

    Memory is the peak of the trial's processes on the host and of the allocator on the device, in bytes;
    ``samples_per_s`` comes from three steps and is a hint. ``refused`` says that the training has no batch of that
    size, whatever the memory.
    """

    size: int
    fit: Fit
    why: str = ""
    host_peak_bytes: float | None = None
    device_peak_bytes: float | None = None
    samples_per_s: float | None = None
    refused: bool = False


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Where and how closely to search.

    Args:
        start: the first size; doubled from there, or bisected below.
        most: no size above this one is tried; None for no such bound.
        granularity: two sizes so many samples apart are told apart, and closer ones are not.
        resolution: the same as a share of the size; the coarser of the two holds.
        margin: the size to train with is so much below the largest one that ran, for what a longer run adds.
    """

    start: int = 1
    most: int | None = None
    granularity: int = 1
    resolution: float = 0.02
    margin: float = 0.05

    def __post_init__(self) -> None:
        for name, least in (("start", 1), ("granularity", 1)):
            if getattr(self, name) < least:
                raise InvalidSettings(f"{name}={getattr(self, name)} must be at least {least}.")
        if self.most is not None and self.most < self.start:
            raise InvalidSettings(f"The most to try, {self.most}, is less than the size to start with, {self.start}.")
        for name in ("resolution", "margin"):
            if not 0 <= getattr(self, name) < 1:
                raise InvalidSettings(f"{name}={getattr(self, name)} must lie in 0…1, 1 excluded.")

    def apart(self, size: int) -> int:
        """Samples between a size that fits and one that does not, from which no size between them is tried."""
        return max(self.granularity, int(size * self.resolution))


@dataclass(frozen=True)
class LargestBatch:
    """What the search found: every size it tried, in the order in which it did.

    ``recommended`` is the size with the margin, and has run, as ``largest`` has; None where no size fitted or the
    search did not come so far. ``ended_by`` is the attempt that ended it early.
    """

    tried: tuple[Tried, ...]
    recommended: Tried | None = None
    ended_by: Tried | None = None

    @property
    def largest(self) -> Tried | None:
        """The largest size that ran."""
        return max(self._of(Fit.FITS), key=lambda one: one.size, default=None)

    @property
    def too_large(self) -> Tried | None:
        """The smallest size that did not fit; None where the bound came first."""
        return min(self._of(Fit.TOO_LARGE), key=lambda one: one.size, default=None)

    @property
    def fastest(self) -> Tried | None:
        """Of the sizes that ran the one of most samples/s; the largest that fits may be slower."""
        timed = [one for one in self._of(Fit.FITS) if one.samples_per_s is not None]
        return max(timed, key=lambda one: one.samples_per_s or 0.0, default=None)

    def _of(self, fit: Fit) -> Iterable[Tried]:
        return (one for one in self.tried if one.fit is fit)


def search(attempt: Callable[[int], Tried], bounds: Bounds) -> LargestBatch:
    """Find the largest size that fits.

    ``attempt`` is asked once a size, first by doubling and then between the largest that fitted and the smallest that
    did not, until they are no further apart than the bounds tell apart. The size with the margin is attempted like any
    other, and lowered by the margin again should it not fit after all.
    """
    tried: dict[int, Tried] = {}

    def fits(size: int) -> bool:
        if size not in tried:
            tried[size] = attempt(size)
        if tried[size].fit.ends:
            raise _Ended(tried[size])
        return tried[size].fit is Fit.FITS

    recommended: int | None = None
    ended: Tried | None = None
    try:
        low, high = _doubled(fits, bounds)
        if high is not None:
            low = _bisected(fits, low, high, bounds)
        if low:
            recommended = _with_margin(fits, low, bounds)
    except _Ended as end:
        ended = end.tried
    return LargestBatch(tuple(tried.values()), None if recommended is None else tried[recommended], ended)


class _Ended(Exception):
    """An attempt after which there is no use in going on."""

    def __init__(self, tried: Tried) -> None:
        super().__init__(tried.why)
        self.tried = tried


def _doubled(fits: Callable[[int], bool], bounds: Bounds) -> tuple[int, int | None]:
    """The largest size that fitted (0: none) and the first that did not (None: the bound came first)."""
    low, size = 0, bounds.start
    while fits(size):
        low = size
        if size == bounds.most:
            return low, None
        size = 2 * size if bounds.most is None else min(2 * size, bounds.most)
    return low, size


def _bisected(fits: Callable[[int], bool], low: int, high: int, bounds: Bounds) -> int:
    while high - low > bounds.apart(low):
        middle = (low + high) // 2
        if fits(middle):
            low = middle
        else:
            high = middle
    return low


def _with_margin(fits: Callable[[int], bool], largest: int, bounds: Bounds) -> int | None:
    size = max(1, int(largest * (1 - bounds.margin)))
    while not fits(size):  # memory is not the same in every run
        if size == 1:
            return None
        size = max(1, min(size - 1, int(size * (1 - bounds.margin))))
    return size
