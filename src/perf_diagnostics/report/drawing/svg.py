"""Draws a Chart as a small, self-contained SVG: lines, stacked bars or grouped bars.

The drawing holds text and shapes only: no script, no link, no style sheet. Its colours come from an :class:`Ink`, so
the same drawing follows the reader's light or dark theme on a page and has fixed colours on paper. Every mark carries
its value as a ``<title>``, and the whole its numbers as ``<desc>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape

from perf_diagnostics.report.drawing.palette import THEMED, Ink, series_mark
from perf_diagnostics.report.drawing.scale import Axis, nice_step, positions, tick_label, ticks, uncrowded
from perf_diagnostics.report.drawing.svg_bars import LYING_ROW, bars, lying_bars, stacks
from perf_diagnostics.report.drawing.svg_lines import lines
from perf_diagnostics.report.drawing.svg_marks import (
    BOTTOM,
    CROWDED,
    DENSE,
    HEIGHT,
    LETTER,
    MARKERS,
    RIGHT,
    WIDTH,
    Frame,
    columns,
    n,
    text,
    value_at,
)
from perf_diagnostics.report.drawing.svg_roofline import LIMIT_DASHES, roofline
from perf_diagnostics.report.model import Chart, ChartKind, ChartLine, ChartSeries
from perf_diagnostics.report.words import clean, figure, is_number, plain

_FONT = 13
_ROW = 22


def svg(chart: Chart, ink: Ink = THEMED, name: str = "") -> str:
    """The chart as one ``<svg>`` element; ``name`` tells it from others on the same page (default: the chart's key)."""
    chart = clean(chart)
    legend, rows = _legend(chart, ink)
    stressed = chart.kind is ChartKind.LINE and any(series.highlight for series in chart.series)
    body, height = _body(chart, 30 + rows * _ROW + (26 if stressed else 10), ink)
    name = name or re.sub(r"[^a-z0-9]+", "-", chart.key.lower())
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" font-size="{_FONT}" fill="{ink.role("text")}">',
            f'<title id="{name}-title">{escape(chart.title)}</title>',
            f'<desc id="{name}-desc">{escape(_description(chart))}</desc>',
            text(0, 16, chart.y_label, fill=ink.role("muted")),
            *legend,
            *body,
            "</svg>",
        )
    )


def _body(chart: Chart, top: float, ink: Ink) -> tuple[list[str], int]:
    """Everything below the legend, and the height of the whole drawing."""
    if chart.kind is ChartKind.LYING_BAR:
        return list(lying_bars(chart, top, ink)), round(top + max(2, len(chart.categories)) * LYING_ROW + 4)
    if chart.kind is ChartKind.ROOFLINE:
        return list(roofline(chart, top, ink)), HEIGHT
    frame = _frame(chart, top)
    draw = {ChartKind.LINE: lines, ChartKind.STACKED_BAR: stacks, ChartKind.BAR: bars}[chart.kind]
    return [*_axes(chart, frame, ink), *draw(chart, frame, ink), *_crosses(chart, frame, ink)], HEIGHT


def _frame(chart: Chart, top: float) -> Frame:
    marks = ticks(_highest(chart))
    step = marks[1] - marks[0]
    left = max(34.0, max(len(tick_label(t, step)) for t in marks) * LETTER + 14)
    count = max(1, len(chart.categories))
    slot = (RIGHT - left) / count
    if chart.kind is ChartKind.LINE:
        inset = min(40.0, (RIGHT - left) / 8)
        places = positions(chart.x, len(chart.categories), chart.x_scale)
        x = tuple(left + inset + place * (RIGHT - left - 2 * inset) for place in places)
    else:
        x = tuple(left + slot * (index + 0.5) for index in range(len(chart.categories)))
    return Frame(left, top, x, Axis(marks[-1], BOTTOM, top), marks, slot)


def _highest(chart: Chart) -> float:
    if chart.kind is ChartKind.STACKED_BAR:
        return max((sum(v for v in column if v is not None and v > 0) for column in columns(chart)), default=0.0)
    ends = [v for s in chart.series for v in (*s.values, *s.high) if v is not None and is_number(v)]
    return max(ends, default=0.0)


def _axes(chart: Chart, frame: Frame, ink: Ink) -> Iterator[str]:
    step = frame.y_ticks[1] - frame.y_ticks[0]
    for tick in frame.y_ticks:
        y = frame.y.at(tick)
        width = 1.2 if tick == 0 else 0.8
        yield (
            f'<path d="M{n(frame.left)} {n(y)}H{RIGHT}" stroke="{ink.role("muted" if tick == 0 else "line")}" '
            f'stroke-width="{width}"/>'
        )
        yield text(frame.left - 8, y + 4.5, tick_label(tick, step), anchor="end", fill=ink.role("muted"))
    for x, label in _x_labels(chart, frame):
        yield text(x, BOTTOM + 19, label, anchor="middle", fill=ink.role("muted"))
    yield text((frame.left + RIGHT) / 2, HEIGHT - 8, chart.x_label, anchor="middle", fill=ink.role("muted"))
    if not any(value is not None for column in columns(chart) for value in column):
        yield text((frame.left + RIGHT) / 2, (frame.top + BOTTOM) / 2, "Nothing measured", anchor="middle")


