"""Draws a Chart as a small, self-contained SVG: lines, stacked bars or grouped bars.

The drawing holds text and shapes only: no script, no link, no style sheet. Its colours come from an :class:`Ink`, so
the same drawing follows the reader's light or dark theme on a page and has fixed colours on paper. Every mark carries
its value as a ``<title>``, and the whole its numbers as ``<desc>``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.palette import THEMED, Ink, series_mark
from perf_diagnostics.report.scale import Axis, nice_step, positions, tick_label, ticks, uncrowded
from perf_diagnostics.report.words import between, clean, is_number, number, plain

WIDTH, HEIGHT = 560, 340
_FONT = 13
_LETTER = 7.4  # mean width of a letter at that size in a wide face (DejaVu Sans), so that narrower faces fit too
_RIGHT, _BOTTOM = WIDTH - 16, HEIGHT - 48
_ROW = 22
_DENSE = 60  # above that many points a line is drawn without a mark for each,
_CROWDED = 16  # and above that many the marks are small dots
_DASHES = ("", "7 4", "2 4", "9 3 2 3")


def svg(chart: Chart, ink: Ink = THEMED, name: str = "") -> str:
    """The chart as one ``<svg>`` element; ``name`` tells it from others on the same page (default: the chart's key)."""
    chart = clean(chart)
    legend, rows = _legend(chart, ink)
    stressed = any(series.highlight for series in chart.series)
    frame = _frame(chart, top=30 + rows * _ROW + (26 if stressed else 10))
    draw = {ChartKind.LINE: _lines, ChartKind.STACKED_BAR: _stacks, ChartKind.BAR: _bars}[chart.kind]
    body = [*_axes(chart, frame, ink), *draw(chart, frame, ink), *_crosses(chart, frame, ink)]
    name = name or re.sub(r"[^a-z0-9]+", "-", chart.key.lower())
    return "".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'aria-labelledby="{name}-title {name}-desc" font-size="{_FONT}" fill="{ink.role("text")}">',
            f'<title id="{name}-title">{escape(chart.title)}</title>',
            f'<desc id="{name}-desc">{escape(_description(chart))}</desc>',
            _text(0, 16, chart.y_label, fill=ink.role("muted")),
            *legend,
            *body,
            "</svg>",
        )
    )


@dataclass(frozen=True)
class _Frame:
    """Where the drawing area lies and where each category and value goes in it."""

    left: float
    top: float
    x: tuple[float, ...]
    y: Axis
    y_ticks: tuple[float, ...]
    slot: float


def _frame(chart: Chart, top: float) -> _Frame:
    marks = ticks(_highest(chart))
    step = marks[1] - marks[0]
    left = max(34.0, max(len(tick_label(t, step)) for t in marks) * _LETTER + 14)
    count = max(1, len(chart.categories))
    slot = (_RIGHT - left) / count
    if chart.kind is ChartKind.LINE:
        inset = min(40.0, (_RIGHT - left) / 8)
        places = positions(chart.x, len(chart.categories), chart.x_scale)
        x = tuple(left + inset + place * (_RIGHT - left - 2 * inset) for place in places)
    else:
        x = tuple(left + slot * (index + 0.5) for index in range(len(chart.categories)))
    return _Frame(left, top, x, Axis(marks[-1], _BOTTOM, top), marks, slot)


def _highest(chart: Chart) -> float:
    if chart.kind is ChartKind.STACKED_BAR:
        return max((sum(v for v in column if v is not None and v > 0) for column in _columns(chart)), default=0.0)
    ends = [v for s in chart.series for v in (*s.values, *s.high) if v is not None and is_number(v)]
    return max(ends, default=0.0)


def _columns(chart: Chart) -> Iterator[list[float | None]]:
    for index in range(len(chart.categories)):
        yield [_value(series, index) for series in chart.series]


def _value(series: ChartSeries, index: int) -> float | None:
    value = series.values[index] if index < len(series.values) else None
    return value if is_number(value) else None


