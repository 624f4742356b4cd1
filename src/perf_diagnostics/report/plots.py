"""The report's charts as Matplotlib figures, and the three pictures they make.

Figures are made without pyplot: nothing here changes the backend, the style or the open figures of a user's notebook.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries, Report
from perf_diagnostics.report.palette import LIGHT, series_mark
from perf_diagnostics.report.scale import ticks
from perf_diagnostics.report.words import clean, is_number, number, plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150
_PANEL_IN = (7.2, 4.3)
_MARKERS = ("o", "s", "^", "D")
_DASHES = ("-", "--", ":", "-.")


def throughput_figure(report: Report) -> Figure:
    """Samples per second against batch size."""
    return _figure(report, "throughput", "Throughput")


def time_breakdown_figure(report: Report) -> Figure:
    """Time of a step by phase against batch size, one panel a configuration."""
    return _figure(report, "time_breakdown", "The time of a step's phases")


def memory_figure(report: Report) -> Figure:
    """Peak memory of the process and of the device against batch size."""
    return _figure(report, "memory", "Peak memory")


#: The pictures by file name.
PICTURES: Mapping[str, Callable[[Report], Figure]] = {
    "throughput_vs_batch_size.png": throughput_figure,
    "time_breakdown.png": time_breakdown_figure,
    "memory_usage.png": memory_figure,
}


def figures(report: Report) -> dict[str, Figure]:
    """All pictures as Matplotlib figures, by file name."""
    return {name: draw(report) for name, draw in PICTURES.items()}


def render_picture(report: Report, file_name: str) -> bytes:
    """One of :data:`PICTURES` as PNG; where nothing was measured the picture says so.

    Raises:
        FormatUnavailable: Matplotlib is missing.
    """
    with _own_style():
        return _png(PICTURES[file_name](report))


def _png(figure: Figure) -> bytes:
    """A figure as PNG, drawn by Agg whatever backend the user chose."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas: Any = FigureCanvasAgg(figure)
    written = io.BytesIO()
    with warnings.catch_warnings():
        # A name in a script the font lacks shows boxes; that is no reason to fail or to warn a reader.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from font", category=UserWarning)
        canvas.print_png(written, metadata={"Software": None})
    return written.getvalue()


def _figure(report: Report, key: str, subject: str) -> Figure:
    charts = [chart for chart in clean(report).charts if chart.key == key or chart.key.startswith(f"{key}_")]
    panels = max(1, len(charts))
    columns = min(2, panels)
    rows = math.ceil(panels / columns)
    size = (_PANEL_IN[0] * columns, _PANEL_IN[1] * rows)
    figure = _new_figure(figsize=size, dpi=_DPI, layout="constrained", facecolor=LIGHT.surface)
    if not charts:
        figure.text(0.5, 0.5, f"{subject} was not measured in any completed trial.", ha="center", color=LIGHT.text)
    for index, chart in enumerate(charts):
        _draw(figure.add_subplot(rows, columns, index + 1), chart)
    return figure


def _new_figure(**settings: Any) -> Figure:
    """A figure that a notebook shows as a picture, whether or not pyplot was ever imported there."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise FormatUnavailable("Matplotlib is not installed; pip install matplotlib.") from error

    class ShownFigure(Figure):
        def _repr_png_(self) -> bytes:
            return _png(self)

    return ShownFigure(**settings)


#: Settings of matplotlib that are about the session and not about how a figure looks; they stay the user's.
_NOT_STYLE = (
    *("backend", "interactive", "toolbar", "timezone", "tk.", "webagg.", "savefig.directory", "date.epoch"),
    *("docstring.", "figure.max_open_warning", "figure.raise_window"),
)


@contextmanager
def _own_style() -> Iterator[None]:
    """Matplotlib's defaults instead of the user's style, so that equal reports make equal pictures."""
    try:
        import matplotlib
    except ImportError as error:
        raise FormatUnavailable("Matplotlib is not installed; pip install matplotlib.") from error
    defaults = {k: v for k, v in matplotlib.rcParamsDefault.items() if not k.startswith(_NOT_STYLE)}
    with matplotlib.rc_context(defaults):
        yield


def _draw(axes: Any, chart: Chart) -> None:
    axes.set_facecolor(LIGHT.surface)
    axes.set_title(_safe(chart.title, 70), loc="left", fontsize=12, fontweight="bold", color=LIGHT.text)
    axes.set_xlabel(_safe(chart.x_label), color=LIGHT.muted)
    axes.set_ylabel(_safe(chart.y_label), color=LIGHT.muted)
    places = list(range(len(chart.categories)))
    draw = _line if chart.kind is ChartKind.LINE else _stack
    draw(axes, chart, places)
    axes.set_xticks(places, [_safe(category, 14) for category in chart.categories])
    for category, words in chart.marks:
        if category in chart.categories:
            at = chart.categories.index(category)
            axes.plot([at], [0.03], "x", color=LIGHT.critical, transform=axes.get_xaxis_transform(), markeredgewidth=2)
            axes.text(
                at, 0.07, _safe(words, 30), rotation=90, ha="center", va="bottom", fontsize=8, color=LIGHT.critical,
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


def _line(axes: Any, chart: Chart, places: Sequence[int]) -> None:
    for position, series in enumerate(chart.series):
        colour = LIGHT.marks[series_mark(series.key, position)]
        axes.errorbar(
            places,
            _values(series.values),
            yerr=_ends(series),
            color=colour,
            marker=_MARKERS[position % len(_MARKERS)],
            linestyle=_DASHES[position % len(_DASHES)],
            linewidth=2,
            markersize=5,
            capsize=3,
            label=_safe(series.name, 40),
        )
        for at, (category, value) in enumerate(zip(chart.categories, series.values, strict=True)):
            if category == series.highlight and value is not None:
                axes.annotate(
                    number(value), (at, value), xytext=(0, 9), textcoords="offset points", ha="center",
                    fontweight="bold", color=LIGHT.text,
                )  # fmt: skip


def _stack(axes: Any, chart: Chart, places: Sequence[int]) -> None:
    bottom = [0.0] * len(places)
    for position, series in enumerate(chart.series):
        heights = [max(0.0, value) if is_number(value) and value is not None else 0.0 for value in series.values]
        colour = LIGHT.marks[series_mark(series.key, position)]
        axes.bar(places, heights, bottom=bottom, width=0.7, color=colour, label=_safe(series.name, 40))
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


def _safe(text: str, limit: int = 80) -> str:
    """Text that Matplotlib draws as it is: a dollar sign would start a formula, a leading underscore hide a label."""
    line = plain(text, limit).replace("\\", "\N{REVERSE SOLIDUS OPERATOR}").replace("$", r"\$")
    return f"\N{ZERO WIDTH SPACE}{line}" if line.startswith("_") else line
