"""From traces to a diagnosis: ask the rules of each rank, merge what ranks say, and draw the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from perf_diagnostics.diagnose.asking import SEVERITIES, Placed, Reply, answered
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured
from perf_diagnostics.diagnose.finding import Cleared, Diagnosis, Finding, Severity, Unchecked
from perf_diagnostics.diagnose.ranking import ranked
from perf_diagnostics.diagnose.trace.facts import TraceFacts, facts_of
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.diagnose.trace.thresholds import configured_traces
from perf_diagnostics.diagnose.trace.waterfall import Waterfall, waterfall_of
from perf_diagnostics.diagnose.tried.indirect import widened
from perf_diagnostics.diagnose.verdict import suspected, verdict, would_decide
from perf_diagnostics.diagnose.wording import listing
from perf_diagnostics.errors import InvalidSettings

F = TypeVar("F")


@dataclass(frozen=True)
class TraceDiagnosis:
    """What the rules say about the traces of one job, and each rank's waterfall (None: not to be trusted)."""

    diagnosis: Diagnosis
    waterfalls: tuple[Waterfall | None, ...]


def diagnose_traces(
    paths: Sequence[str | Path],
    *,
    thresholds: Mapping[str, Mapping[str, float]] | None = None,
) -> TraceDiagnosis:
    """Read the traces of one job, one file a rank, and ask every rule.

    Args:
        paths: one file a rank.
        thresholds: thresholds to change, by code and name: ``{"HST001": {"warn_share": 0.2}}``.

    Raises:
        InvalidSettings: no file was given, or ``thresholds`` names an unknown rule or threshold.
        RecordError: a file is missing, broken, or not a trace.
    """
    if not paths:
        raise InvalidSettings("No trace was given; name at least one file.")
    rules = configured_traces(TRACE_RULES, thresholds or {})
    ranks = facts_of([read_trace(path) for path in paths])
    placed: list[Placed] = []
    clear: list[Cleared] = []
    unchecked: list[Unchecked] = []
    for rule in rules:
        if rule.looks_at == "ranks":
            replies: list[tuple[str, Reply]] = [("", answered(rule.check, ranks))]
        else:
            replies = [(rank.label, _with_what_the_rest_wins(rank, answered(rule.check, rank))) for rank in ranks]
        findings = [reply for _, reply in replies if isinstance(reply, Finding)]
        cleared = [reply for _, reply in replies if isinstance(reply, Cleared)]
        if findings:
            placed.append(Placed(_merged(findings, of=len(ranks)), None, at_recommended=True))
        elif cleared:
            clear.append(cleared[0])
        missing = [(label, reply) for label, reply in replies if isinstance(reply, NotMeasured)]
        if len(missing) < len(replies):
            missing = [(label, reply) for label, reply in missing if not isinstance(reply, NotApplicable)]
        applies = not all(isinstance(reply, NotApplicable) for _, reply in missing)
        unchecked += [
            Unchecked(rule.code, rule.name, signal, why, applies) for signal, why in _whys(missing, len(ranks))
        ]
    ordered = _largest_riddle_first(ranked(placed, None))
    best, why = verdict(ordered, None, opened=True)
    reason = _no_verdict(ranks, [item.finding for item in ordered])
    diagnosis = Diagnosis(
        verdict=None if reason else best,
        findings=tuple(item.finding for item in ordered),
        cleared=tuple(clear),
        unchecked=tuple(unchecked),
        no_verdict_because=reason or why,
        suspected="" if reason or best is not None else suspected(ordered, None),
        would_decide="" if reason or best is not None else would_decide(ordered, None),
        takes_settings=False,
    )
    return TraceDiagnosis(diagnosis, tuple(waterfall_of(rank) for rank in ranks))


def _with_what_the_rest_wins(rank: TraceFacts, reply: Reply) -> Reply:
    return widened(reply) if isinstance(reply, Finding) and not rank.on_device else reply


def _largest_riddle_first(ordered: Sequence[Placed]) -> tuple[Placed, ...]:
    """A critical finding whose gain nobody knows stands first if it speaks of more of the step than any other.

    Findings are ordered by what is surely won back, which would put 15 % of communication before 60 % that nobody can
    explain.
    """
    faults = [item for item in ordered if item.finding.severity is not Severity.INFO and item.finding.claims]
    largest = max(faults, key=lambda item: sum(item.finding.claims.values()), default=None)
    if largest is None or largest.finding.recoverable is not None or largest.finding.severity is not Severity.CRITICAL:
        return tuple(ordered)
    return (largest, *(item for item in ordered if item is not largest))


def _merged(findings: Sequence[Finding], *, of: int) -> Finding:
    """The worst rank's finding, saying on which ranks the fault is found: a job waits for its worst rank."""
    worst = max(
        findings,
        key=lambda f: (SEVERITIES.index(f.severity), 0.0 if f.recoverable is None else f.recoverable.low),
    )
    others = [finding.scope for finding in findings if finding is not worst]
    if not others:
        return worst
    says = "all ranks" if len(findings) == of else listing([worst.scope, *others])
    return dataclasses.replace(worst, scope=f"{says}; numbers of {worst.scope}")


def _whys(missing: Sequence[tuple[str, NotMeasured]], ranks: int) -> list[tuple[str, str]]:
    """Each signal and reason once, with the ranks it is about if not all of them lack it."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for label, reply in missing:
        by_reason.setdefault((reply.signal, reply.why), []).append(label)
    return [
        (signal, why if len(labels) == ranks or labels == [""] else f"{why} ({listing(labels)})")
        for (signal, why), labels in by_reason.items()
    ]


def _no_verdict(ranks: Sequence[TraceFacts], findings: Sequence[Finding]) -> str:
    """Why nothing may be concluded, or an empty text."""
    unsound = [f"{rank.label}: {rank.distrusted[1]}" for rank in ranks if rank.distrusted is not None]
    if unsound:
        return f"the trace cannot be trusted: {'; '.join(dict.fromkeys(unsound))}"
    for code in ("EXP006", "EXP001"):
        for finding in findings:
            if finding.code == code and finding.severity is not Severity.INFO:
                return finding.summary
    return ""
