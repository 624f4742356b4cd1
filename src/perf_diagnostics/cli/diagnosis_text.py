"""A diagnosis as plain text for a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from typing import TYPE_CHECKING

from perf_diagnostics.cli.code_text import code_lines
from perf_diagnostics.cli.tried_text import tried_text
from perf_diagnostics.diagnose.code.code_words import seen_at
from perf_diagnostics.diagnose.verdict_place import verdict_words
from perf_diagnostics.diagnose.wording import counted
from perf_diagnostics.report.gains import explained_by, fix
from perf_diagnostics.report.in_code import in_code
from perf_diagnostics.report.reading_order import in_reading_order
from perf_diagnostics.report.words import tie

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.finding import Diagnosis, Evidence, Finding

#: Columns of a text that goes to no terminal, and the fewest and most of one that does.
WIDTH = 100
_NARROWEST = 60

#: More rules than this that share a reason go by their codes alone.
_NAMED = 3


def terminal_width() -> int:
    """Columns of the terminal that standard output goes to, as far as they make text legible; else :data:`WIDTH`."""
    return min(WIDTH, max(_NARROWEST, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else WIDTH


def diagnosis_text(diagnosis: Diagnosis, width: int = WIDTH, *, every_rule: bool = True) -> str:
    """Verdict, lines of code, findings with evidence and remedies, what was cleared, what could not be checked.

    Args:
        diagnosis: what to tell.
        width: columns.
        every_rule: name the rules that found nothing or could not look, with the reasons; else they are only
            counted, so that the findings are not scrolled away.
    """
    lines = [*_verdict(diagnosis, width), ""]
    if table := code_lines(diagnosis, width):
        lines += [*table, ""]
    for finding in in_reading_order(diagnosis).findings:
        lines += [*_finding(finding, diagnosis, width), ""]
    if diagnosis.tried:
        lines += ["Tried:", *(f"  {line}" for line in tried_text(diagnosis.tried).splitlines()), ""]
    rest = _rest_in_words(diagnosis, width) if every_rule else _rest_counted(diagnosis, width)
    return "\n".join(lines + rest).rstrip()


def _rest_counted(diagnosis: Diagnosis, width: int) -> list[str]:
    """How many rules found nothing and how many could not look, and what names them."""
    lines = _own_cost(diagnosis, width)
    if diagnosis.cleared:
        lines.append(f"Cleared: {counted(len(diagnosis.cleared), 'rule')} found nothing wrong.")
    if diagnosis.not_checked:
        lines.append(f"Not checked: {counted(len(diagnosis.not_checked), 'rule')}, because something was not measured.")
    if others := sum(map(len, diagnosis.does_not_apply.values())):
        lines.append(f"Does not apply here: {counted(others, 'rule')}.")
    lines += [line for rule in diagnosis.unchecked if rule.failed for line in wrapped(f"Failed: {rule.words}.", width)]
    return [*lines, "Their names, and why: the same command with --all."] if lines else []


def _own_cost(diagnosis: Diagnosis, width: int) -> list[str]:
    """What the tool itself costs is told also where it is nothing to worry about."""
    costs = (cleared.summary for cleared in diagnosis.cleared if cleared.code == "EXP009")
    return [line for cost in costs for line in (*wrapped(f"{cost[:1].upper()}{cost[1:]}.", width), "")]


def _rest_in_words(diagnosis: Diagnosis, width: int) -> list[str]:
    """The rules that found nothing, and those that could not look, by the reason."""
    lines: list[str] = []
    if diagnosis.cleared:
        names = ", ".join(f"{cleared.name} ({cleared.code})" for cleared in diagnosis.cleared)
        lines += [*wrapped(f"Cleared: {names}.", width), ""]
    lines += _own_cost(diagnosis, width)
    if diagnosis.not_checked:
        lines.append("Not checked:")
        for why, rules in diagnosis.not_checked_because.items():
            names = ", ".join(f"{rule.name} ({rule.code})" for rule in rules[:_NAMED])
            names = names if len(rules) <= _NAMED else ", ".join(rule.code for rule in rules)
            lines += wrapped(f"{names}: {why}", width, indent="  ")
        lines.append("")
    if diagnosis.does_not_apply:
        lines.append("Does not apply here:")
        for why, rules in diagnosis.does_not_apply.items():
            lines += wrapped(f"{why}: {', '.join(rule.code for rule in rules)}", width, indent="  ")
    return lines


def _verdict(diagnosis: Diagnosis, width: int) -> list[str]:
    label = "No verdict" if diagnosis.verdict is None else "Verdict"
    return wrapped(f"{label}: {verdict_words(diagnosis)}", width)


def _finding(finding: Finding, diagnosis: Diagnosis, width: int) -> list[str]:
    lines = wrapped(f"{finding.severity.upper()}  {finding.name} ({finding.code}, {finding.scope})", width)
    lines += wrapped(finding.summary, width, indent="  ")
    for seen in seen_at(finding, diagnosis):
        lines += wrapped(f"{seen.words()}.", width, indent="  ")
    if finding.recoverable is not None:
        lines += wrapped(fix(finding), width, indent="  ")
    if cause := explained_by(finding, diagnosis):
        lines += wrapped(cause, width, indent="  ")
    for evidence in finding.evidence:
        lines += wrapped(evidence_line(evidence), width, indent="    ")
    for remedy in finding.remedies:
        setting = diagnosis.setting_of(remedy)
        change = ", ".join(f"{name}={value}" for name, value in setting.items()) or in_code(remedy, diagnosis)
        lines += wrapped(f"Try: {remedy.says}" + (f" [{change}]" if change else ""), width, indent="  ")
    return lines


def evidence_line(evidence: Evidence) -> str:
    """``share of data_wait = 0.31 (limit 0.2, n = 40)``"""
    value = evidence.value if isinstance(evidence.value, str) else legible(evidence.value)
    unit = "" if evidence.unit in ("", "1") else f" {evidence.unit}"
    notes = []
    if evidence.low is not None and evidence.high is not None:
        notes.append(f"95 % interval {legible(evidence.low)} to {legible(evidence.high)}")
    if evidence.limit is not None:
        notes.append(f"limit {evidence.limit:g}")
    if evidence.n is not None:
        notes.append(f"n = {evidence.n}")
    return f"{evidence.metric} = {value}{unit}" + (f" ({', '.join(notes)})" if notes else "")


def legible(value: float) -> str:
    """Four digits, and no exponent where a reader would have to count: ``12,429``."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def wrapped(text: str, width: int = WIDTH, *, indent: str = "") -> list[str]:
    """The text in lines of so many columns, those after the first indented by two more."""
    plain = tie(" ".join(text.split()))
    lines = textwrap.wrap(plain, width, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]