def _ends(series: ChartSeries, index: int) -> tuple[float, float] | None:
    low = series.low[index] if index < len(series.low) else None
    high = series.high[index] if index < len(series.high) else None
    return (low, high) if low is not None and high is not None and is_number(low) and is_number(high) else None


def _axes(chart: Chart, frame: _Frame, ink: Ink) -> Iterator[str]:
    step = frame.y_ticks[1] - frame.y_ticks[0]
    for tick in frame.y_ticks:
        y = frame.y.at(tick)
        width = 1.2 if tick == 0 else 0.8
        yield (
            f'<path d="M{_n(frame.left)} {_n(y)}H{_RIGHT}" stroke="{ink.role("muted" if tick == 0 else "line")}" '
            f'stroke-width="{width}"/>'
        )
        yield _text(frame.left - 8, y + 4.5, tick_label(tick, step), anchor="end", fill=ink.role("muted"))
    for x, label in _x_labels(chart, frame):
        yield _text(x, _BOTTOM + 19, label, anchor="middle", fill=ink.role("muted"))
    yield _text((frame.left + _RIGHT) / 2, HEIGHT - 8, chart.x_label, anchor="middle", fill=ink.role("muted"))
    if not any(value is not None for column in _columns(chart) for value in column):
        yield _text((frame.left + _RIGHT) / 2, (frame.top + _BOTTOM) / 2, "Nothing measured", anchor="middle")


