"""The report as slides: native, editable charts and tables, with the evidence in the speaker notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from perf_diagnostics.diagnose.finding import Cleared, Severity, Unchecked
from perf_diagnostics.diagnose.verdict_place import verdict_label, verdict_note, verdict_place, verdict_rule
from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.report.drawing.signs import verdict_severity
from perf_diagnostics.report.gains import saving
from perf_diagnostics.report.lead import lead_of
from perf_diagnostics.report.method import beside_not_checked
from perf_diagnostics.report.model import Change, KeyFigure, Report, ReportTable
from perf_diagnostics.report.slides.finding_slides import finding_slides, observation_slides
from perf_diagnostics.report.slides.paged_slides import chart_slide, text_slides
from perf_diagnostics.report.slides.slide_layout import BODY, HEIGHT_IN, WIDTH_IN, Box, Line, height_in, paged
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.slides.table_slides import packed_tables, table_slides
from perf_diagnostics.report.tables.code_table import CODE, code_on_a_slide
from perf_diagnostics.report.tables.sizes_table import SIZES
from perf_diagnostics.report.tried import TRIED, tried_on_a_slide
from perf_diagnostics.report.where import SOURCES
from perf_diagnostics.report.words import clean, could_not_look, counted, listing, moment, number, plain

#: Room for the verdict on the first slide.
_VERDICT_IN = 1.95


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
    _answers(deck, report)
    for chart in report.charts:
        if not chart.section:
            chart_slide(deck, chart)
    overview = [table for table in report.tables if table.key == "findings"]
    for table in overview:
        table_slides(deck, table)
    for finding in report.diagnosis.findings:
        if finding.severity is not Severity.INFO:
            finding_slides(deck, finding, report.diagnosis)
    observations = [f for f in report.diagnosis.findings if f.severity is Severity.INFO]
    observation_slides(deck, observations, report.diagnosis)
    trials = [table for table in report.tables if table.key == "trials"]
    rest = [table for table in report.tables if table not in overview and table not in trials and table.key != SIZES]
    waiting = [table for table in rest if not table.section]
    for section in report.sections:
        charts = [chart for chart in section.charts if not chart.is_one_group]
        if charts:
            packed_tables(deck, [_on_a_slide(table) for table in waiting])
            waiting = []
        for chart in charts:
            chart_slide(deck, chart)
        waiting += section.tables
    packed_tables(deck, [_on_a_slide(table) for table in waiting])
    for table in trials:
        table_slides(deck, table)
    _closing(deck, report)
    return deck.to_bytes()


def _answers(deck: Deck, report: Report) -> None:
    """What to change and what was measured, on one slide where both fit."""
    changes, answer, notes = _changes(report), _answer(report), _answer_notes(report)
    both = [
        *changes,
        Line("What was measured", 18, bold=True, space_after=6),
        *(replace(one, size=14) for one in answer),
    ]
    if changes and answer and len(paged(both, BODY)) == 1:
        text_slides(deck, "What to change", both, notes)
        return
    text_slides(deck, "What to change", changes)
    text_slides(deck, "What was measured", answer, notes)


def _on_a_slide(table: ReportTable) -> ReportTable:
    """A table as slides tell it: some have another, shorter form there."""
    if table.key == TRIED:
        return tried_on_a_slide(table)
    return code_on_a_slide(table) if table.key == CODE else table


def _moment(text: str) -> datetime | None:
    """A time stamp, in UTC where it names no zone; None where it is none."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)


