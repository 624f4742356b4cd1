"""The arithmetic of axes: round ticks and the positions of values, without drawing anything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

#: About so many ticks stand on an axis.
_TICKS = 5


def nice_step(span: float, target: int) -> float:
    """The round distance of ticks (1, 2, 2.5 or 5 times a power of ten) that makes about ``target`` of them.

    >>> nice_step(100, 5), nice_step(7, 5), nice_step(0.9, 4)
    (20.0, 2.0, 0.25)
    """
    if not (span > 0 and math.isfinite(span)) or target < 1:
        return 1.0
    raw = span / target
    power = 10.0 ** math.floor(math.log10(raw))
    return float(next(m for m in (1, 2, 2.5, 5, 10) if raw <= m * power * (1 + 1e-9)) * power)


def ticks(highest: float) -> tuple[float, ...]:
    """Round values from 0 up to the first at or above ``highest``; ``(0, 1)`` where there is nothing above 0.

    >>> ticks(13.2)
    (0.0, 5.0, 10.0, 15.0)
    """
    if not (highest > 0 and math.isfinite(highest)):
        return (0.0, 1.0)
    step = nice_step(highest, _TICKS)
    count = math.ceil(highest / step - 1e-9)
    return tuple(round(i * step, 12) for i in range(count + 1))


def decades(lowest: float, highest: float) -> tuple[float, ...]:
    """Round values for a logarithmic axis from at or below ``lowest`` to at or above ``highest``, both above 0.

    Powers of ten where there are at least three of them, else 1, 2 and 5 times each.

    >>> decades(3, 700)
    (1.0, 10.0, 100.0, 1000.0)
    >>> decades(3, 30)
    (2.0, 5.0, 10.0, 20.0, 50.0)
    """
    first, last = math.floor(math.log10(lowest) + 1e-9), math.ceil(math.log10(highest) - 1e-9)
    if last - first >= 3:
        return tuple(10.0**power for power in range(first, last + 1))
    marks = [float(f"{part}e{power}") for power in range(first - 1, last + 1) for part in (1, 2, 5)]
    low = max(mark for mark in marks if mark <= lowest * (1 + 1e-9))
    high = min((mark for mark in marks if mark >= highest * (1 - 1e-9) and mark > low), default=marks[-1])
    return tuple(mark for mark in marks if low <= mark <= high)


def decade_label(value: float) -> str:
    """The text of a tick of :func:`decades`.

    >>> decade_label(2000.0), decade_label(0.05)
    ('2,000', '0.05')
    """
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"


def tick_label(value: float, step: float) -> str:
    """A tick's text, with as many decimals as its neighbours need.

    >>> tick_label(0.5, 0.25), tick_label(2000.0, 500.0)
    ('0.50', '2,000')
    """
    places = 0
    while places < 9 and abs(round(step, places) - step) > step * 1e-6:
        places += 1
    return f"{value:,.{places}f}"


def positions(numbers: Sequence[float], count: int, scale: str) -> tuple[float, ...]:
    """Where ``count`` categories lie between 0 and 1: by their numbers if they allow it, else evenly spaced.

    >>> positions((1, 2, 4), 3, "log2")
    (0.0, 0.5, 1.0)
    """
    usable = len(numbers) == count and all(math.isfinite(n) and (n > 0 or scale != "log2") for n in numbers)
    if not usable:
        values = [float(index) for index in range(count)]
    else:
        values = [math.log2(n) if scale == "log2" else float(n) for n in numbers]
    if not values:
        return ()
    low, high = min(values), max(values)
    if high == low:
        return (0.5,) * count
    return tuple((value - low) / (high - low) for value in values)


def uncrowded(centres: Sequence[float], widths: Sequence[float], gap: float = 6.0) -> tuple[int, ...]:
    """Which labels, from the left, fit beside each other; a label that would touch the one before is left out."""
    kept: list[int] = []
    end = -math.inf
    for index, (centre, width) in enumerate(zip(centres, widths, strict=True)):
        if centre - width / 2 >= end + gap:
            kept.append(index)
            end = centre + width / 2
    return tuple(kept)


@dataclass(frozen=True)
class Axis:
    """A straight scale from ``0 … top`` (values) to ``start … end`` (drawing units)."""

    top: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """The drawing unit of a value; what lies outside the scale is drawn at its border."""
        share = min(1.0, max(0.0, value / self.top)) if self.top > 0 else 0.0
        return self.start + share * (self.end - self.start)
