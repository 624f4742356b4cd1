"""A deck of 16:9 slides with native text, tables and charts: it knows how to draw, not what a report says."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from perf_diagnostics.report.drawing.palette import LIGHT
from perf_diagnostics.report.model import Chart
from perf_diagnostics.report.slides.ooxml import describe, stable, underline_cell
from perf_diagnostics.report.slides.slide_charts import draw_chart, rgb
from perf_diagnostics.report.slides.slide_layout import HEIGHT_IN, MARGIN, WIDTH_IN, Box, Grid, Line, cut
from perf_diagnostics.report.words import plain, tie


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
        self._write(
            slide.shapes.title.text_frame,
            [Line(plain(title, 150), 26 if len(title) <= _ONE_LINE else 20, bold=True, space_after=0)],
        )
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
            run.text = tie(f"•  {line.text}" if line.bullet else line.text)
            run.font.size, run.font.bold = Pt(line.size), line.bold
            if line.mono:
                run.font.name = _MONO
            run.font.color.rgb = rgb(getattr(LIGHT, line.colour))

    def block(self, slide: Any, box: Box, colour: str) -> None:
        """A filled rectangle that only decorates."""
        from pptx.enum.shapes import MSO_SHAPE

        shape = slide.shapes.add_shape(MSO_SHAPE.RECTANGLE, 0, 0, 0, 0)
        self._place(shape, box)
        shape.fill.solid()
        shape.fill.fore_color.rgb = rgb(getattr(LIGHT, colour))
        shape.line.fill.background()
        shape.shadow.inherit = False
        describe(shape, "Decoration")

    def table(self, slide: Any, box: Box, grid: Grid) -> None:
        """A native table, as wide as the box at most; a text too long for its column ends in "…"."""
        from pptx.util import Inches

        size = grid.size
        widths = grid.widths(box.width)
        graphic = slide.shapes.add_table(len(grid.rows) + 1, len(widths), 0, 0, Inches(sum(widths)), Inches(1))
        heights = grid.row_heights(box.width)
        self._place(graphic, Box(box.left, box.top, sum(widths), grid.head_height_in + sum(heights)))
        describe(graphic, grid.says)
        table = graphic.table
        table.horz_banding = False
        table._tbl.tblPr.find("{http://schemas.openxmlformats.org/drawingml/2006/main}tableStyleId").text = _NO_STYLE
        for column, width in zip(table.columns, widths, strict=True):
            column.width = Inches(width)
        table.rows[0].height = Inches(grid.head_height_in)
        for row, height in zip(list(table.rows)[1:], heights, strict=True):
            row.height = Inches(height)
        for c, (label, unit) in enumerate(grid.heads):
            lines = [Line(cut(part, widths[c], size), size, "muted", space_after=0) for part in (label, unit) if part]
            self._fill(table.cell(0, c), lines or [Line("", size)], right=grid.numeric[c])
        for r, cells in enumerate(grid.rows):
            for c, text in enumerate(cells):
                shown = cut(text, widths[c], size, 2 if grid.tall and not grid.numeric[c] else 1)
                line = Line(shown, size, space_after=0, mono=bool(grid.mono) and grid.mono[c])
                self._fill(table.cell(r + 1, c), [line], right=grid.numeric[c], middle=True)

    def _fill(self, cell: Any, lines: Sequence[Line], *, right: bool, middle: bool = False) -> None:
        from pptx.enum.text import MSO_ANCHOR
        from pptx.util import Pt

        self._write(cell.text_frame, lines, right=right)
        cell.margin_left = cell.margin_right = Pt(MARGIN)
        cell.margin_top = cell.margin_bottom = Pt(2)
        cell.vertical_anchor = MSO_ANCHOR.MIDDLE if middle else MSO_ANCHOR.BOTTOM
        cell.fill.background()
        underline_cell(cell, LIGHT.line[1:])

    def chart(self, slide: Any, box: Box, chart: Chart) -> None:
        """A native chart whose data can be edited; a value that is None is a gap in it."""
        draw_chart(slide, box, chart)

    def to_bytes(self) -> bytes:
        written = io.BytesIO()
        self._deck.save(written)
        return stable(written.getvalue())


#: A longer title takes two lines, for which it is set smaller.
_ONE_LINE = 56

#: As wide as its stand-ins on every system.
_MONO = "Courier New"

#: The built-in table style without colours and lines.
_NO_STYLE = "{2D5ABB26-0587-4C30-8999-92F81FD0307C}"
