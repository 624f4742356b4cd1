"""The report's charts as Matplotlib figures, and the three pictures they make.

Figures are made without pyplot: nothing here changes the backend, the style or the open figures of a user's notebook.
"""

from __future__ import annotations

import io
import math
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.report.drawing.axes import draw, safe
from perf_diagnostics.report.drawing.palette import LIGHT
from perf_diagnostics.report.model import Report
from perf_diagnostics.report.words import clean, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150
_PANEL_IN = (7.2, 4.3)


def throughput_figure(report: Report) -> Figure:
    """Samples per second against batch size; of a single one, the time of its steps one after the other."""
    return _figure(report, ("throughput", "course"), "Throughput")


def time_breakdown_figure(report: Report) -> Figure:
    """Time of a sample by phase against batch size, one panel a configuration; of a single size that of a step."""
    return _figure(report, ("time_breakdown",), "The time of a step's phases")


def memory_figure(report: Report) -> Figure:
    """Peak memory of the process and of the device against batch size."""
    return _figure(report, ("memory",), "Peak memory")


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


def _figure(report: Report, keys: Sequence[str], subject: str) -> Figure:
    """The charts of the first of some kinds that the report has, or in words why there is none."""
    report = clean(report)
    kinds = ([c for c in report.charts if c.key == key or c.key.startswith(f"{key}_")] for key in keys)
    charts = next((found for found in kinds if found), [])
    panels = max(1, len(charts))
    columns = min(2, panels)
    rows = math.ceil(panels / columns)
    size = (_PANEL_IN[0] * columns, _PANEL_IN[1] * rows)
    figure = _new_figure(figsize=size, dpi=_DPI, layout="constrained", facecolor=LIGHT.surface)
    if report.alerts:
        words = textwrap.fill(safe(report.alerts[0], 260), 100 * columns)
        figure.suptitle(words, fontsize=8, color=LIGHT.critical, fontweight="bold")
    if not charts:
        figure.text(0.5, 0.5, _nothing_drawn(report, subject), ha="center", va="center", color=LIGHT.text)
    for index, chart in enumerate(charts):
        draw(figure.add_subplot(rows, columns, index + 1), chart)
    return figure


def _nothing_drawn(report: Report, subject: str) -> str:
    """The number where there is a single one, which makes no chart; else that nothing was measured."""
    told = [
        safe(f"{figure.label}: {number(figure.value)} {figure.unit} {figure.note}".strip())
        for figure in report.key_figures
        if figure.label.startswith(subject) and figure.value is not None
    ]
    return "\n".join(told) if told else f"{subject} was not measured in any completed trial."


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
