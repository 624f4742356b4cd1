"""Draws bars: stacked, side by side, and lying ones with their names on the left and their values on the right."""

from __future__ import annotations

from collections.abc import Iterator

from perf_diagnostics.report.drawing.palette import Ink, series_mark
from perf_diagnostics.report.drawing.svg_marks import (
    BOTTOM,
    LETTER,
    WIDTH,
    Frame,
    box,
    n,
    text,
    tooltip,
    value_at,
    whisker,
)
from perf_diagnostics.report.model import Chart
from perf_diagnostics.report.words import amount, plain

#: Height of a lying bar with the space around it, and the letters of a name that are shown.
LYING_ROW = 27
_NAME = 36


def stacks(chart: Chart, frame: Frame, ink: Ink) -> Iterator[str]:
    width = min(58.0, frame.slot * 0.72)
    reached = [0.0] * len(frame.x)
    for position, series in enumerate(chart.series):
        yield f'<g fill="{ink.mark(series_mark(series.key, position))}">'
        for index, x in enumerate(frame.x):
            value = value_at(series, index)
            if value is not None and value > 0:
                low, high = frame.y.at(reached[index]), frame.y.at(reached[index] + value)
                reached[index] += value
                yield box(x - width / 2, high, width, low - high, tooltip(chart, series, index))
        yield "</g>"


def bars(chart: Chart, frame: Frame, ink: Ink) -> Iterator[str]:
    width = min(44.0, frame.slot * 0.74 / max(1, len(chart.series)))
    for position, series in enumerate(chart.series):
        shift = (position - len(chart.series) / 2) * width
        yield f'<g fill="{ink.mark(series_mark(series.key, position))}">'
        for index, x in enumerate(frame.x):
            value = value_at(series, index)
            if value is not None:
                y = frame.y.at(value)
                yield box(x + shift, y, width, BOTTOM - y, tooltip(chart, series, index))
                yield whisker(series, index, x + shift + width / 2, frame, ink.role("text"))
        yield "</g>"


def lying_bars(chart: Chart, top: float, ink: Ink) -> Iterator[str]:
    """One bar a category, from the top down, of the chart's first series; the values stand at their ends."""
    series = chart.series[0]
    values = [value_at(series, index) for index in range(len(chart.categories))]
    if all(value is None for value in values):
        yield text(WIDTH / 2, top + LYING_ROW, "Nothing measured", anchor="middle")
        return
    highest = max((value for value in values if value is not None), default=0.0)
    left = max((len(plain(name, _NAME)) for name in chart.categories), default=0) * LETTER + 10
    room = WIDTH - left - max(len(amount(value, chart.unit)) for value in values) * LETTER - 10
    colour = ink.mark(series_mark(series.key, 0))
    for index, (name, value) in enumerate(zip(chart.categories, values, strict=True)):
        y = top + index * LYING_ROW
        yield text(left - 10, y + 15, plain(name, _NAME), anchor="end")
        length = 0.0
        if value is not None and highest > 0:
            length = max(0.0, value / highest * room)
            yield f'<g fill="{colour}">{box(left, y + 2, length, LYING_ROW - 9, tooltip(chart, series, index))}</g>'
        yield text(left + length + 6, y + 15, amount(value, chart.unit))
    bottom = top + len(values) * LYING_ROW
    yield f'<path d="M{n(left)} {n(top - 2)}V{n(bottom - 3)}" stroke="{ink.role("muted")}" stroke-width="1.2"/>'
