"""The report as slides: native, editable charts and tables, with the evidence in the speaker notes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.verdict_place import verdict_label, verdict_note, verdict_place
from perf_diagnostics.errors import FormatUnavailable
from perf_diagnostics.report.drawing.signs import verdict_severity
from perf_diagnostics.report.gains import saving
from perf_diagnostics.report.method import beside_not_checked
from perf_diagnostics.report.model import Report, Section
from perf_diagnostics.report.slides.finding_slides import finding_slides, observation_slides
from perf_diagnostics.report.slides.paged_slides import chart_slide, text_slides
from perf_diagnostics.report.slides.slide_layout import BODY, HEIGHT_IN, WIDTH_IN, Box, Line, height_in, paged
from perf_diagnostics.report.slides.slides import Deck
from perf_diagnostics.report.slides.table_slides import table_slides
from perf_diagnostics.report.tables.code_table import CODE, code_on_a_slide
from perf_diagnostics.report.tables.sizes_table import SIZES
from perf_diagnostics.report.tried import TRIED, tried_on_a_slide
from perf_diagnostics.report.where import SOURCES
from perf_diagnostics.report.words import below_its_label, clean, could_not_look, moment, number, plain

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
    text_slides(deck, "What to change", _changes(report))
    text_slides(deck, "The answer", _answer(report), _answer_notes(report))
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
    for table in report.tables:
        if table not in overview and table not in trials and table.key != SIZES and not table.section:
            table_slides(deck, tried_on_a_slide(table) if table.key == TRIED else table)
    for section in report.sections:
        _section(deck, section)
    for table in trials:
        table_slides(deck, table)
    _closing(deck, report)
    return deck.to_bytes()


def _section(deck: Deck, section: Section) -> None:
    for chart in section.charts:
        if not chart.is_one_group:
            chart_slide(deck, chart)
    for table in section.tables:
        table_slides(deck, code_on_a_slide(table) if table.key == CODE else table)


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
    verdict = report.diagnosis.verdict
    note = verdict_note(report.diagnosis)
    notes = "\n".join((" ".join(part for part in (report.headline, place, note) if part), "", *report.answer))
    slide = deck.slide(report.title, notes)
    deck.text(slide, Box(0.65, 1.2, WIDTH_IN - 1.3, 0.35), [Line(report.subtitle, 14, "muted", space_after=0)])
    severity = verdict_severity(report)
    if report.alerts:
        alert = Line(plain(report.alerts[0], 300), 11, "critical", bold=True, space_after=0)
        deck.text(slide, Box(0.65, 0.12, WIDTH_IN - 1.3, 0.45), [alert])
    label = verdict_label(report.diagnosis)
    if verdict is not None:
        label += f"  {verdict.code} {verdict.name}"
    lines = _verdict_lines(label, below_its_label(report.headline), place, note)
    tall = min(_VERDICT_IN, sum(height_in(line, WIDTH_IN - 1.6) for line in lines))
    deck.block(slide, Box(0.65, 1.9, 0.09, tall), "muted" if severity == "none" else severity)
    deck.text(slide, Box(0.95, 1.9, WIDTH_IN - 1.6, _VERDICT_IN), lines)
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


def _verdict_lines(label: str, headline: str, place: str, note: str) -> list[Line]:
    """The verdict with its line of code and what else there is to know, each if it fits; the line of code is worth a
    smaller headline.
    """
    largest = 24 if len(headline) <= 170 else 18 if len(headline) <= 330 else 15
    told: list[Line] = []
    for size in [size for size in (24, 18, 15) if size <= largest]:
        lines = [Line(plain(label, 100), 13, "muted"), Line(plain(headline, 470), size, bold=True, space_after=4)]
        more = Line(place, 14, space_after=4)
        fits = not place or _height_in([*lines, more]) <= _VERDICT_IN
        told = told or lines
        if fits:
            told = [*lines, more] if place else lines
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
            Line(f"{saving(change.gain)}; {sure}", 16, "accent", bold=True, space_after=3),
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
    checks = _small("Cleared", [f"{r.code} {r.name.replace('-', ' ')}: {r.summary}" for r in diagnosis.cleared])
    unchecked = [could_not_look(why, rules) for why, rules in diagnosis.not_checked_because.items()]
    checks += _small("Not checked", unchecked)
    beside = diagnosis.does_not_apply.items()
    checks += _small("Does not apply here", [f"{', '.join(r.code for r in rules)}: {why}" for why, rules in beside])
    text_slides(deck, "What was checked", checks)
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


def _small(title: str, entries: list[str]) -> list[Line]:
    """A list for reference, under its title; nothing without an entry."""
    head = [Line(title, 15, bold=True)] if title and entries else []
    return [*head, *(Line(words, 12, space_after=4) for words in entries)]
