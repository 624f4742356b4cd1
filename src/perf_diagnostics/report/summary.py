"""The report on one screen of a terminal: verdict, what to change, batch sizes, what was left out, where it is."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from perf_diagnostics.diagnose.verdict_place import verdict_note, verdict_seen, verdict_words
from perf_diagnostics.report.drawing.signs import verdict_severity
from perf_diagnostics.report.gains import saving
from perf_diagnostics.report.model import Cell, Change, Report, ReportTable
from perf_diagnostics.report.tables.sizes_table import SIZES
from perf_diagnostics.report.words import DASH, between, cell, clean, counted, number, plain, tie

_WIDTH = 96

#: More rows than these do not fit on a screen beside the rest.
_ROWS = 10

_BAR_CELLS = 30


def summary_text(report: Report) -> str:
    """The answer in at most about forty lines of plain text; :func:`render_markdown` has the whole report."""
    report = clean(report)
    return "\n".join(_lines(report)).rstrip() + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield from _wrapped(f"{report.title}: {report.subtitle}")
    for alert in report.alerts:
        yield from ("", *_wrapped(f"WARNING  {alert}"))
    yield from ("", *_verdict(report))
    sentences = list(_sentences(report))
    yield from ("", *sentences, "") if sentences else ("",)
    yield from _changes(report)
    table = next((table for table in report.tables if table.key == SIZES), None)
    if table is not None:
        yield from (*_sizes(table), "")
    phases = next((table for table in report.tables if table.key == "phases_1"), None)
    if phases is not None:
        yield from (*_phases(phases), "")
    yield from _counted(report)
    yield from (
        "The whole report: report.save('report.html') (or .pdf, .pptx, .md, .json); report.to_markdown().",
        "The findings as objects: report.findings.",
    )


def _verdict(report: Report) -> Iterator[str]:
    verdict = report.diagnosis.verdict
    if verdict is None:
        yield from _wrapped(f"No verdict: {verdict_words(report.diagnosis)}" if _named(report) else report.headline)
    else:
        told = verdict_words(report.diagnosis, f"{verdict.code} {verdict.name}")
        yield from _wrapped(f"VERDICT ({verdict_severity(report)})  {told}")


def _named(report: Report) -> bool:
    """Whether there is more to be told without a verdict than why there is none."""
    return verdict_seen(report.diagnosis) is not None or verdict_note(report.diagnosis) != ""


def _sentences(report: Report) -> Iterator[str]:
    """The answer without what the table of sizes and the bars of the phases show."""
    shown = ("phases_", "throughput") if any(table.key == SIZES for table in report.tables) else ("phases_",)
    for index, sentence in enumerate(report.answer):
        key = report.answer_basis[index].key if index < len(report.answer_basis) else ""
        if not key.startswith(shown):
            yield from _wrapped(sentence)


def _changes(report: Report) -> Iterator[str]:
    if not report.changes:
        return
    yield "WHAT TO CHANGE"
    for place, change in enumerate(report.changes, 1):
        yield from _change(place, change)
    yield ""


def _change(place: int, change: Change) -> Iterator[str]:
    code = f"  [{change.code}]" if change.code else ""
    yield from _wrapped(f"{place}. {change.says}{code}", indent="  ")
    yield from _wrapped(f"{saving(change.gain)}; confidence {100 * change.confidence:.0f} %", indent="     ")
    if change.tried:
        yield from _wrapped(change.tried, indent="     ")
    yield from _wrapped(f"because: {change.because}; {change.where}", indent="     ")


def _sizes(table: ReportTable) -> Iterator[str]:
    labels = [column.label for column in table.columns]
    rows = [dict(zip(labels, row, strict=True)) for row in table.rows]
    several = "Configuration" in labels
    shown = rows if len(rows) <= _ROWS else _most_telling(rows)
    memory = next((column.unit for column in table.columns if column.label == "Peak memory"), "")
    peak = f"peak memory ({memory})" if memory else "peak memory"
    heads = ["batch", "samples/s", "95 % interval", "step (ms)", "largest phase", peak, ""]
    cells = [
        [
            number(row["Batch"]),
            number(row.get("Throughput")),
            _interval(row.get("at least"), row.get("at most")),
            number(row.get("Step")),
            str(row.get("Largest phase") or DASH),
            number(row.get("Peak memory")),
            str(row.get("Note") or ""),
        ]
        for row in shown
    ]
    if several:
        heads.insert(0, "configuration")
        cells = [[plain(str(row["Configuration"]), 28), *line] for row, line in zip(shown, cells, strict=True)]
    yield from _aligned(heads, cells, text=1 if several else 0)
    if len(shown) < len(rows):
        yield f"  … and {counted(len(rows) - len(shown), 'row')} more in report.to_markdown()"


def _most_telling(rows: Sequence[dict[str, Cell]]) -> list[dict[str, Cell]]:
    """The recommended size of each configuration, filled up with the others from the top, in the table's order."""
    ranked = sorted(range(len(rows)), key=lambda i: (rows[i].get("Note") != "recommended", i))
    return [rows[index] for index in sorted(ranked[:_ROWS])]


def _interval(low: Cell, high: Cell) -> str:
    return between(low, high) if isinstance(low, float) and isinstance(high, float) else DASH


def _aligned(heads: Sequence[str], cells: Sequence[Sequence[str]], *, text: int) -> Iterator[str]:
    """Columns side by side: the first ``text`` and the last to the left, the others to the right."""
    widths = [max(len(head), *(len(line[i]) for line in cells)) for i, head in enumerate(heads)]
    last = len(heads) - 1
    for line in (heads, *cells):
        parts = [
            part.ljust(width) if i < text or i == last else part.rjust(width)
            for i, (part, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield ("  " + "  ".join(parts)).rstrip()


def _phases(table: ReportTable) -> Iterator[str]:
    """Where the time of a step goes, as bars."""
    yield table.title
    labels = [column.label for column in table.columns]
    name, ms, share = (labels.index(label) for label in ("Phase", "Time in a step", "Share of the step"))
    for row in table.rows:
        part = row[share]
        filled = round(part / 100 * _BAR_CELLS) if isinstance(part, float) else 0
        bar = "█" * filled + "·" * (_BAR_CELLS - filled)
        told = f" {cell(part, table.columns[share]):>5} %" if part is not None else ""
        yield f"  {row[name]!s:<10} {bar} {number(row[ms]):>7} ms{told}"


def _counted(report: Report) -> Iterator[str]:
    diagnosis = report.diagnosis
    told = {change.key for change in report.changes}
    rest = sum(f"finding {finding.code} {finding.scope}" not in told for finding in diagnosis.findings)
    parts = [f"{counted(len(diagnosis.cleared), 'check')} found nothing"]
    parts += [f"{counted(rest, 'further finding')}"] if rest else []
    parts += [f"{counted(len(diagnosis.tried), 'change')} tried"] if diagnosis.tried else []
    parts += [f"{counted(report.incomplete_trials, 'trial')} incomplete"] if report.incomplete else []
    yield f"Not shown here: {', '.join(parts)}."
    if diagnosis.not_checked:
        count = counted(len(diagnosis.not_checked), "check")
        yield f"Not checked: {count} could not be made, because something was not measured."


def _wrapped(text: str, indent: str = "") -> list[str]:
    hanging = indent + ("   " if indent == "  " else "")
    lines = textwrap.wrap(tie(text), _WIDTH, initial_indent=indent, subsequent_indent=hanging, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]