def _x_labels(chart: Chart, frame: _Frame) -> list[tuple[float, str]]:
    """Where the x axis is labelled: round numbers on a linear scale of many points, else as many categories as fit."""
    if chart.kind is ChartKind.LINE and chart.x_scale == "linear" and len(frame.x) > _CROWDED and chart.x:
        first, last = chart.x[0], chart.x[-1]
        step = max(1.0, nice_step(last - first, 8))
        width = (frame.x[-1] - frame.x[0]) / (last - first)
        rounds = [first, *(step * i for i in range(int(first // step) + 1, int(last // step) + 1))]
        places = [(frame.x[0] + (value - first) * width, tick_label(value, step)) for value in rounds]
    else:
        places = [(x, plain(category, 14)) for x, category in zip(frame.x, chart.categories, strict=True)]
    kept = uncrowded([x for x, _ in places], [len(label) * _LETTER for _, label in places])
    return [places[index] for index in kept]


def _lines(chart: Chart, frame: _Frame, ink: Ink) -> Iterator[str]:
    stressed: list[tuple[float, float, str]] = []
    for position, series in enumerate(chart.series):
        colour = ink.mark(series_mark(series.key, position))
        points = [(i, value) for i in range(len(frame.x)) if (value := _value(series, i)) is not None]
        dense, crowded = len(points) > _DENSE, len(frame.x) > _CROWDED
        dash = "" if crowded or series.key or len(chart.series) == 1 else _DASHES[position % len(_DASHES)]
        yield _path(points, frame, colour, dash, dense=dense)
        if dense:
            continue
        yield f'<g fill="{colour}" stroke="{ink.role("surface")}">'
        for index, value in points:
            x, y = frame.x[index], frame.y.at(value)
            marker = _circle(x, y, 2.6) if crowded else _MARKERS[position % len(_MARKERS)](x, y, 4.5)
            yield f"<g>{_title(chart, series, index)}{_whisker(series, index, x, frame, colour)}{marker}</g>"
            if series.highlight == chart.categories[index]:
                stressed.append((x, y, number(value)))
                yield f'<circle cx="{_n(x)}" cy="{_n(y)}" r="10" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield "</g>"
    yield from _stresses(stressed, ink)


def _path(points: Sequence[tuple[int, float]], frame: _Frame, colour: str, dash: str, *, dense: bool) -> str:
    """One line, broken wherever a category has no value: a gap is never bridged."""
    steps = []
    before = -2
    for index, value in points:
        steps.append(f"{'L' if index == before + 1 else 'M'}{_n(frame.x[index])} {_n(frame.y.at(value))}")
        before = index
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path d="{"".join(steps)}" fill="none" stroke="{colour}" stroke-width="{1.4 if dense else 2}" '
        f'stroke-linejoin="round"{dashed}/>'
    )


def _stresses(stressed: Sequence[tuple[float, float, str]], ink: Ink) -> Iterator[str]:
    """The numbers of the stressed values, each above its ring or, where another stands there already, below it."""
    taken: list[tuple[float, float]] = []
    for x, y, words in stressed:
        crowded = any(abs(y - 15 - at) < 18 and abs(x - beside) < 60 for beside, at in taken)
        at = y + 26 if crowded else y - 15
        taken.append((x, at))
        centre = min(x, _RIGHT - len(words) * _LETTER / 2)
        # A halo in the background's colour first, so that lines behind the number do not cross it out.
        halo = f' stroke="{ink.role("surface")}" stroke-width="5" stroke-linejoin="round"'
        yield _text(centre, at, words, anchor="middle", weight=600, extra=halo)
        yield _text(centre, at, words, anchor="middle", weight=600)


def _whisker(series: ChartSeries, index: int, x: float, frame: _Frame, colour: str) -> str:
    ends = _ends(series, index)
    if ends is None:
        return ""
    low, high = (frame.y.at(end) for end in ends)
    return (
        f'<path d="M{_n(x)} {_n(low)}V{_n(high)}M{_n(x - 4)} {_n(low)}h8M{_n(x - 4)} {_n(high)}h8" '
        f'stroke="{colour}" stroke-width="1.4"/>'
    )


def _stacks(chart: Chart, frame: _Frame, ink: Ink) -> Iterator[str]:
    width = min(58.0, frame.slot * 0.72)
    reached = [0.0] * len(frame.x)
    for position, series in enumerate(chart.series):
        yield f'<g fill="{ink.mark(series_mark(series.key, position))}">'
        for index, x in enumerate(frame.x):
            value = _value(series, index)
            if value is not None and value > 0:
                low, high = frame.y.at(reached[index]), frame.y.at(reached[index] + value)
                reached[index] += value
                yield _box(x - width / 2, high, width, low - high, _title(chart, series, index))
        yield "</g>"


def _bars(chart: Chart, frame: _Frame, ink: Ink) -> Iterator[str]:
    width = min(44.0, frame.slot * 0.74 / max(1, len(chart.series)))
    for position, series in enumerate(chart.series):
        shift = (position - len(chart.series) / 2) * width
        yield f'<g fill="{ink.mark(series_mark(series.key, position))}">'
        for index, x in enumerate(frame.x):
            value = _value(series, index)
            if value is not None:
                y = frame.y.at(value)
                yield _box(x + shift, y, width, _BOTTOM - y, _title(chart, series, index))
                yield _whisker(series, index, x + shift + width / 2, frame, ink.role("text"))
        yield "</g>"


def _box(x: float, y: float, width: float, height: float, title: str) -> str:
    """A bar; a tall one leaves a hair's breadth to the one above it, a flat one is drawn whole."""
    if height > 4:
        y, height = y + 1, height - 1
    return f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}">{title}</rect>'


def _crosses(chart: Chart, frame: _Frame, ink: Ink) -> Iterator[str]:
    """A cross above each category that has no values for a reason."""
    for category, words in chart.marks:
        if category in chart.categories:
            x = frame.x[chart.categories.index(category)]
            yield f"<g><title>{escape(f'{category}: {words}')}</title>{_cross(x, _BOTTOM - 12, ink)}</g>"


def _cross(x: float, y: float, ink: Ink) -> str:
    return (
        f'<path d="M{_n(x - 5)} {_n(y - 5)}l10 10m0 -10l-10 10" stroke="{ink.role("critical")}" '
        'stroke-width="2.2" fill="none"/>'
    )


def _legend(chart: Chart, ink: Ink) -> tuple[list[str], int]:
    """The legend's elements and how many rows they take; one series alone is named by the chart's title."""
    entries: list[tuple[str, Callable[[float, float], str]]] = []
    if len(chart.series) > 1 or chart.marks:
        entries += [(series.name, _swatch(chart, series, i, ink)) for i, series in enumerate(chart.series)]
    entries += [(words, lambda x, y: _cross(x + 7, y, ink)) for words in dict.fromkeys(w for _, w in chart.marks)]
    parts: list[str] = []
    x, row = 0.0, 0
    for name, swatch in entries:
        label = plain(name, 40)
        width = 22 + len(label) * _LETTER + 14
        if x > 0 and x + width > WIDTH:
            x, row = 0.0, row + 1
        y = 36 + row * _ROW
        parts += [swatch(x, y), _text(x + 21, y + 4.5, label)]
        x += width
    return parts, row + 1 if entries else 0


def _swatch(chart: Chart, series: ChartSeries, position: int, ink: Ink) -> Callable[[float, float], str]:
    colour = ink.mark(series_mark(series.key, position))
    if chart.kind is not ChartKind.LINE:
        return lambda x, y: f'<rect x="{_n(x)}" y="{_n(y - 6.5)}" width="14" height="13" rx="2" fill="{colour}"/>'
    marker = _MARKERS[position % len(_MARKERS)]
    line = f'stroke="{colour}" stroke-width="2"'
    return lambda x, y: f'<g fill="{colour}"><path d="M{_n(x)} {_n(y)}h16" {line}/>{marker(x + 8, y, 4)}</g>'


def _circle(x: float, y: float, r: float) -> str:
    return f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{_n(r)}"/>'


def _square(x: float, y: float, r: float) -> str:
    return f'<rect x="{_n(x - r)}" y="{_n(y - r)}" width="{_n(2 * r)}" height="{_n(2 * r)}"/>'


def _triangle(x: float, y: float, r: float) -> str:
    r *= 1.25
    return f'<path d="M{_n(x)} {_n(y - r)}l{_n(r)} {_n(1.75 * r)}h{_n(-2 * r)}z"/>'


def _diamond(x: float, y: float, r: float) -> str:
    r *= 1.3
    return f'<path d="M{_n(x)} {_n(y - r)}l{_n(r)} {_n(r)}l{_n(-r)} {_n(r)}l{_n(-r)} {_n(-r)}z"/>'


_MARKERS: tuple[Callable[[float, float, float], str], ...] = (_circle, _square, _triangle, _diamond)


def _title(chart: Chart, series: ChartSeries, index: int) -> str:
    return f"<title>{escape(_says(chart, series, index))}</title>"


def _says(chart: Chart, series: ChartSeries, index: int) -> str:
    """``cpu, 32: 12.4 samples/s (95 % interval 12.1 to 12.7)``."""
    unit = f" {chart.unit}" if chart.unit else ""
    ends = _ends(series, index)
    interval = f" (95 % interval {between(*ends)})" if ends else ""
    return f"{series.name}, {chart.categories[index]}: {number(_value(series, index))}{unit}{interval}"


def _description(chart: Chart) -> str:
    """All numbers of a small chart, or what a large one shows, for readers who cannot see it."""
    if len(chart.categories) > _DENSE:
        return f"{chart.takeaway or chart.title} {len(chart.categories)} points."
    rows = [
        f"{series.name}: " + ", ".join(f"{c} {number(_value(series, i))}" for i, c in enumerate(chart.categories))
        for series in chart.series
    ]
    unit = f" In {chart.unit}." if chart.unit else ""
    return f"{chart.y_label} by {chart.x_label}.{unit} {'; '.join(rows)}."


def _text(x: float, y: float, words: str, *, anchor: str = "", weight: int = 0, fill: str = "", extra: str = "") -> str:
    extra += f' text-anchor="{anchor}"' if anchor else ""
    extra += f' font-weight="{weight}"' if weight else ""
    extra += f' fill="{fill}"' if fill else ""
    return f'<text x="{_n(x)}" y="{_n(y)}"{extra}>{escape(words)}</text>'


def _n(value: float) -> str:
    """A coordinate with at most one decimal, always written the same way."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
