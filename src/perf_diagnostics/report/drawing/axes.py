"""Draws one chart of a report into the axes of a Matplotlib figure."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from typing import Any

from perf_diagnostics.report.drawing.palette import LIGHT, series_mark
from perf_diagnostics.report.drawing.scale import ticks
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.words import amount, is_number, number, plain

_MARKERS = ("o", "s", "^", "D")
_DASHES = ("-", "--", ":", "-.")

#: More categories than these are not all named, and points closer than these get no marks.
_LABELS = 16
_HEAD_LETTERS = 62
_DENSE = 60


def draw(axes: Any, chart: Chart) -> None:
    axes.set_facecolor(LIGHT.surface)
    _head(axes, chart)
    axes.set_xlabel(safe(chart.x_label), color=LIGHT.muted)
    axes.set_ylabel(safe(chart.y_label), color=LIGHT.muted)
    if chart.kind is ChartKind.LYING_BAR:
        _lie(axes, chart)
        return
    places = list(range(len(chart.categories)))
    if chart.kind is ChartKind.LINE:
        _line(axes, chart, places)
    else:
        _stack(axes, chart, places)
    every = math.ceil(len(places) / _LABELS)
    width = max(14, 60 // max(1, len(places)))
    axes.set_xticks(places[::every], [safe(category, width) for category in chart.categories[::every]])
    for category, words in chart.marks:
        if category in chart.categories:
            at = chart.categories.index(category)
            axes.plot([at], [0.03], "x", color=LIGHT.critical, transform=axes.get_xaxis_transform(), markeredgewidth=2)
            axes.text(
                at, 0.07, safe(words, 30), rotation=90, ha="center", va="bottom", fontsize=8, color=LIGHT.critical,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
    axes.set_ylim(0, _top(chart))
    axes.set_xlim(-0.6, len(chart.categories) - 0.4)
    axes.grid(axis="y", color=LIGHT.line, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=LIGHT.muted, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color(LIGHT.muted)
    if len(chart.series) > 1:
        # Below the axes, where it cannot lie over the data.
        columns = 2 if max(len(series.name) for series in chart.series) > 16 else 6
        axes.legend(
            loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=min(columns, len(chart.series)),
            frameon=False, fontsize=9, labelcolor=LIGHT.text, columnspacing=1.4, handletextpad=0.5,
        )  # fmt: skip


def _head(axes: Any, chart: Chart) -> None:
    """What the chart shows in large letters, and its title below in small ones; the title alone where that is all."""
    if not chart.takeaway:
        axes.set_title(safe(chart.title, 70), loc="left", fontsize=12, fontweight="bold", color=LIGHT.text)
        return
    axes.set_title(safe(chart.title, 80), loc="left", fontsize=10, color=LIGHT.muted)
    axes.annotate(
        textwrap.fill(safe(chart.takeaway, 200), _HEAD_LETTERS), (0, 1), xycoords="axes fraction", xytext=(0, 24),
        textcoords="offset points", va="bottom", fontsize=12, fontweight="bold", color=LIGHT.text,
    )  # fmt: skip


def _line(axes: Any, chart: Chart, places: Sequence[int]) -> None:
    for position, series in enumerate(chart.series):
        colour = LIGHT.marks[series_mark(series.key, position)]
        # A point between gaps would not be seen without a mark.
        dense, sparse = len(places) > _DENSE, sum(value is not None for value in series.values) <= _DENSE
        axes.errorbar(
            places,
            _values(series.values),
            yerr=_ends(series),
            color=colour,
            marker=_MARKERS[position % len(_MARKERS)] if not dense else "." if sparse else None,
            linestyle="-" if dense else _DASHES[position % len(_DASHES)],
            linewidth=1.2 if dense else 2,
            markersize=5,
            capsize=3,
            label=safe(series.name, 40),
        )
        for at, (category, value) in enumerate(zip(chart.categories, series.values, strict=True)):
            if category == series.highlight and value is not None:
                top = max(value, _high(series, at) or value)
                axes.annotate(
                    number(value), (at, top), xytext=(0, 9), textcoords="offset points", ha="center",
                    fontweight="bold", color=LIGHT.text,
                )  # fmt: skip


def _high(series: ChartSeries, at: int) -> float | None:
    """The upper end of a value's interval, above which its number is not crossed out."""
    high = series.high[at] if at < len(series.high) else None
    return high if is_number(high) else None


def _lie(axes: Any, chart: Chart) -> None:
    """Lying bars from the top down, with their numbers beside them instead of a scale."""
    values = [value if value is not None and is_number(value) else 0.0 for value in chart.series[0].values]
    places = list(range(len(values)))
    axes.barh(places, values, height=0.6, color=LIGHT.marks[series_mark(chart.series[0].key, 0)])
    for at, value in zip(places, chart.series[0].values, strict=True):
        axes.annotate(
            amount(value, chart.unit), (values[at], at), xytext=(5, 0), textcoords="offset points", va="center",
            color=LIGHT.text,
        )  # fmt: skip
    axes.set_yticks(places, [safe(category, 40) for category in chart.categories])
    axes.invert_yaxis()
    axes.set_xlim(0, max([*values, 1e-9]) * 1.18)
    axes.set_xticks([])
    axes.set_xlabel(safe(chart.y_label), color=LIGHT.muted)
    axes.set_ylabel("")
    axes.tick_params(colors=LIGHT.muted, length=0)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "left")
        spine.set_color(LIGHT.muted)


def _stack(axes: Any, chart: Chart, places: Sequence[int]) -> None:
    bottom = [0.0] * len(places)
    for position, series in enumerate(chart.series):
        heights = [max(0.0, value) if is_number(value) and value is not None else 0.0 for value in series.values]
        colour = LIGHT.marks[series_mark(series.key, position)]
        axes.bar(places, heights, bottom=bottom, width=0.7, color=colour, label=safe(series.name, 40))
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]


def _top(chart: Chart) -> float:
    """A round value above everything drawn, with room for the labels of highlighted values."""
    if chart.kind is ChartKind.STACKED_BAR:
        columns = zip(*(series.values for series in chart.series), strict=True)
        highest = max((sum(v for v in column if v is not None and v > 0) for column in columns), default=0.0)
        return ticks(highest)[-1] * 1.02
    known = [v for s in chart.series for v in (*s.values, *s.high) if v is not None and is_number(v)]
    return ticks(max(known, default=0.0) * 1.08)[-1]


def _values(values: Sequence[float | None]) -> list[float]:
    """Values for Matplotlib, in which NaN makes a gap."""
    return [value if value is not None and is_number(value) else math.nan for value in values]


def _ends(series: ChartSeries) -> list[list[float]] | None:
    if not series.low or not series.high:
        return None
    values, lows, highs = _values(series.values), _values(series.low), _values(series.high)
    down = [max(0.0, v - low) if math.isfinite(low) else 0.0 for v, low in zip(values, lows, strict=True)]
    up = [max(0.0, high - v) if math.isfinite(high) else 0.0 for v, high in zip(values, highs, strict=True)]
    return [down, up]


def safe(text: str, limit: int = 80) -> str:
    """Text that Matplotlib draws as it is: a dollar sign would start a formula, a leading underscore hide a label."""
    line = plain(text, limit).replace("\\", "\N{REVERSE SOLIDUS OPERATOR}").replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{line}" if line.startswith("_") else line
