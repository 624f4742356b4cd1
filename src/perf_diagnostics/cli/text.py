"""A diagnosis and a sweep's results as plain text for a terminal."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from perf_diagnostics.cli.tried_text import tried_text
from perf_diagnostics.diagnose.code_words import seen_at
from perf_diagnostics.diagnose.verdict_place import verdict_place
from perf_diagnostics.report.gains import fix
from perf_diagnostics.report.reading_order import in_reading_order
from perf_diagnostics.report.words import tie

if TYPE_CHECKING:
    from perf_diagnostics.diagnose.finding import Diagnosis, Evidence, Finding

_WIDTH = 100

#: More rules than this that share a reason go by their codes alone.
_NAMED = 3


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Verdict, findings with evidence and remedies, what was cleared, what could not be checked."""
    lines = [_verdict(diagnosis), ""]
    for finding in in_reading_order(diagnosis).findings:
        lines += [*_finding(finding, diagnosis), ""]
    if diagnosis.tried:
        lines += ["Tried:", *(f"  {line}" for line in tried_text(diagnosis.tried).splitlines()), ""]
    if diagnosis.cleared:
        names = ", ".join(f"{cleared.name} ({cleared.code})" for cleared in diagnosis.cleared)
        lines += [*_wrapped(f"Cleared: {names}."), ""]
    # What the tool itself costs is told also where it is nothing to worry about.
    for own_cost in (cleared.summary for cleared in diagnosis.cleared if cleared.code == "EXP009"):
        lines += [*_wrapped(f"{own_cost[:1].upper()}{own_cost[1:]}."), ""]
    if diagnosis.not_checked:
        lines.append("Not checked:")
        for why, rules in diagnosis.not_checked_because.items():
            names = ", ".join(f"{rule.name} ({rule.code})" for rule in rules[:_NAMED])
            names = names if len(rules) <= _NAMED else ", ".join(rule.code for rule in rules)
            lines += _wrapped(f"{names}: {why}", indent="  ")
        lines.append("")
    if diagnosis.does_not_apply:
        lines.append("Does not apply here:")
        for why, rules in diagnosis.does_not_apply.items():
            lines += _wrapped(f"{why}: {', '.join(rule.code for rule in rules)}", indent="  ")
    return "\n".join(lines).rstrip()


def _verdict(diagnosis: Diagnosis) -> str:
    if diagnosis.verdict is None:
        return "\n".join(_wrapped(f"No verdict: {diagnosis.no_verdict_because or 'the evidence is too thin.'}"))
    parts = (f"Verdict: {diagnosis.verdict.summary}", verdict_place(diagnosis), f"[{diagnosis.verdict.code}]")
    return "\n".join(_wrapped(" ".join(part for part in parts if part)))


def _finding(finding: Finding, diagnosis: Diagnosis) -> list[str]:
    lines = _wrapped(f"{finding.severity.upper()}  {finding.name} ({finding.code}, {finding.scope})")
    lines += _wrapped(finding.summary, indent="  ")
    for seen in seen_at(finding, diagnosis):
        lines += _wrapped(f"{seen.words()}.", indent="  ")
    if finding.recoverable is not None:
        lines += _wrapped(fix(finding), indent="  ")
    lines += [f"    {evidence_line(evidence)}" for evidence in finding.evidence]
    for remedy in finding.remedies:
        change = ", ".join(f"{name}={value}" for name, value in remedy.change.items())
        lines += _wrapped(f"Try: {remedy.says}" + (f" [{change}]" if change else ""), indent="  ")
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


def _wrapped(text: str, *, indent: str = "") -> list[str]:
    plain = tie(" ".join(text.split()))
    lines = textwrap.wrap(plain, _WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]
