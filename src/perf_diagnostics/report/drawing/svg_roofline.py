"""Draws points under the lines that limit them, both axes logarithmic: a roofline."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from perf_diagnostics.report.drawing.palette import Ink, series_mark
from perf_diagnostics.report.drawing.scale import decade_label, decades
from perf_diagnostics.report.drawing.svg_marks import BOTTOM, HEIGHT, LETTER, MARKERS, RIGHT, n, text, tooltip, value_at
from perf_diagnostics.report.model import Chart
from perf_diagnostics.report.words import is_number, plain

#: Dashes of the limits, by their place in the chart.
LIMIT_DASHES = ("", "6 4", "2 4")


@dataclass(frozen=True)
class _Log:
    """A logarithmic scale from the first to the last tick (values) onto ``start … end`` (drawing units)."""

    ticks: tuple[float, ...]
    start: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(value / self.ticks[0]) / math.log(self.ticks[-1] / self.ticks[0])
        return self.start + min(1.0, max(0.0, share)) * (self.end - self.start)


def roofline(chart: Chart, top: float, ink: Ink) -> Iterator[str]:
    """The whole of the drawing below the legend: axes, limits, points with the names of their categories."""
    places = list(_places(chart))
    if not places:
        yield text(RIGHT / 2, (top + BOTTOM) / 2, "Nothing measured", anchor="middle")
        return
    y_marks = decades(min(y for _, y in places), max(y for _, y in places))
    x_marks = decades(min(x for x, _ in places), max(x for x, _ in places))
    left = max(len(decade_label(mark)) for mark in y_marks) * LETTER + 14
    x, y = _Log(x_marks, left, RIGHT - 14), _Log(y_marks, BOTTOM, top)
    yield from _axes(chart, x, y, ink)
    for position, line in enumerate(chart.lines):
        path = "".join(f"{'L' if i else 'M'}{n(x.at(a))} {n(y.at(b))}" for i, (a, b) in enumerate(line.points))
        dash = LIMIT_DASHES[position % len(LIMIT_DASHES)]
        dashed = f' stroke-dasharray="{dash}"' if dash else ""
        yield (
            f'<path d="{path}" fill="none" stroke="{ink.role("muted")}" stroke-width="2" '
            f'stroke-linejoin="round"{dashed}/>'
        )
    yield from _points(chart, x, y, ink)


def _places(chart: Chart) -> Iterator[tuple[float, float]]:
    for series in chart.series:
        for index, x in enumerate(chart.x):
            y = value_at(series, index)
            if y is not None and y > 0 and is_number(x) and x > 0:
                yield x, y
    for line in chart.lines:
        yield from line.points


def _axes(chart: Chart, x: _Log, y: _Log, ink: Ink) -> Iterator[str]:
    for index, mark in enumerate(y.ticks):
        at = y.at(mark)
        yield (
            f'<path d="M{n(x.start)} {n(at)}H{RIGHT}" stroke="{ink.role("line" if index else "muted")}" '
            f'stroke-width="{0.8 if index else 1.2}"/>'
        )
        yield text(x.start - 8, at + 4.5, decade_label(mark), anchor="end", fill=ink.role("muted"))
    for mark in x.ticks:
        at = x.at(mark)
        yield f'<path d="M{n(at)} {BOTTOM}v5" stroke="{ink.role("muted")}" stroke-width="1.2"/>'
        yield text(at, BOTTOM + 19, decade_label(mark), anchor="middle", fill=ink.role("muted"))
    yield text((x.start + RIGHT) / 2, HEIGHT - 8, chart.x_label, anchor="middle", fill=ink.role("muted"))


def _points(chart: Chart, x: _Log, y: _Log, ink: Ink) -> Iterator[str]:
    """The marks, then their names: the stressed one first, and of the others those that fit beside it."""
    named: list[tuple[bool, float, float, str]] = []
    for position, series in enumerate(chart.series):
        colour = ink.mark(series_mark(series.key, position))
        marker = MARKERS[position % len(MARKERS)]
        for index, category in enumerate(chart.categories):
            value = value_at(series, index)
            if value is None or not value > 0 or not chart.x[index] > 0:
                continue
            at, height = x.at(chart.x[index]), y.at(value)
            stressed = series.highlight == category
            named.append((not stressed, at, height, plain(category, 14)))
            ring = f'<circle cx="{n(at)}" cy="{n(height)}" r="9" fill="none" stroke="{colour}"/>' if stressed else ""
            yield (
                f'<g fill="{colour}" stroke="{ink.role("surface")}">{tooltip(chart, series, index)}{ring}'
                f"{marker(at, height, 4.5)}</g>"
            )
    taken: list[tuple[float, float]] = []
    for other, at, height, label in sorted(named, key=lambda one: one[0]):
        others = [(x, y) for _, x, y, _ in named if (x, y) != (at, height)]
        sides = [a for a in ("start", "end") if not _covers(at, height, a, label, others)]
        free = next((a for a in sides if not _touches(at, height, a, label, taken)), None)
        if free is not None:
            side, far = 1 if free == "start" else -1, 9 if other else 13
            taken.append((at + (len(label) / 2 * LETTER + far) * side, height))
            yield text(at + far * side, height + 4.5, label, anchor=free, weight=0 if other else 600)


def _covers(x: float, y: float, anchor: str, label: str, others: list[tuple[float, float]]) -> bool:
    """Whether a label beside a point would lie over the mark of another one."""
    half, centre = _spot(x, anchor, label)
    return any(abs(y - at) < 10 and abs(centre - beside) < half + 5 for beside, at in others)


def _touches(x: float, y: float, anchor: str, label: str, taken: list[tuple[float, float]]) -> bool:
    """Whether a label beside a point would lie over another or leave the drawing."""
    half, centre = _spot(x, anchor, label)
    beyond = centre + half > RIGHT or centre - half < 0
    return beyond or any(abs(y - at) < 15 and abs(centre - beside) < 2 * half + 4 for beside, at in taken)


def _spot(x: float, anchor: str, label: str) -> tuple[float, float]:
    """Half of a label's width, and where its middle lies beside a point."""
    half = len(label) * LETTER / 2
    return half, x + (half + 9) * (1 if anchor == "start" else -1)
