"""Charts of a slide: native ones, whose data can be edited, in the report's colours."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from perf_diagnostics.report.drawing.palette import LIGHT, series_mark
from perf_diagnostics.report.drawing.scale import ticks
from perf_diagnostics.report.model import Chart, ChartKind
from perf_diagnostics.report.slides.ooxml import add_whiskers, chart_data, describe, label_every, logarithmic
from perf_diagnostics.report.slides.slide_layout import Box
from perf_diagnostics.report.words import is_number

_LABELS = 16
_DENSE = 60
#: How much of a roofline's logarithmic axes, which hold two to four decades, a point's name takes.
_DECADES_OF_A_NAME = 0.1


def draw_chart(slide: Any, box: Box, chart: Chart) -> None:
    """A native chart whose data can be edited; a value that is None is a gap in it."""
    from pptx.enum.chart import XL_CHART_TYPE, XL_LEGEND_POSITION
    from pptx.util import Inches, Pt

    kinds = {
        ChartKind.LINE: XL_CHART_TYPE.LINE_MARKERS,
        ChartKind.STACKED_BAR: XL_CHART_TYPE.COLUMN_STACKED,
        ChartKind.BAR: XL_CHART_TYPE.COLUMN_CLUSTERED,
        ChartKind.LYING_BAR: XL_CHART_TYPE.BAR_CLUSTERED,
        ChartKind.ROOFLINE: XL_CHART_TYPE.XY_SCATTER,
    }
    place = (Inches(part) for part in (box.left, box.top, box.width, box.height))
    graphic = slide.shapes.add_chart(kinds[chart.kind], *place, chart_data(chart))
    describe(graphic, f"{chart.title}. {chart.takeaway}")
    drawn = graphic.chart
    drawn.has_title = False
    drawn.font.size, drawn.font.color.rgb = Pt(12), rgb(LIGHT.muted)
    drawn.has_legend = len(chart.series) + len(chart.lines) > 1
    if drawn.has_legend:
        drawn.legend.position, drawn.legend.include_in_layout = XL_LEGEND_POSITION.TOP, False
        drawn.legend.font.size = Pt(12)
    _axes(drawn, chart)
    if chart.kind is ChartKind.ROOFLINE:
        _roofline(drawn, chart)
        return
    plot = drawn.plots[0]
    if chart.kind is ChartKind.LYING_BAR:
        _lie_down(drawn)
    if chart.kind is not ChartKind.LINE:
        plot.gap_width, plot.overlap = 55, 100 if chart.kind is ChartKind.STACKED_BAR else 0
    for position, (series, values) in enumerate(zip(plot.series, chart.series, strict=True)):
        colour = LIGHT.marks[series_mark(values.key, position)]
        _colour(series, chart, colour, position, sparse=sum(v is not None for v in values.values) <= _DENSE)
        if chart.kind is ChartKind.LINE:
            add_whiskers(series, values, colour[1:])


def _axes(drawn: Any, chart: Chart) -> None:
    from pptx.enum.chart import XL_TICK_MARK
    from pptx.util import Pt

    value, category = drawn.value_axis, drawn.category_axis
    if chart.kind is not ChartKind.ROOFLINE:
        value.minimum_scale = 0
    if chart.unit == "%" and chart.kind is ChartKind.STACKED_BAR:
        value.maximum_scale = 100
    elif chart.kind is ChartKind.LINE and any(series.high for series in chart.series):
        value.maximum_scale = _round_top(chart)  # programs choose it by the values and cut the intervals off
    value.major_gridlines.format.line.color.rgb = rgb(LIGHT.line)
    value.format.line.fill.background()
    category.format.line.color.rgb = rgb(LIGHT.muted)
    for axis, label in ((value, chart.y_label), (category, chart.x_label)):
        axis.has_title = True
        axis.axis_title.text_frame.text = label
        font = axis.axis_title.text_frame.paragraphs[0].runs[0].font if label else None
        if font is not None:
            font.size, font.bold, font.color.rgb = Pt(12), False, rgb(LIGHT.muted)
    if len(chart.categories) > _LABELS:
        label_every(category, math.ceil(len(chart.categories) / _LABELS))
        category.major_tick_mark = XL_TICK_MARK.NONE  # LibreOffice draws one for every category


def _round_top(chart: Chart) -> float:
    """A round number that no value and no end of an interval is above."""
    known = [v for s in chart.series for v in (*s.values, *s.high) if v is not None and is_number(v)]
    return ticks(max(known, default=0.0))[-1]


def _colour(series: Any, chart: Chart, colour: str, position: int, *, sparse: bool) -> None:
    from pptx.enum.chart import XL_MARKER_STYLE
    from pptx.util import Pt

    if chart.kind is not ChartKind.LINE:
        series.format.fill.solid()
        series.format.fill.fore_color.rgb = rgb(colour)
        series.invert_if_negative = False
        return
    dense = len(chart.categories) > _DENSE
    series.smooth = False
    series.format.line.color.rgb, series.format.line.width = rgb(colour), Pt(1.25 if dense else 2.25)
    styles = (XL_MARKER_STYLE.CIRCLE, XL_MARKER_STYLE.SQUARE, XL_MARKER_STYLE.TRIANGLE, XL_MARKER_STYLE.DIAMOND)
    marked = not dense or sparse  # a point between gaps would not be seen without a mark
    series.marker.style = styles[position % len(styles)] if marked else XL_MARKER_STYLE.NONE
    if marked:
        series.marker.size = 4 if dense else 7
        series.marker.format.fill.solid()
        series.marker.format.fill.fore_color.rgb = rgb(colour)
        series.marker.format.line.color.rgb = rgb(colour)


def _lie_down(drawn: Any) -> None:
    """Lying bars from the top down, with their numbers beside them instead of a scale."""
    from pptx.enum.chart import XL_LABEL_POSITION
    from pptx.util import Pt

    drawn.category_axis.reverse_order = True
    drawn.value_axis.has_major_gridlines, drawn.value_axis.visible = False, False
    drawn.category_axis.has_title = False
    plot = drawn.plots[0]
    plot.has_data_labels = True
    labels = plot.data_labels
    labels.number_format, labels.number_format_is_linked = "[>=100]#,##0;[>=10]0.0;0.00", False
    labels.position = XL_LABEL_POSITION.OUTSIDE_END
    labels.font.size, labels.font.color.rgb = Pt(12), rgb(LIGHT.text)


def _roofline(drawn: Any, chart: Chart) -> None:
    """Limits as lines without marks, measured points as marks without a line, both axes logarithmic."""
    from pptx.enum.chart import XL_LABEL_POSITION, XL_MARKER_STYLE
    from pptx.util import Pt

    places = [place for line in chart.lines for place in line.points]
    series = list(drawn.plots[0].series)
    for line in series[: len(chart.lines)]:
        line.smooth, line.marker.style = False, XL_MARKER_STYLE.NONE
        line.format.line.color.rgb, line.format.line.width = rgb(LIGHT.muted), Pt(2.25)
    for position, (points, values) in enumerate(zip(series[len(chart.lines) :], chart.series, strict=True)):
        colour = rgb(LIGHT.marks[series_mark(values.key, position)])
        points.format.line.fill.background()
        points.marker.style, points.marker.size = XL_MARKER_STYLE.CIRCLE, 9
        points.marker.format.fill.solid()
        points.marker.format.fill.fore_color.rgb = colour
        shown = [
            (x, value, name)
            for x, value, name in zip(chart.x, values.values, chart.categories, strict=True)
            if value is not None and value > 0 and x > 0
        ]
        places += [(x, value) for x, value, _ in shown]
        for index in _apart(shown, values.highlight):
            x, y, name = shown[index]
            beside = any(x < a and _near(x, a) and _near(y, b) for a, b, _ in shown)  # its mark would lie on the name
            label = points.points[index].data_label
            label.has_text_frame = True
            label.position = XL_LABEL_POSITION.LEFT if beside else XL_LABEL_POSITION.RIGHT
            label.text_frame.text = name
            label.text_frame.paragraphs[0].runs[0].font.size = Pt(12)
    if places:
        across, up = [x for x, _ in places], [y for _, y in places]
        for axis, ends in ((drawn.category_axis, across), (drawn.value_axis, up)):
            # Whole powers of ten: not every program draws a logarithmic axis that begins elsewhere.
            logarithmic(axis, 10.0 ** math.floor(math.log10(min(ends))), 10.0 ** math.ceil(math.log10(max(ends))))


def _apart(shown: Sequence[tuple[float, float, str]], stressed: str) -> list[int]:
    """The points of a roofline that get their names: the stressed one, and of the others what lies clear of these."""
    named: list[int] = []
    for index in sorted(range(len(shown)), key=lambda index: shown[index][2] != stressed):
        x, y, _ = shown[index]
        if not any(_near(x, shown[one][0]) and _near(y, shown[one][1]) for one in named):
            named.append(index)
    return named


def _near(one: float, other: float) -> bool:
    return abs(math.log10(one / other)) < _DECADES_OF_A_NAME


def rgb(colour: str) -> Any:
    """A colour of the palette for python-pptx."""
    from pptx.dml.color import RGBColor

    return RGBColor.from_string(colour[1:])  # type: ignore[no-untyped-call]
