"""What python-pptx leaves open: chart workbooks without formulas, whiskers and labels of charts, and stable bytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from perf_diagnostics.report.model import Chart, ChartKind, ChartSeries
from perf_diagnostics.report.words import is_number

#: The earliest moment a zip archive can name; every entry gets it, so that equal decks are equal files.
_EPOCH = datetime(1980, 1, 1, tzinfo=UTC)

_CHART = "http://schemas.openxmlformats.org/drawingml/2006/chart"
_DRAWING = "http://schemas.openxmlformats.org/drawingml/2006/main"


def chart_data(chart: Chart) -> Any:
    """The chart's values for python-pptx; None leaves its cell and its point empty.

    The workbook behind "Edit data" takes every text as text: a name that begins with ``=`` must not become a formula,
    nor one that looks like an address a link. A roofline's points are pairs of numbers; its limits are series behind
    them.
    """
    from pptx.chart.data import CategoryChartData, XyChartData
    from pptx.chart.xlsx import CategoryWorkbookWriter, XyWorkbookWriter

    class TextOnly:
        @contextmanager
        def _open_worksheet(self, xlsx_file: Any) -> Iterator[Any]:
            from xlsxwriter import Workbook  # type: ignore[import-untyped]

            options = {"in_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
            workbook = Workbook(xlsx_file, options)
            workbook.set_properties({"created": _EPOCH.replace(tzinfo=None)})
            yield workbook, workbook.add_worksheet()
            workbook.close()

    class CategoryWriter(TextOnly, CategoryWorkbookWriter):
        pass

    class XyWriter(TextOnly, XyWorkbookWriter):
        pass

    class TextOnlyChartData(CategoryChartData):
        @property
        def _workbook_writer(self) -> Any:
            return CategoryWriter(self)  # type: ignore[no-untyped-call]

    class TextOnlyXyData(XyChartData):
        @property
        def _workbook_writer(self) -> Any:
            return XyWriter(self)  # type: ignore[no-untyped-call]

    if chart.kind is ChartKind.ROOFLINE:
        return _pairs(chart, TextOnlyXyData())  # type: ignore[no-untyped-call]
    data: Any = TextOnlyChartData()  # type: ignore[no-untyped-call]
    data.categories = list(chart.categories)
    for series in chart.series:
        data.add_series(series.name, [value if is_number(value) else None for value in series.values])
    return data


def _pairs(chart: Chart, data: Any) -> Any:
    """The limits first, so that points lie over them.

    LibreOffice loses a line that is shorter than a later series, so lines repeat their last point.
    """
    for line in chart.lines:
        drawn = data.add_series(line.name)
        for x, y in line.points + line.points[-1:] * max(0, len(chart.x) - len(line.points)):
            drawn.add_data_point(x, y)
    for series in chart.series:
        drawn = data.add_series(series.name)
        for x, value in zip(chart.x, series.values, strict=True):
            if value is not None and is_number(value) and value > 0 and x > 0:
                drawn.add_data_point(x, value)
    return data


def logarithmic(axis: Any, lowest: float, highest: float) -> None:
    """Make a value axis logarithmic (base 10) from ``lowest`` to ``highest``, crossed at its lower end."""
    axis.minimum_scale, axis.maximum_scale = lowest, highest
    scaling = axis._element.find(f"{{{_CHART}}}scaling")
    scaling.insert(0, _parsed(f'<c:logBase xmlns:c="{_CHART}" val="10"/>'))
    crosses = axis._element.find(f"{{{_CHART}}}crosses")
    if crosses is not None:
        crosses.set("val", "min")


def add_whiskers(plotted: Any, series: ChartSeries, colour: str) -> None:
    """Draw a series' 95 % intervals as error bars with lengths of their own, from numbers kept in the chart."""
    if not any(is_number(value) for value in series.high):
        return
    ups, downs = [], []
    for value, low, high in zip(series.values, series.low, series.high, strict=True):
        whole = value is not None and low is not None and high is not None
        ups.append(max(0.0, high - value) if whole and high is not None and value is not None else 0.0)
        downs.append(max(0.0, value - low) if whole and low is not None and value is not None else 0.0)
    bars = (
        f'<c:errBars xmlns:c="{_CHART}" xmlns:a="{_DRAWING}"><c:errDir val="y"/><c:errBarType val="both"/>'
        f'<c:errValType val="cust"/><c:noEndCap val="0"/>{_literal("plus", ups)}{_literal("minus", downs)}'
        f'<c:spPr><a:ln w="15875"><a:solidFill><a:srgbClr val="{colour}"/></a:solidFill></a:ln></c:spPr></c:errBars>'
    )
    element = plotted._element
    element.find(f"{{{_CHART}}}cat").addprevious(_parsed(bars))


def _literal(tag: str, values: Sequence[float]) -> str:
    points = "".join(f'<c:pt idx="{i}"><c:v>{value!r}</c:v></c:pt>' for i, value in enumerate(values))
    return (
        f"<c:{tag}><c:numLit><c:formatCode>General</c:formatCode>"
        f'<c:ptCount val="{len(values)}"/>{points}</c:numLit></c:{tag}>'
    )


def label_every(axis: Any, nth: int) -> None:
    """Label every nth category only, where all of them would not fit.

    LibreOffice does not know the element that says so and labels as many as do not quite touch. The names between are
    therefore blank in the drawing as well; the sheet behind it, from which a chart is edited, keeps them all.
    """
    _empty_between(axis._element.getparent(), nth)
    last = axis._element.find(f"{{{_CHART}}}noMultiLvlLbl")
    for tag in ("tickLblSkip", "tickMarkSkip"):
        element = _parsed(f'<c:{tag} xmlns:c="{_CHART}" val="{nth}"/>')
        if last is None:
            axis._element.append(element)
        else:
            last.addprevious(element)


def _empty_between(plot_area: Any, nth: int) -> None:
    for names in plot_area.iter(f"{{{_CHART}}}cat"):
        for point in names.iter(f"{{{_CHART}}}pt"):
            if int(point.get("idx")) % nth:
                point.find(f"{{{_CHART}}}v").text = " "


def underline_cell(cell: Any, colour: str) -> None:
    """A thin line under a table cell."""
    line = (
        f'<a:lnB xmlns:a="{_DRAWING}" w="6350"><a:solidFill><a:srgbClr val="{colour}"/></a:solidFill>'
        '<a:prstDash val="solid"/></a:lnB>'
    )
    cell._tc.get_or_add_tcPr().insert(0, _parsed(line))


def describe(shape: Any, words: str) -> None:
    """The text that is read aloud for a shape that cannot be seen."""
    element = next(e for e in shape._element.iter() if e.tag.endswith("}cNvPr"))
    element.set("descr", words)


def _parsed(xml: str) -> Any:
    from pptx.oxml import parse_xml

    return parse_xml(xml)


def stable(package: bytes) -> bytes:
    """The same package with its entries in the same order and the same time on each."""
    written = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(package)) as old, zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.infolist():
            fixed = zipfile.ZipInfo(entry.filename, _EPOCH.timetuple()[:6])
            fixed.compress_type = zipfile.ZIP_DEFLATED
            fixed.external_attr = 0o600 << 16
            fixed.create_system = 3
            new.writestr(fixed, old.read(entry.filename))
    return written.getvalue()
