"""The report as GitHub-flavoured Markdown that also reads well as plain text: ``performance_report.md``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from perf_diagnostics.diagnose.code.code_words import seen_at
from perf_diagnostics.diagnose.finding import Diagnosis, Finding
from perf_diagnostics.diagnose.verdict_place import verdict_note, verdict_rule, verdict_seen
from perf_diagnostics.report.formats.markdown_text import md, md_code
from perf_diagnostics.report.gains import IN_BRACKETS, explained_by, fix, saving
from perf_diagnostics.report.in_code import in_code
from perf_diagnostics.report.lead import lead
from perf_diagnostics.report.method import beside_not_checked
from perf_diagnostics.report.model import Change, Report, ReportTable
from perf_diagnostics.report.reading_order import doubts_measuring
from perf_diagnostics.report.tables.code_table import CODE, code_rows
from perf_diagnostics.report.tables.sizes_table import SIZES
from perf_diagnostics.report.words import (
    DASH,
    EVIDENCE_HEADS,
    EVIDENCE_NUMERIC,
    cell,
    clean,
    could_not_look,
    counted,
    evidence_cells,
    heading,
    moment,
    number,
)

#: A column of text is padded to this width at most, so that one long reason does not push all rows off the screen.
_PADDED = 36

#: Cells of the longest bar.
_BAR_CELLS = 12


def render_markdown(report: Report) -> str:
    """The report as Markdown, in the same reading order as the page."""
    report = clean(report)
    return "\n".join(_lines(report)).rstrip() + "\n"


def render_short_markdown(report: Report) -> str:
    """The answer alone: verdict, what to change, batch sizes side by side, and where the rest is."""
    report = clean(report)
    return "\n".join([*_opening(report), *_rest(report)]).rstrip() + "\n"


def _rest(report: Report) -> Iterator[str]:
    diagnosis = report.diagnosis
    cleared = counted(len(diagnosis.cleared), "check")
    yield (
        f"{counted(len(diagnosis.findings), 'finding')}, {cleared} that found nothing, "
        f"{len(diagnosis.not_checked)} that could not be made. The whole report: `report.to_markdown()`, "
        "`report.save('report.html')`."
    )


def _opening(report: Report) -> Iterator[str]:
    """What every reader needs: title, verdict, answer, what to change, the batch sizes."""
    yield from (f"# {md(report.title)}", "", md(report.subtitle), "")
    made = f"report made {moment(report.generated_at)} by perf-diagnostics {report.tool_version}"
    yield from (f"Run {md(report.run_name)}, {md(made)}.", "")
    for alert in report.alerts:
        yield from (f"> **Warning:** {md(alert)}", "")
    first, rest = lead(report.headline)
    yield from ("## Verdict", "", f"**{md(first)}**{f' {md(rest)}' if rest else ''}", "")
    if (seen := verdict_seen(report.diagnosis)) is not None:
        yield from (f"{seen.at(md, md_code)}{md(seen.beside)}.", "")
    if rule := verdict_rule(report.diagnosis):
        yield from (md(rule), "")
    if note := verdict_note(report.diagnosis):
        yield from (md(note), "")
    if report.changes:
        yield from ("## What to change", "")
        for place, change in enumerate(report.changes, 1):
            yield from _change(place, change)
        yield from ("", "## What was measured", "")
    yield from _key_figures(report)
    for index, sentence in enumerate(report.answer):
        basis = report.answer_basis[index].says if index < len(report.answer_basis) else ""
        yield f"- {md(sentence)}" + (f" ({md(basis)})" if basis else "")
    if report.key_figures:
        yield from ("", IN_BRACKETS)
    yield ""
    for table in report.tables:
        if table.key == SIZES:
            yield from _table(table)


def _change(place: int, change: Change) -> Iterator[str]:
    code = f" ({md_code(change.code)})" if change.code else ""
    sure = f"confidence {100 * change.confidence:.0f} %"
    saved = saving(change.gain)
    yield f"{place}. **{md(change.says)}**{code} {md(saved[:1].upper() + saved[1:])}; {sure}."
    if change.tried:
        yield f"   {md(change.tried[0].upper() + change.tried[1:])}."
    yield f"   Because: {md(change.because)}; {md(change.where)}."


def _lines(report: Report) -> Iterator[str]:
    yield from _opening(report)
    yield from _findings(report)
    for table in report.tables:
        if table.key == CODE:
            yield from _code(report, table)
    yield from _charts(report)
    for table in report.tables:
        if table.key not in ("findings", "trials", SIZES) and not table.section:
            yield from _table(table)
    for section in report.sections:
        if any(table.key == CODE for table in section.tables):
            continue
        yield from (f"## {md(section.title)}", "")
        yield from (f"- {md(chart.takeaway)}" for chart in section.charts if chart.takeaway)
        yield from ("",) * any(chart.takeaway for chart in section.charts)
        for table in section.tables:
            yield from _table(table, level=3)
    for table in report.tables:
        if table.key == "trials":
            yield from _table(table)
    yield from _list("Incomplete", list(report.incomplete))
    yield from _list("Not measured", [f"{signal}: {why}" for signal, why in beside_not_checked(report)])
    if report.method:
        yield from ("## How it was measured", "")
        for paragraph in report.method:
            yield from (md(paragraph), "")
    yield from ("## Environment", "")
    for sheet in report.environment:
        yield from (f"### {md(sheet.title)}", "", *(f"- {md(n)}: {md(v)}" for n, v in sheet.facts), "")


def _key_figures(report: Report) -> Iterator[str]:
    rows = [
        (
            figure.label,
            "not measured" if figure.value is None else f"{number(figure.value)} {figure.unit}".strip(),
            figure.note,
        )
        for figure in report.key_figures
    ]
    if rows:
        yield from _grid(("Key figure", "Value", "Note"), rows, (False, True, False))
        yield ""


def _findings(report: Report) -> Iterator[str]:
    yield from ("## Findings", "")
    if not report.diagnosis.findings:
        yield from ("No rule found a fault.", "")
    doubts = [finding for finding in report.diagnosis.findings if doubts_measuring(finding)]
    about = [finding for finding in report.diagnosis.findings if not doubts_measuring(finding)]
    for finding in about:
        yield from _finding(finding, report.diagnosis)
    if doubts and not about:
        yield from ("No rule found a fault in the training itself.", "")
    cleared = [f"{rule.code} {rule.name.replace('-', ' ')}: {rule.summary}" for rule in report.diagnosis.cleared]
    yield from _list("Cleared", cleared, level=3)
    unchecked = [could_not_look(why, rules) for why, rules in report.diagnosis.not_checked_because.items()]
    yield from _list("Not checked", unchecked, level=3)
    beside = [
        f"{', '.join(rule.code for rule in rules)}: {why}" for why, rules in report.diagnosis.does_not_apply.items()
    ]
    yield from _list("Does not apply here", beside, level=3)
    if doubts:
        yield from ("## Doubts about the measuring", "")
        yield from ("Not why the training is slow, but why these numbers are less sure than they could be.", "")
    for finding in doubts:
        yield from _finding(finding, report.diagnosis)


def _finding(finding: Finding, diagnosis: Diagnosis) -> Iterator[str]:
    name = finding.name.replace("-", " ")
    yield from (f"### {md(finding.code)} {md(name)} ({finding.severity})", "", f"Where: {md(finding.scope)}", "")
    yield from (md(finding.summary), "")
    for seen in seen_at(finding, diagnosis):
        yield from (f"{seen.words(md, md_code)}.", "")
    if finding.recoverable is not None:
        yield from (fix(finding), "")
    if explained := explained_by(finding, diagnosis):
        yield from (explained, "")
    if finding.evidence:
        rows = [evidence_cells(item) for item in finding.evidence]
        told = [i for i in range(len(EVIDENCE_HEADS)) if any(row[i] not in ("", DASH) for row in rows)]
        numeric = [EVIDENCE_NUMERIC[i] for i in told]
        yield from _grid(_only(EVIDENCE_HEADS, told), [_only(row, told) for row in rows], numeric)
        yield ""
    for remedy in finding.remedies:
        code = in_code(remedy, diagnosis)
        yield f"- Try: {md(remedy.says)}{f' ({md_code(code)})' if code else ''}"
    yield from (f"- Confidence: {100 * finding.confidence:.0f} %", "")


def _only(row: Sequence[str], columns: Sequence[int]) -> list[str]:
    return [row[i] for i in columns]


def _charts(report: Report) -> Iterator[str]:
    told = [f"{chart.title}: {chart.takeaway}" for chart in report.charts if chart.takeaway and not chart.section]
    yield from _list("What the charts show", told)


def _table(table: ReportTable, level: int = 2) -> Iterator[str]:
    yield from (f"{'#' * level} {md(table.title)}", "")
    heads = [heading(column) for column in table.columns]
    rows = [[cell(value, column) for value, column in zip(row, table.columns, strict=True)] for row in table.rows]
    yield from _grid(heads, rows, [column.numeric for column in table.columns])
    yield ""
    if table.note:
        yield from (md(table.note), "")


def _code(report: Report, table: ReportTable) -> Iterator[str]:
    """The lines of the user's code with a bar each; ``table`` holds their note."""
    yield from (f"## {md(table.title)}", "")
    yield from ("| Phase | Share of a step | | Line | Source |", "| --- | ---: | --- | --- | --- |")
    for row in code_rows(report.diagnosis):
        ends = f" ({row.ends})" if row.ends else ""
        where = f"{row.where}{f' in {row.function}' if row.function else ''}{row.mostly}"
        where += "".join(f", called from {caller}" if not n else f", {caller}" for n, caller in enumerate(row.callers))
        called = f"; calls {row.called}" if row.called else ""
        slow = f". {row.slow}." if row.slow else ""
        yield (
            f"| {row.phase} | {row.share}{ends} | {'█' * max(1, round(_BAR_CELLS * row.length))} "
            f"| {md(where + called + slow)} | {md_code(row.source) if row.source else ''} |"
        )
    yield from ("", md(table.note), "")


def _list(title: str, items: Sequence[str], level: int = 2) -> Iterator[str]:
    if items:
        yield from (f"{'#' * level} {title}", "", *(f"- {md(item)}" for item in items), "")


def _grid(heads: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[bool]) -> Iterator[str]:
    """A table whose columns are padded to line up in plain text, numbers to the right."""
    escaped = [[md(text) for text in row] for row in (heads, *rows)]
    widths = [min(_PADDED, max(3, *(len(row[i]) for row in escaped))) for i in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        cells = (t.rjust(w) if right else t.ljust(w) for t, w, right in zip(row, widths, numeric, strict=True))
        return f"| {' | '.join(cells)} |"

    yield line(escaped[0])
    rules = ("-" * (w - 1) + ":" if right else "-" * w for w, right in zip(widths, numeric, strict=True))
    yield f"| {' | '.join(rules)} |"
    for row in escaped[1:]:
        yield line(row)
