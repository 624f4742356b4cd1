"""The pieces that every drawing is made of: where things lie, marks, texts and the value that each mark carries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html import escape

from perf_diagnostics.report.drawing.scale import Axis
from perf_diagnostics.report.model import Chart, ChartSeries
from perf_diagnostics.report.words import amount, between, is_number

WIDTH, HEIGHT = 560, 340
LETTER = 7.4  # mean width of a letter at that size in a wide face (DejaVu Sans), so that narrower faces fit too
RIGHT, BOTTOM = WIDTH - 16, HEIGHT - 48
DENSE = 60  # above that many points a line is drawn without a mark for each,
CROWDED = 16  # and above that many the marks are small dots


@dataclass(frozen=True)
class Frame:
    """Where the drawing area lies and where each category and value goes in it."""

    left: float
    top: float
    x: tuple[float, ...]
    y: Axis
    y_ticks: tuple[float, ...]
    slot: float


def columns(chart: Chart) -> Iterator[list[float | None]]:
    for index in range(len(chart.categories)):
        yield [value_at(series, index) for series in chart.series]


def value_at(series: ChartSeries, index: int) -> float | None:
    value = series.values[index] if index < len(series.values) else None
    return value if is_number(value) else None


def ends_at(series: ChartSeries, index: int) -> tuple[float, float] | None:
    low = series.low[index] if index < len(series.low) else None
    high = series.high[index] if index < len(series.high) else None
    return (low, high) if low is not None and high is not None and is_number(low) and is_number(high) else None


def whisker(series: ChartSeries, index: int, x: float, frame: Frame, colour: str) -> str:
    ends = ends_at(series, index)
    if ends is None:
        return ""
    low, high = (frame.y.at(end) for end in ends)
    return (
        f'<path d="M{n(x)} {n(low)}V{n(high)}M{n(x - 4)} {n(low)}h8M{n(x - 4)} {n(high)}h8" '
        f'stroke="{colour}" stroke-width="1.4"/>'
    )


def box(x: float, y: float, width: float, height: float, title: str) -> str:
    """A bar; a tall one leaves a hair's breadth to the one above it, a flat one is drawn whole."""
    if height > 4:
        y, height = y + 1, height - 1
    return f'<rect x="{n(x)}" y="{n(y)}" width="{n(width)}" height="{n(height)}">{title}</rect>'


def circle(x: float, y: float, r: float) -> str:
    return f'<circle cx="{n(x)}" cy="{n(y)}" r="{n(r)}"/>'


def square(x: float, y: float, r: float) -> str:
    return f'<rect x="{n(x - r)}" y="{n(y - r)}" width="{n(2 * r)}" height="{n(2 * r)}"/>'


def triangle(x: float, y: float, r: float) -> str:
    r *= 1.25
    return f'<path d="M{n(x)} {n(y - r)}l{n(r)} {n(1.75 * r)}h{n(-2 * r)}z"/>'


def diamond(x: float, y: float, r: float) -> str:
    r *= 1.3
    return f'<path d="M{n(x)} {n(y - r)}l{n(r)} {n(r)}l{n(-r)} {n(r)}l{n(-r)} {n(-r)}z"/>'


MARKERS: tuple[Callable[[float, float, float], str], ...] = (circle, square, triangle, diamond)


def tooltip(chart: Chart, series: ChartSeries, index: int) -> str:
    return f"<title>{escape(_says(chart, series, index))}</title>"


def _says(chart: Chart, series: ChartSeries, index: int) -> str:
    """``cpu, 32: 12.4 samples/s (95 % interval 12.1 to 12.7)``."""
    ends = ends_at(series, index)
    interval = f" (95 % interval {between(*ends)})" if ends else ""
    return f"{series.name}, {chart.categories[index]}: {amount(value_at(series, index), chart.unit)}{interval}"


def text(x: float, y: float, words: str, *, anchor: str = "", weight: int = 0, fill: str = "", extra: str = "") -> str:
    extra += f' text-anchor="{anchor}"' if anchor else ""
    extra += f' font-weight="{weight}"' if weight else ""
    extra += f' fill="{fill}"' if fill else ""
    return f'<text x="{n(x)}" y="{n(y)}"{extra}>{escape(words)}</text>'


def n(value: float) -> str:
    """A coordinate with at most one decimal, always written the same way."""
    text = f"{value:.1f}"
    return text.removesuffix(".0") if text != "-0.0" else "0"
