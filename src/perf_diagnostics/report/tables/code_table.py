"""Where in the user's own code a step's time goes: one row a line, phase by phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perf_diagnostics.diagnose.code.code_words import (
    among_lines,
    called_unsaid,
    callers_in_loop,
    function,
    place,
    places,
    source,
    why_far_below,
    why_slow,
)
from perf_diagnostics.diagnose.code_share import CodeShare
from perf_diagnostics.diagnose.finding import Diagnosis
from perf_diagnostics.records import Phase
from perf_diagnostics.report.arms import Arm
from perf_diagnostics.report.model import Cell, ReportTable, TableColumn
from perf_diagnostics.report.phases import PHASE_NAMES
from perf_diagnostics.report.words import counted, percent

SECTION = "Where in the code"

#: The key of the table.
CODE = "code"

_SLOW = "Known to be slow"

#: Columns of a source text in a table, and callers that are named.
_SOURCE_COLUMNS = 90
_CALLERS = 3


@dataclass(frozen=True)
class CodeRow:
    """A line, or some of one function, in words: its share of the step with the interval's ends, its bar's length in
    0…1, of several lines the one with the most (``mostly``), and why it is known to be slow, with what to write instead
    (``slow``).
    """

    line: CodeShare
    phase: str
    share: str
    ends: str
    length: float
    where: str
    mostly: str
    function: str
    source: str
    callers: tuple[str, ...]
    called: str
    slow: str


def code_rows(diagnosis: Diagnosis) -> tuple[CodeRow, ...]:
    """The lines by phase, the phase with most of the step first, and in it the line with most of it."""
    phases: dict[str, list[CodeShare]] = {}
    for line in diagnosis.lines:
        phases.setdefault(line.phase, []).append(line)
    ordered = sorted(phases.values(), key=lambda lines: -sum(line.share.value for line in lines))
    longest = max((line.share.value for line in diagnosis.lines), default=0.0)
    return tuple(_row(line, diagnosis, longest) for lines in ordered for line in lines)


def _row(line: CodeShare, diagnosis: Diagnosis, longest: float) -> CodeRow:
    low, high = line.share.low, line.share.high
    callers = [place(caller) for caller in callers_in_loop(line, diagnosis)]
    return CodeRow(
        line=line,
        phase=f"{PHASE_NAMES[Phase(line.phase)]}{', in workers' if line.in_workers else ''}",
        share=percent(line.share.value),
        ends="" if low is None or high is None else f"{100 * low:.1f} to {100 * high:.1f}",
        length=line.share.value / longest if longest > 0 else 0.0,
        where=places(line),
        mostly=among_lines(line),
        function=function(line.place),
        source=source(line.place, _SOURCE_COLUMNS),
        callers=tuple(callers[:_CALLERS]),
        called=called_unsaid(line),
        slow=why_slow(line),
    )


def code_table(arms: Sequence[Arm], diagnosis: Diagnosis) -> ReportTable:
    """One row a line with its share of the step, what it says, and who called it; no row where no line was seen."""
    columns = (
        TableColumn("Phase", numeric=False),
        TableColumn("Share of a step", "%"),
        TableColumn("at least", "%"),
        TableColumn("at most", "%"),
        TableColumn("Line", numeric=False),
        TableColumn("Function", numeric=False),
        TableColumn("Source", numeric=False, code=True),
        TableColumn("Called from", numeric=False),
        TableColumn("Calls", numeric=False),
        TableColumn(_SLOW, numeric=False),
    )
    rows = tuple(
        (
            row.phase,
            *(None if end is None else 100 * end for end in _interval(row.line)),
            f"{row.where}{row.mostly}",
            row.function,
            row.source,
            ", ".join(row.callers),
            row.called,
            row.slow.removeprefix(_SLOW).removeprefix(":").strip(),
        )
        for row in code_rows(diagnosis)
    )
    return ReportTable(
        key=CODE, title=SECTION, columns=columns, rows=rows, note=_note(arms, diagnosis), section=SECTION
    )


def code_on_a_slide(table: ReportTable) -> ReportTable:
    """The same table in fewer columns; what a line calls, and why it is slow, goes to the speaker's notes.

    What it calls stays, by its last two names, beside a line that has several rows: they look alike without it.
    """
    labels = [column.label for column in table.columns]
    rows = [dict(zip(labels, row, strict=True)) for row in table.rows]
    all_kept = ("Phase", "Share of a step", "Line", "Function", "Source", "Called from")
    kept = tuple(name for name in all_kept if any(row[name] for row in rows))
    calls = dict.fromkeys(f"{row['Line']} calls {row['Calls']}." for row in rows if row["Calls"])
    slow = [f"{row['Line']} is known to be slow: {row[_SLOW]}." for row in rows if row[_SLOW]]
    columns = tuple(table.columns[labels.index(name)] for name in kept)
    places = Counter(row["Line"] for row in rows)
    for row in rows:
        row["Share of a step"] = _with_ends(row)
        if places[row["Line"]] > 1 and row["Calls"]:
            row["Line"] = f"{row['Line']} calls {'.'.join(str(row['Calls']).split('.')[-2:])}"
    return replace(
        table,
        columns=tuple(replace(one, numeric=False) for one in columns),
        rows=tuple(tuple(row[name] for name in kept) for row in rows),
        note=" ".join([table.note, *calls, *slow]),
    )


def _interval(line: CodeShare) -> tuple[float | None, ...]:
    return line.share.value, line.share.low, line.share.high


def _with_ends(row: dict[str, Cell]) -> str:
    """``23.0 (20.5 to 24.8)``"""
    value, low, high = row["Share of a step"], row["at least"], row["at most"]
    ends = f" ({low:.1f} to {high:.1f})" if isinstance(low, float) and isinstance(high, float) else ""
    return f"{value:.1f}{ends}"


def _note(arms: Sequence[Arm], diagnosis: Diagnosis) -> str:
    told = sum(line.share.value for line in diagnosis.lines)
    waits = any(arm.device != "cpu" for arm in arms)
    parts = (
        f"From {counted(diagnosis.looks, 'sample')} of the training thread's call stack, taken at random moments: the "
        "length of each phase is measured, and the samples say which lines it was spent at. "
        + ("What the host waits for on the device is seen at the line that waits; a" if waits else "A")
        + " short stretch of pure Python is seen at the operation after it.",
        "At lines of workers the loop's wait for them stands, divided as samples of their own call stacks are."
        if any(line.in_workers for line in diagnosis.lines)
        else "",
        why_far_below(diagnosis.lines),
        f"These lines hold {percent(told)} of a step; smaller ones are left out.",
    )
    return " ".join(part for part in parts if part)