def _opening(deck: Deck, report: Report) -> None:
    """Title, verdict and key figures: what one slide has to say if it is the only one shown."""
    place = verdict_place(report.diagnosis)
    note = verdict_note(report.diagnosis)
    notes = "\n".join((" ".join(part for part in (report.headline, place, note) if part), "", *report.answer))
    slide = deck.slide(report.title, notes)
    deck.text(slide, Box(0.65, 1.2, WIDTH_IN - 1.3, 0.35), [Line(report.subtitle, 14, "muted", space_after=0)])
    severity = verdict_severity(report)
    if report.alerts:
        alert = Line(plain(report.alerts[0], 300), 11, "critical", bold=True, space_after=0)
        deck.text(slide, Box(0.65, 0.12, WIDTH_IN - 1.3, 0.45), [alert])
    label = f"{verdict_label(report.diagnosis)}  {verdict_rule(report.diagnosis)}".rstrip()
    first, rest = lead_of(report)
    lines = _verdict_lines(label, first, rest, place, note)
    tall = min(_VERDICT_IN, sum(height_in(line, WIDTH_IN - 1.6) for line in lines))
    deck.block(slide, Box(0.65, 1.9, 0.09, tall), "muted" if severity == "none" else severity)
    deck.text(slide, Box(0.95, 1.9, WIDTH_IN - 1.6, _VERDICT_IN), lines)
    columns = 4
    width, height = (WIDTH_IN - 1.3) / columns, 1.35
    for index, figure in enumerate(_figures_shown(report, columns)):
        box = Box(0.65 + width * (index % columns), 4.1 + height * (index // columns), width - 0.2, height - 0.15)
        value = "not measured" if figure.value is None else f"{number(figure.value)} {figure.unit}".strip()
        lines = [
            Line(plain(figure.label, 34), 12, "muted", space_after=1),
            Line(plain(value, 26), 18, bold=True, space_after=1),
            Line(plain(figure.note, 60), 11, "muted", space_after=0),
        ]
        deck.text(slide, box, lines)
    if report.changes:
        deck.text(slide, Box(0.65, 5.4, WIDTH_IN - 1.3, 1.4), _first_change(report.changes[0]))
    footer = (
        f"Run {report.run_name} · report made {moment(report.generated_at)} by perf-diagnostics {report.tool_version}"
    )
    deck.text(
        slide, Box(0.65, HEIGHT_IN - 0.5, WIDTH_IN - 2.6, 0.3), [Line(plain(footer, 140), 11, "muted", space_after=0)]
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _figures_shown(report: Report, columns: int) -> Sequence[KeyFigure]:
    """Two rows of key figures, or one of the first configuration's: what to change matters more than a second one."""
    figures = report.key_figures
    if not report.changes or len(figures) <= columns:
        return figures[: 2 * columns]
    about = figures[0].label.partition(", ")[2]
    return [figure for figure in figures if figure.label.partition(", ")[2] in (about, "")][:columns]


def _first_change(change: Change) -> list[Line]:
    """What to change first, and what that wins; of words that are too long the setting behind them stays."""
    code = f"  [{plain(change.code, 100)}]" if change.code else ""
    return [
        Line("What to change first", 12, "muted", space_after=2),
        Line(f"{plain(change.says, 220 - len(code))}{code}", 15, bold=True, space_after=2),
        Line(_capital(saving(change.gain)), 16, "accent", bold=True, space_after=0),
    ]


def _verdict_lines(label: str, headline: str, rest: str, place: str, note: str) -> list[Line]:
    """The verdict with what is said besides, its line of code and what else there is to know, each if it fits; the
    line of code is worth a smaller headline, and more than what is said besides.
    """
    largest = 24 if len(headline) <= 170 else 18 if len(headline) <= 330 else 15
    sizes = [size for size in (24, 18, 15) if size <= largest]
    more = [Line(place, 14, space_after=4)] if place else []
    told: list[Line] = []
    for besides, size in [(besides, size) for besides in dict.fromkeys((rest, "")) for size in sizes]:
        lines = [Line(plain(label, 100), 13, "muted"), Line(plain(headline, 470), size, bold=True, space_after=4)]
        lines += [Line(plain(besides, 300), 14, space_after=4)] if besides else []
        if besides and _height_in(lines) > _VERDICT_IN:
            continue
        told = told or lines
        if not more or _height_in([*lines, *more]) <= _VERDICT_IN:
            told = [*lines, *more]
            break
    after = Line(note, 12, "muted", space_after=0)
    return [*told, after] if note and _height_in([*told, after]) <= _VERDICT_IN else told


def _height_in(lines: Sequence[Line]) -> float:
    return sum(height_in(line, WIDTH_IN - 1.6) for line in lines)


def _changes(report: Report) -> list[Line]:
    """What to change, with what it wins and the number that asks for it."""
    lines = []
    for place, change in enumerate(report.changes, 1):
        code = f"  [{change.code}]" if change.code else ""
        sure = f"confidence {100 * change.confidence:.0f} %"
        lines += [
            Line(plain(f"{place}.  {change.says}{code}", 420), 18, bold=True, space_after=3),
            Line(f"{_capital(saving(change.gain))}; {sure}", 16, "accent", bold=True, space_after=3),
            *([Line(f"{change.tried[0].upper()}{change.tried[1:]}", 14, space_after=3)] if change.tried else []),
            Line(f"Because: {change.because}; {change.where}", 13, "muted", space_after=16),
        ]
    return lines


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


def _closing(deck: Deck, report: Report) -> None:
    diagnosis = report.diagnosis
    cleared = [f"{r.code} {r.name.replace('-', ' ')}: {r.summary}" for r in diagnosis.cleared]
    unchecked = [could_not_look(why, rules) for why, rules in diagnosis.not_checked_because.items()]
    beside = [f"{', '.join(r.code for r in rules)}: {why}" for why, rules in diagnosis.does_not_apply.items()]
    checks = _named("Looked and found nothing wrong", diagnosis.cleared)
    checks += _named("Could not look, because something was not measured", diagnosis.not_checked)
    checks += _named("Does not apply here", [rule for rules in diagnosis.does_not_apply.values() for rule in rules])
    told = [("Cleared", cleared), ("Not checked", unchecked), ("Does not apply here", beside)]
    notes = "\n\n".join("\n".join((title, *entries)) for title, entries in told if entries)
    text_slides(deck, "What was checked", checks, notes)
    text_slides(deck, "Incomplete", [Line(words, 14, bullet=True) for words in report.incomplete])
    text_slides(deck, "Not measured", _small("", [f"{signal}: {why}" for signal, why in beside_not_checked(report)]))
    text_slides(deck, "How it was measured", [Line(words, 15, space_after=10) for words in report.method])
    facts = []
    for sheet in report.environment:
        if sheet.title == SOURCES:  # a page of counters' names, which nobody reads from a wall
            continue
        facts.append(Line(sheet.title, 14, bold=True, space_after=2))
        facts.append(Line("; ".join(f"{name}: {value}" for name, value in sheet.facts), 12, space_after=8))
    text_slides(deck, "Environment", facts)


def _named(title: str, rules: Sequence[Cleared | Unchecked]) -> list[Line]:
    """How many rules, and which: why is for the notes, since nobody reads it from a wall."""
    names = list(dict.fromkeys(rule.name.replace("-", " ") for rule in rules))
    if not names:
        return []
    return [
        Line(f"{title}: {counted(len(names), 'rule')}", 15, bold=True, space_after=3),
        Line(f"{listing(names)}.", 12, space_after=10),
    ]


def _small(title: str, entries: list[str]) -> list[Line]:
    """A list for reference, under its title; nothing without an entry."""
    head = [Line(title, 15, bold=True)] if title and entries else []
    return [*head, *(Line(words, 12, space_after=4) for words in entries)]