def _x_labels(chart: Chart, frame: Frame) -> list[tuple[float, str]]:
    """Where the x axis is labelled: round numbers on a linear scale of many points, else as many categories as fit."""
    if chart.kind is ChartKind.LINE and chart.x_scale == "linear" and len(frame.x) > CROWDED and chart.x:
        first, last = chart.x[0], chart.x[-1]
        step = max(1.0, nice_step(last - first, 8))
        step = step if step.is_integer() else 2 * step  # what is counted has no half: 2.5 becomes 5
        width = (frame.x[-1] - frame.x[0]) / (last - first)
        rounds = [first, *(step * i for i in range(int(first // step) + 1, int(last // step) + 1))]
        places = [(frame.x[0] + (value - first) * width, tick_label(value, step)) for value in rounds]
    else:
        places = [(x, plain(category, 14)) for x, category in zip(frame.x, chart.categories, strict=True)]
    kept = uncrowded([x for x, _ in places], [len(label) * LETTER for _, label in places])
    return [places[index] for index in kept]


def _crosses(chart: Chart, frame: Frame, ink: Ink) -> Iterator[str]:
    """A cross above each category that has no values for a reason."""
    for category, words in chart.marks:
        if category in chart.categories:
            x = frame.x[chart.categories.index(category)]
            yield f"<g><title>{escape(f'{category}: {words}')}</title>{_cross(x, BOTTOM - 12, ink)}</g>"


def _cross(x: float, y: float, ink: Ink) -> str:
    return (
        f'<path d="M{n(x - 5)} {n(y - 5)}l10 10m0 -10l-10 10" stroke="{ink.role("critical")}" '
        'stroke-width="2.2" fill="none"/>'
    )


def _legend(chart: Chart, ink: Ink) -> tuple[list[str], int]:
    """The legend's elements and how many rows they take; one series alone is named by the chart's title."""
    entries: list[tuple[str, Callable[[float, float], str]]] = []
    if len(chart.series) > 1 or chart.marks or chart.lines:
        entries += [(series.name, _swatch(chart, series, i, ink)) for i, series in enumerate(chart.series)]
    entries += [(line.name, _line_swatch(line, i, ink)) for i, line in enumerate(chart.lines)]
    entries += [(words, lambda x, y: _cross(x + 7, y, ink)) for words in dict.fromkeys(w for _, w in chart.marks)]
    parts: list[str] = []
    x, row = 0.0, 0
    for name, swatch in entries:
        label = plain(name, 40)
        width = 22 + len(label) * LETTER + 14
        if x > 0 and x + width > WIDTH:
            x, row = 0.0, row + 1
        y = 36 + row * _ROW
        parts += [swatch(x, y), text(x + 21, y + 4.5, label)]
        x += width
    return parts, row + 1 if entries else 0


def _swatch(chart: Chart, series: ChartSeries, position: int, ink: Ink) -> Callable[[float, float], str]:
    colour = ink.mark(series_mark(series.key, position))
    if chart.kind is ChartKind.ROOFLINE:
        point = MARKERS[position % len(MARKERS)]
        return lambda x, y: f'<g fill="{colour}">{point(x + 8, y, 4.5)}</g>'
    if chart.kind is not ChartKind.LINE:
        return lambda x, y: f'<rect x="{n(x)}" y="{n(y - 6.5)}" width="14" height="13" rx="2" fill="{colour}"/>'
    if len(chart.categories) > DENSE:
        return lambda x, y: f'<path d="M{n(x)} {n(y)}h16" stroke="{colour}" stroke-width="3"/>'
    marker = MARKERS[position % len(MARKERS)]
    line = f'stroke="{colour}" stroke-width="2"'
    return lambda x, y: f'<g fill="{colour}"><path d="M{n(x)} {n(y)}h16" {line}/>{marker(x + 8, y, 4)}</g>'


def _line_swatch(line: ChartLine, position: int, ink: Ink) -> Callable[[float, float], str]:
    dash = LIMIT_DASHES[position % len(LIMIT_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    stroke = f'stroke="{ink.role("muted")}" stroke-width="2"{dashed}'
    return lambda x, y: f'<path d="M{n(x)} {n(y)}h16" {stroke}><title>{escape(line.name)}</title></path>'


def _description(chart: Chart) -> str:
    """All numbers of a small chart, or what a large one shows, for readers who cannot see it."""
    if len(chart.categories) > DENSE:
        return f"{chart.takeaway or chart.title} {len(chart.categories)} points."
    rows = [
        f"{series.name}: "
        + ", ".join(f"{c} {figure(value_at(series, i), chart.unit)}" for i, c in enumerate(chart.categories))
        for series in chart.series
    ]
    unit = f" In {chart.unit}." if chart.unit else ""
    return f"{chart.y_label} by {chart.x_label}.{unit} {'; '.join(rows)}."
