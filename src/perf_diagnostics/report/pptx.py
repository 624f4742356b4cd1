"""The report as slides: native, editable charts and tables, with the evidence in the speaker notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime

from perf_diagnostics.diagnose.finding import Evidence, Finding
from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.report.model import Chart, Report, ReportTable
from perf_diagnostics.report.signs import verdict_severity
from perf_diagnostics.report.slide_layout import BODY, HEIGHT_IN, WIDTH_IN, Box, Grid, Line, height_in, paged
from perf_diagnostics.report.slides import Deck
from perf_diagnostics.report.words import (
    DASH,
    between,
    cell,
    change_in_code,
    clean,
    could_not_look,
    gain,
    moment,
    number,
    plain,
)

_COLUMNS = 11
_EVIDENCE_ROWS = 6
_CUT_FROM = 20


def render_pptx(report: Report) -> bytes:
    """The report as a PowerPoint file; equal reports make equal bytes.

    Raises:
        FormatUnavailable: python-pptx is missing.
    """
    report = clean(report)
    try:
        deck = Deck(f"{report.title}: {report.run_name}", _moment(report.generated_at))
    except ImportError as error:
        raise FormatUnavailable("python-pptx is not installed; pip install python-pptx.") from error
    _opening(deck, report)
    _text_slides(deck, "The answer", _answer(report), _answer_notes(report))
    for chart in report.charts:
        if not chart.section:
            _chart_slide(deck, chart)
    overview = [table for table in report.tables if table.key == "findings"]
    for table in overview:
        _table_slides(deck, table)
    for finding in report.diagnosis.findings:
        _finding_slides(deck, finding)
    trials = [table for table in report.tables if table.key == "trials"]
    for table in report.tables:
        if table not in overview and table not in trials and not table.section:
            _table_slides(deck, table)
    for section in report.sections:
        for chart in section.charts:
            _chart_slide(deck, chart)
        for table in section.tables:
            _table_slides(deck, table)
    for table in trials:
        _table_slides(deck, table)
    _closing(deck, report)
    return deck.to_bytes()


def _moment(text: str) -> datetime | None:
    """A time stamp, in UTC where it names no zone; None where it is none."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _opening(deck: Deck, report: Report) -> None:
    """Title, verdict and key figures: what one slide has to say if it is the only one shown."""
    notes = "\n".join((report.headline, "", *report.answer))
    slide = deck.slide(report.title, notes)
    deck.text(slide, Box(0.65, 1.2, WIDTH_IN - 1.3, 0.35), [Line(report.subtitle, 14, "muted", space_after=0)])
    severity = verdict_severity(report)
    label = "No verdict"
    if report.diagnosis.verdict is not None:
        label = f"Verdict  {report.diagnosis.verdict.code} {report.diagnosis.verdict.name}"
    size = 24 if len(report.headline) <= 170 else 18
    lines = [Line(plain(label, 100), 13, "muted"), Line(plain(report.headline, 330), size, bold=True, space_after=0)]
    tall = min(1.95, sum(height_in(line, WIDTH_IN - 1.6) for line in lines))
    deck.block(slide, Box(0.65, 1.9, 0.09, tall), "muted" if severity == "none" else severity)
    deck.text(slide, Box(0.95, 1.9, WIDTH_IN - 1.6, 1.95), lines)
    columns = 4
    width, height = (WIDTH_IN - 1.3) / columns, 1.35
    for index, figure in enumerate(report.key_figures[: 2 * columns]):
        box = Box(0.65 + width * (index % columns), 4.1 + height * (index // columns), width - 0.2, height - 0.15)
        value = "not measured" if figure.value is None else f"{number(figure.value)} {figure.unit}".strip()
        lines = [
            Line(plain(figure.label, 34), 12, "muted", space_after=1),
            Line(plain(value, 26), 18, bold=True, space_after=1),
            Line(plain(figure.note, 60), 11, "muted", space_after=0),
        ]
        deck.text(slide, box, lines)
    footer = (
        f"Run {report.run_name} · report made {moment(report.generated_at)} by perf-diagnostics {report.tool_version}"
    )
    deck.text(
        slide, Box(0.65, HEIGHT_IN - 0.5, WIDTH_IN - 2.6, 0.3), [Line(plain(footer, 140), 11, "muted", space_after=0)]
    )


def _answer(report: Report) -> list[Line]:
    """The answer's paragraphs, a little smaller where that saves a slide."""
    for size in (16.0, 15.0, 14.0):
        lines = [Line(words, size, space_after=size * 0.7) for words in report.answer]
        if len(paged(lines, BODY)) == 1:
            return lines
    return [Line(words, 16, space_after=11) for words in report.answer]


def _answer_notes(report: Report) -> str:
    pairs = zip(report.answer, report.answer_basis, strict=False)
    return "\n\n".join(f"{words}\nRests on: {basis.says or basis.key}" for words, basis in pairs)


def _text_slides(deck: Deck, title: str, lines: Sequence[Line], notes: str = "") -> None:
    pages = paged(lines, BODY) if lines else []
    for index, page in enumerate(pages):
        slide = deck.slide(title if len(pages) == 1 else f"{title} ({index + 1} of {len(pages)})", notes)
        deck.text(slide, BODY, page)


def _chart_slide(deck: Deck, chart: Chart) -> None:
    marks = [f"{category}: {words}" for category, words in chart.marks]
    notes = [chart.takeaway, *marks]
    if len(chart.categories) <= 40:
        for series in chart.series:
            values = zip(chart.categories, series.values, strict=True)
            notes.append(f"{series.name}: " + ", ".join(f"{name} {number(value)}" for name, value in values))
    slide = deck.slide(chart.title, "\n".join(note for note in notes if note))
    lines = [Line(plain(chart.takeaway, 260), 15, "muted", space_after=2)]
    if marks:
        lines.append(Line(plain("Without values: " + "; ".join(marks), 200), 12, "muted", space_after=0))
    used = sum(height_in(line, BODY.width) for line in lines)
    deck.text(slide, Box(BODY.left, BODY.top - 0.15, BODY.width, used), lines)
    top = BODY.top + used
    deck.chart(slide, Box(BODY.left, top, BODY.width, BODY.top + BODY.height - top), chart)


def _finding_slides(deck: Deck, finding: Finding) -> None:
    name = finding.name.replace("-", " ")
    title = f"{finding.code} {name} ({finding.severity})"
    lines = [Line(finding.scope, 14, "muted"), Line(finding.summary, 18, space_after=8)]
    if (share := finding.recoverable) is not None:
        lines.append(Line(f"A fix {gain(share)}.", 16, "accent", bold=True, space_after=8))
    for remedy in finding.remedies:
        change = f"  [{change_in_code(remedy.change)}]" if remedy.change else ""
        lines.append(Line(f"{remedy.says}{change}", 15, bullet=True, space_after=4))
    lines = [
        Line(plain(line.text, 420), line.size, line.colour, line.bold, line.bullet, line.space_after) for line in lines
    ]
    shown = finding.evidence[:_EVIDENCE_ROWS]
    room = BODY.height - (0.4 + 0.34 * (len(shown) + 1) if shown else 0)
    pages = paged(lines, Box(BODY.left, BODY.top, BODY.width, room))
    for index, page in enumerate(pages):
        slide = deck.slide(title, _finding_notes(finding))
        severity = "accent" if finding.severity == "info" else str(finding.severity)
        deck.block(slide, Box(0.4, 0.55, 0.09, 0.65), severity)
        deck.text(slide, Box(BODY.left, BODY.top, BODY.width, room), page)
        if index == len(pages) - 1 and shown:
            used = sum(height_in(line, BODY.width) for line in page)
            box = Box(BODY.left, BODY.top + used + 0.25, BODY.width, 0)
            grid = Grid(
                _EVIDENCE, [_evidence(item) for item in shown], _EVIDENCE_NUMERIC, f"Evidence of {finding.code}"
            )
            deck.table(slide, box, grid)


_EVIDENCE = [(head, "") for head in ("Evidence", "Value", "95 % interval", "Limit", "Unit", "n", "Source")]
_EVIDENCE_NUMERIC = (False, True, True, True, False, True, False)


def _evidence(item: Evidence) -> tuple[str, ...]:
    interval = DASH if item.low is None or item.high is None else between(item.low, item.high)
    return (item.metric, number(item.value), interval, number(item.limit), item.unit, number(item.n), item.source)


def _finding_notes(finding: Finding) -> str:
    lines = [finding.summary, f"Where: {finding.scope}. Confidence {100 * finding.confidence:.0f} %.", "Evidence:"]
    lines += ["; ".join(part for part in _evidence(item) if part and part != DASH) for item in finding.evidence]
    return "\n".join(lines)


def _table_slides(deck: Deck, table: ReportTable) -> None:
    """A table over as many slides as it needs; a wide one is cut into columns, its first two on every slide."""
    rows = [[cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]
    heads = [(column.label, column.unit) for column in table.columns]
    numeric = [column.numeric for column in table.columns]
    grids = []
    for columns in _column_parts(len(heads)):
        whole = Grid([heads[i] for i in columns], [[row[i] for i in columns] for row in rows], numeric, table.title)
        grids += [
            Grid(whole.heads, some, [numeric[i] for i in columns], f"Table: {table.title}")
            for some in _evenly(whole.rows, whole.rows_in(BODY.height - 0.35))
        ]
    for index, grid in enumerate(grids):
        title = table.title if len(grids) == 1 else f"{table.title} ({index + 1} of {len(grids)})"
        slide = deck.slide(title, f"{table.note} A dash means: not measured.{_in_full(grid)}")
        deck.table(slide, BODY, grid)
        note = Line(plain(table.note, 230), 11, "muted", space_after=0)
        deck.text(slide, Box(BODY.left, HEIGHT_IN - 0.75, BODY.width - 1.2, 0.5), [note])


def _in_full(grid: Grid) -> str:
    """The longer texts of a table, which its columns may have to cut, for the notes."""
    told = [
        f"{row[0]}, {label.lower()}: {text}"
        for row in grid.rows
        for (label, _), text, numeric in list(zip(grid.heads, row, grid.numeric, strict=True))[1:]
        if not numeric and len(text) > _CUT_FROM
    ]
    return "".join(f"\n{words}" for words in dict.fromkeys(told))


def _evenly(rows: Sequence[Sequence[str]], most: int) -> list[Sequence[Sequence[str]]]:
    """The rows in stretches of about equal length, each of ``most`` at most."""
    pages = max(1, math.ceil(len(rows) / most))
    length = math.ceil(len(rows) / pages)
    return [rows[i : i + length] for i in range(0, len(rows), max(1, length))]


def _column_parts(count: int) -> list[list[int]]:
    if count <= _COLUMNS:
        return [list(range(count))]
    parts = math.ceil((count - 2) / (_COLUMNS - 2))
    length = math.ceil((count - 2) / parts)
    return [[0, 1, *range(i, min(i + length, count))] for i in range(2, count, length)]


def _closing(deck: Deck, report: Report) -> None:
    checks = [Line("Cleared", 16, bold=True)] if report.diagnosis.cleared else []
    checks += [Line(f"{r.code} {r.name.replace('-', ' ')}: {r.summary}", 14) for r in report.diagnosis.cleared]
    checks += [Line("Not checked", 16, bold=True)] if report.diagnosis.not_checked else []
    checks += [Line(could_not_look(why, rules), 14) for why, rules in report.diagnosis.not_checked_because.items()]
    beside = report.diagnosis.does_not_apply
    checks += [Line("Does not apply here", 16, bold=True)] if beside else []
    checks += [Line(f"{', '.join(r.code for r in rules)}: {why}", 14) for why, rules in beside.items()]
    _text_slides(deck, "What was checked", checks)
    _text_slides(deck, "Incomplete", [Line(words, 14, bullet=True) for words in report.incomplete])
    _text_slides(
        deck, "Not measured", [Line(f"{signal}: {why}", 14, bullet=True) for signal, why in report.not_measured]
    )
    _text_slides(deck, "How it was measured", [Line(words, 15, space_after=10) for words in report.method])
    facts = []
    for sheet in report.environment:
        facts.append(Line(sheet.title, 14, bold=True, space_after=2))
        facts.append(Line("; ".join(f"{name}: {value}" for name, value in sheet.facts), 12, space_after=8))
    _text_slides(deck, "Environment", facts)
