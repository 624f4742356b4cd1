"""A deck of 16:9 slides with native text, tables and charts: it knows how to draw, not what a report says."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from perf_diagnostics.report.model import Chart, ChartKind
from perf_diagnostics.report.ooxml import add_whiskers, chart_data, describe, label_every, stable, underline_cell
from perf_diagnostics.report.palette import LIGHT, series_mark
from perf_diagnostics.report.slide_layout import HEIGHT_IN, MARGIN, WIDTH_IN, Box, Grid, Line, cut
from perf_diagnostics.report.words import plain

_LABELS = 16
_DENSE = 60


class Deck:
    """Slides under construction; :meth:`to_bytes` gives the file, equal for equal slides."""

    def __init__(self, title: str, created: datetime | None) -> None:
        import pptx

        self._deck: Any = pptx.Presentation()
        self._widen()
        moment = (created or datetime(2000, 1, 1, tzinfo=UTC)).astimezone(UTC).replace(tzinfo=None)
        properties = self._deck.core_properties
        properties.title, properties.author, properties.last_modified_by = title[:250], "perf-diagnostics", ""
        properties.created = properties.modified = moment
        properties.revision = 1

    def _widen(self) -> None:
        """Turn the 4:3 of the built-in template into 16:9, its layouts included."""
        from pptx.util import Inches

        wide = Inches(WIDTH_IN)
        factor = wide / self._deck.slide_width
        self._deck.slide_width, self._deck.slide_height = wide, Inches(HEIGHT_IN)
        for parent in (self._deck.slide_master, *self._deck.slide_layouts):
            for shape in parent.placeholders:
                shape.left, shape.width = int(shape.left * factor), int(shape.width * factor)

    def slide(self, title: str, notes: str = "") -> Any:
        """A new slide with a title and speaker notes."""
        from pptx.enum.text import MSO_ANCHOR

        slide = self._deck.slides.add_slide(self._deck.slide_layouts[5])
        self._place(slide.shapes.title, Box(0.65, 0.45, WIDTH_IN - 1.3, 0.85))
        self._write(slide.shapes.title.text_frame, [Line(plain(title, 110), 26, bold=True, space_after=0)])
        slide.shapes.title.text_frame.vertical_anchor = MSO_ANCHOR.MIDDLE
        if notes:
            slide.notes_slide.notes_text_frame.text = notes
        self._number(slide)
        return slide

    def _number(self, slide: Any) -> None:
        box = Box(WIDTH_IN - 1.65, HEIGHT_IN - 0.45, 1.0, 0.3)
        self.text(slide, box, [Line(str(len(self._deck.slides)), 10, "muted", space_after=0)], right=True)

    def text(self, slide: Any, box: Box, lines: Sequence[Line], *, right: bool = False) -> None:
        """Paragraphs in a box; what is to fit is the caller's business (see :func:`paged`)."""
        shape = slide.shapes.add_textbox(0, 0, 0, 0)
        self._place(shape, box)
        self._write(shape.text_frame, lines, right=right)

    def _place(self, shape: Any, box: Box) -> None:
        from pptx.util import Inches

        shape.left, shape.top, shape.width, shape.height = (
            Inches(part) for part in (box.left, box.top, box.width, box.height)
        )

    def _write(self, frame: Any, lines: Sequence[Line], *, right: bool = False) -> None:
        from pptx.enum.text import MSO_AUTO_SIZE, PP_ALIGN
        from pptx.util import Pt

        frame.word_wrap, frame.auto_size = True, MSO_AUTO_SIZE.NONE
        frame.margin_left = frame.margin_right = frame.margin_top = frame.margin_bottom = 0
        for index, line in enumerate(lines):
            paragraph = frame.paragraphs[0] if index == 0 else frame.add_paragraph()
            paragraph.alignment = PP_ALIGN.RIGHT if right else PP_ALIGN.LEFT
            paragraph.space_after = Pt(line.space_after)
            run = paragraph.add_run()
            run.text = f"•  {line.text}" if line.bullet else line.text
            run.font.size, run.font.bold = Pt(line.size), line.bold
            run.font.color.rgb = _rgb(getattr(LIGHT, line.colour))

    def block(self, slide: Any, box: Box, colour: str) -> None:
        """A filled rectangle that only decorates."""
        from pptx.enum.shapes import MSO_SHAPE

        shape = slide.shapes.add_shape(MSO_SHAPE.RECTANGLE, 0, 0, 0, 0)
        self._place(shape, box)
        shape.fill.solid()
        shape.fill.fore_color.rgb = _rgb(getattr(LIGHT, colour))
        shape.line.fill.background()
        shape.shadow.inherit = False
        describe(shape, "Decoration")

    def table(self, slide: Any, box: Box, grid: Grid) -> None:
        """A native table, as wide as the box at most; a text too long for its column ends in "…"."""
        from pptx.util import Inches

        size = grid.size
        widths = grid.widths(box.width)
        graphic = slide.shapes.add_table(len(grid.rows) + 1, len(widths), 0, 0, Inches(sum(widths)), Inches(1))
        self._place(graphic, Box(box.left, box.top, sum(widths), grid.height_in))
        describe(graphic, grid.says)
        table = graphic.table
        table.horz_banding = False
        table._tbl.tblPr.find("{http://schemas.openxmlformats.org/drawingml/2006/main}tableStyleId").text = _NO_STYLE
        for column, width in zip(table.columns, widths, strict=True):
            column.width = Inches(width)
        table.rows[0].height = Inches(grid.head_height_in)
        for row in list(table.rows)[1:]:
            row.height = Inches(grid.row_height_in)
        for c, (label, unit) in enumerate(grid.heads):
            lines = [Line(cut(part, widths[c], size), size, "muted", space_after=0) for part in (label, unit) if part]
            self._fill(table.cell(0, c), lines or [Line("", size)], right=grid.numeric[c])
        for r, cells in enumerate(grid.rows):
            for c, text in enumerate(cells):
                line = Line(cut(text, widths[c], size), size, space_after=0)
                self._fill(table.cell(r + 1, c), [line], right=grid.numeric[c])

    def _fill(self, cell: Any, lines: Sequence[Line], *, right: bool) -> None:
        from pptx.enum.text import MSO_ANCHOR
        from pptx.util import Pt

        self._write(cell.text_frame, lines, right=right)
        cell.margin_left = cell.margin_right = Pt(MARGIN)
        cell.margin_top = cell.margin_bottom = Pt(2)
        cell.vertical_anchor = MSO_ANCHOR.BOTTOM
        cell.fill.background()
        underline_cell(cell, LIGHT.line[1:])

    def chart(self, slide: Any, box: Box, chart: Chart) -> None:
        """A native chart whose data can be edited; a value that is None is a gap in it."""
        from pptx.enum.chart import XL_CHART_TYPE, XL_LEGEND_POSITION
        from pptx.util import Inches, Pt

        kinds = {
            ChartKind.LINE: XL_CHART_TYPE.LINE_MARKERS,
            ChartKind.STACKED_BAR: XL_CHART_TYPE.COLUMN_STACKED,
            ChartKind.BAR: XL_CHART_TYPE.COLUMN_CLUSTERED,
        }
        place = (Inches(part) for part in (box.left, box.top, box.width, box.height))
        graphic = slide.shapes.add_chart(kinds[chart.kind], *place, chart_data(chart))
        describe(graphic, f"{chart.title}. {chart.takeaway}")
        drawn = graphic.chart
        drawn.has_title = False
        drawn.font.size, drawn.font.color.rgb = Pt(12), _rgb(LIGHT.muted)
        drawn.has_legend = len(chart.series) > 1
        if drawn.has_legend:
            drawn.legend.position, drawn.legend.include_in_layout = XL_LEGEND_POSITION.TOP, False
            drawn.legend.font.size = Pt(12)
        self._axes(drawn, chart)
        plot = drawn.plots[0]
        if chart.kind is not ChartKind.LINE:
            plot.gap_width, plot.overlap = 55, 100 if chart.kind is ChartKind.STACKED_BAR else 0
        for position, (series, values) in enumerate(zip(plot.series, chart.series, strict=True)):
            colour = LIGHT.marks[series_mark(values.key, position)]
            self._colour(series, chart, colour, position)
            if chart.kind is ChartKind.LINE:
                add_whiskers(series, values, colour[1:])

    def _axes(self, drawn: Any, chart: Chart) -> None:
        from pptx.util import Pt

        value, category = drawn.value_axis, drawn.category_axis
        value.minimum_scale = 0
        if chart.unit == "%" and chart.kind is ChartKind.STACKED_BAR:
            value.maximum_scale = 100
        value.major_gridlines.format.line.color.rgb = _rgb(LIGHT.line)
        value.format.line.fill.background()
        category.format.line.color.rgb = _rgb(LIGHT.muted)
        for axis, label in ((value, chart.y_label), (category, chart.x_label)):
            axis.has_title = True
            axis.axis_title.text_frame.text = label
            font = axis.axis_title.text_frame.paragraphs[0].runs[0].font if label else None
            if font is not None:
                font.size, font.bold, font.color.rgb = Pt(12), False, _rgb(LIGHT.muted)
        if len(chart.categories) > _LABELS:
            label_every(category, math.ceil(len(chart.categories) / _LABELS))

    def _colour(self, series: Any, chart: Chart, colour: str, position: int) -> None:
        from pptx.enum.chart import XL_MARKER_STYLE
        from pptx.util import Pt

        if chart.kind is not ChartKind.LINE:
            series.format.fill.solid()
            series.format.fill.fore_color.rgb = _rgb(colour)
            series.invert_if_negative = False
            return
        dense = len(chart.categories) > _DENSE
        series.smooth = False
        series.format.line.color.rgb, series.format.line.width = _rgb(colour), Pt(1.25 if dense else 2.25)
        styles = (XL_MARKER_STYLE.CIRCLE, XL_MARKER_STYLE.SQUARE, XL_MARKER_STYLE.TRIANGLE, XL_MARKER_STYLE.DIAMOND)
        series.marker.style = XL_MARKER_STYLE.NONE if dense else styles[position % len(styles)]
        if not dense:
            series.marker.size = 7
            series.marker.format.fill.solid()
            series.marker.format.fill.fore_color.rgb = _rgb(colour)
            series.marker.format.line.color.rgb = _rgb(colour)

    def to_bytes(self) -> bytes:
        written = io.BytesIO()
        self._deck.save(written)
        return stable(written.getvalue())


#: The built-in table style without colours and lines.
_NO_STYLE = "{2D5ABB26-0587-4C30-8999-92F81FD0307C}"


def _rgb(colour: str) -> Any:
    from pptx.dml.color import RGBColor

    return RGBColor.from_string(colour[1:])  # type: ignore[no-untyped-call]
