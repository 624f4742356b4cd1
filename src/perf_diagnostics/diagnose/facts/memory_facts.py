"""How memory behaved over a trial: growth from step to step, its line over batch sizes, pages read from disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts, ask
from perf_diagnostics.diagnose.statistics.intervals import squared_correlation, theil_sen_slope
from perf_diagnostics.records import Float64

#: Memory is read every 50 ms at most; fewer readings, or fewer steps, show no trend.
LEAST_READINGS = 20
LEAST_STEPS = 50

#: A rise is looked at in so many stretches, and has to go on in this part of them where batches differ in length: what
#: is kept is kept at every step, while allocators leap when a batch is longer than all before. A healthy transformer
#: rose by 15 % in 100 steps, in five of nine stretches. With equal batches a leak may leap as well (by 10 MB, seen).
STRETCHES = 10
LEAST_RISING = 0.75

#: A rise lasts if its second half goes on at this part of its first half's pace. Of rises that fill up exponentially,
#: ``1 - exp(-t / tau)``, the halves' paces are as ``exp(-T / (2 tau))``: those that slow down within 1.4 trials (T) or
#: less do not last, and what would still come of the others is about as much as was seen, or more. Simulated, 80 MB of
#: which each reading is off by 0.5 MB, in leaps of 1.6 MB: with tau half a trial or a whole one none of 100 rises
#: lasts, whether 66 or 300 are read (at half the pace of the whole, as it was before, all did); with tau two trials all
#: do. The price: leaks in exponentially distributed portions last in 75 to 80, 93 or 94 and 100 of 100 cases (30,
#: 66 and 300 readings; before, in 99 or 100).
LASTS = 0.7

#: A rise is made of leaps that may never come again (an arena of the allocator's, an import, workers that start) if,
#: looked at in so many stretches and without the largest leap, it is made of fewer leaps of equal size than this.
#: Simulated rates are in ``test_jumps_that_do_not_continue_are_no_growth``.
LEAP_STRETCHES = 20
LEAST_LEAPS = 4.5


@dataclass(frozen=True)
class Growth:
    """How memory rose over the steady steps.

    ``rise_bytes`` is the Theil-Sen slope times the readings, ``per_step`` that over the steps. ``monotone`` holds where
    the medians of the thirds rise, ``steady`` where most stretches do (:func:`rising_share`), ``lasting`` where the
    second half rises at :data:`LASTS` of the first half's pace or faster (a cache that fills up does not), ``often``
    where it is more than some leaps (:func:`rises_often`), and ``pullback`` is the deepest fall from a height reached
    before, as a share of it.
    """

    where: str
    readings: int
    median_bytes: float
    rise_bytes: float
    per_step: float
    monotone: bool
    lasting: bool
    steady: bool
    often: bool
    pullback: float


def growth_on(facts: TrialFacts, where: str) -> Growth:
    """The growth of what our allocator holds on the ``device``, or of the process's resident memory on the ``host``.

    Raises:
        NotMeasured: too few steps or readings.
    """
    if facts.steps < LEAST_STEPS:
        raise NotMeasured("steps", f"{facts.steps} steady steps; growth needs at least {LEAST_STEPS}")
    name = "allocated_bytes" if where == "device" else "host_rss_bytes"
    values = facts.finite_column(name)
    if values.size < LEAST_READINGS:
        raise NotMeasured(name, f"{values.size} readings in the steady steps; growth needs at least {LEAST_READINGS}")
    return growth(values, steps=facts.steps, where=where, at=np.flatnonzero(np.isfinite(facts.column(name))))


def growth(values: NDArray[Any], *, steps: int, where: str = "host", at: NDArray[Any] | None = None) -> Growth:
    """The growth of readings, shape ``(readings,)`` in bytes, over ``steps``.

    ``at`` holds the readings' steps; without it they lie evenly. What is kept is kept by the step, and readings may
    lie further apart in one half: the halves' paces are compared by the step.
    """
    series: Float64 = np.asarray(values, dtype=np.float64)
    places = np.arange(series.size) if at is None else at
    slope = theil_sen_slope(series)
    first, middle, last = (float(np.median(third)) for third in np.array_split(series, 3))
    highest = np.maximum.accumulate(series)
    early, late = (
        theil_sen_slope(half) / _spacing(where_read)
        for half, where_read in zip(np.array_split(series, 2), np.array_split(places, 2), strict=True)
    )
    return Growth(
        where=where,
        readings=series.size,
        median_bytes=float(np.median(series)),
        rise_bytes=slope * series.size,
        per_step=slope * series.size / steps,
        monotone=first < middle < last,
        steady=rising_share(series) >= LEAST_RISING,
        often=rises_often(series),
        lasting=slope > 0 and late >= max(LASTS * early, slope / _spacing(places) / 2),
        pullback=float(np.max((highest - series) / np.maximum(highest, 1.0))),
    )


def _spacing(places: NDArray[Any]) -> float:
    """Steps from one reading to the next, on average."""
    return float(places[-1] - places[0]) / max(1, places.size - 1) or 1.0


def rising_share(series: Float64) -> float:
    """In which part of up to ten stretches, of three readings at least, the median rises at half the mean pace."""
    rises = _rises(series, STRETCHES)
    return float(np.mean(rises >= rises.mean() / 2)) if rises.sum() > 0 else 0.0


def rises_often(series: Float64) -> bool:
    """Whether a rise is more than a few leaps: without the largest one it is made of at least :data:`LEAST_LEAPS`.

    Leaps of uneven size count as so many of even size as tell the same (Kish, Survey Sampling, 1965). Of few readings,
    which make fewer stretches, three of four of these have to rise evenly.
    """
    rises = np.sort(np.maximum(0.0, _rises(series, LEAP_STRETCHES)))[:-1]
    if not rises.any():
        return False
    return float(rises.sum() ** 2 / np.dot(rises, rises)) >= min(LEAST_LEAPS, LEAST_RISING * rises.size)


def _rises(series: Float64, stretches: int) -> Float64:
    """By how much the median rises from one of up to so many stretches to the next, of three readings at least."""
    parts = np.array_split(series, max(2, min(stretches, series.size // 3)))
    rises: Float64 = np.diff([float(np.median(part)) for part in parts])
    return rises


def free_bytes(facts: TrialFacts, where: str) -> float:
    """What was free at the peak, in bytes."""
    if where == "device":
        return facts.quantity("device_memory_total") - facts.device_memory_peak
    return facts.quantity("host_memory_total") - facts.host_memory_peak


@dataclass(frozen=True)
class MemoryLine:
    """``bytes = fixed + per_sample * batch``, with the part of the variation that it explains."""

    fixed_bytes: float
    per_sample_bytes: float
    r_squared: float

    def largest_batch(self, room_bytes: float) -> int:
        """The largest batch whose memory stays within ``room_bytes``."""
        return int((room_bytes - self.fixed_bytes) / self.per_sample_bytes)


def memory_line(batches: list[int], peaks: list[float]) -> MemoryLine:
    """Least squares through peaks in bytes over batch sizes.

    Raises:
        NotMeasured: the peaks do not grow with the batch.
    """
    x, y = np.asarray(batches, dtype=np.float64), np.asarray(peaks, dtype=np.float64)
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    explained = squared_correlation(x, y)
    if explained is None or slope <= 0:
        raise NotMeasured("memory_line", "the peak of memory does not grow with the batch")
    return MemoryLine(float(y.mean()) - slope * float(x.mean()), slope, explained)


def fullness(facts: TrialFacts) -> float | None:
    """How full the memory got that a trial works in (0…1): the device's on a device, else the host's."""
    return ask(lambda: facts.device_memory_share if facts.on_accelerator else facts.host_memory_share)


def fault_rate(facts: TrialFacts) -> float:
    """Page faults that had to read from disk, a steady step."""
    if not facts.steps:
        raise NotMeasured("steps", "no steady step")
    return facts.quantity("major_faults") / facts.steps
