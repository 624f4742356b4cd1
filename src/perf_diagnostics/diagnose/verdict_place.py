"""The finding that a verdict rests on, and the line of the user's own code at which most of its time was seen."""

from __future__ import annotations

from perf_diagnostics.diagnose.code_words import SeenAt, called_unsaid, seen
from perf_diagnostics.diagnose.finding import Diagnosis, Finding

#: A line is where a finding's time goes if it has at least this part of what the finding claims.
_HALF = 0.5


def verdict_finding(diagnosis: Diagnosis) -> Finding | None:
    """The finding that makes the verdict, which says where it holds and how sure it is; None where none does."""
    verdict = diagnosis.verdict
    found = [finding for finding in diagnosis.findings if verdict is not None and finding.code == verdict.code]
    same = [finding for finding in found if verdict is not None and finding.summary in verdict.summary]
    return next(iter([*same, *found]), None)


def verdict_seen(diagnosis: Diagnosis) -> SeenAt | None:
    """The line at which the verdict's time was seen most; None where no line was.

    What it calls is told only of a framework's loop, which has several parts of a step and says nothing itself.
    """
    finding = verdict_finding(diagnosis)
    if finding is None or not finding.lines:
        return None
    line = finding.lines[0]
    claimed = sum(finding.claims.values())
    lead = "At" if line.share.value >= _HALF * claimed else "The largest part at"
    several = sum(one.place == line.place for one in diagnosis.lines) > 1
    called = called_unsaid(line) if several else ""
    return seen(line, lead, f", in {called}" if called else "")


def verdict_place(diagnosis: Diagnosis) -> str:
    """``At train.py:9: `x = x * 1.01`.``, to stand behind the verdict; empty where no line was seen."""
    told = verdict_seen(diagnosis)
    if told is None:
        return ""
    return f"{told.lead} {told.where}{f': `{told.source}`' if told.source else ''}{told.beside}."
