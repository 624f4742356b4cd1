"""What to change, the most worthwhile first: each finding's first advice with what it wins and the number behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perf_diagnostics.diagnose.finding import Diagnosis, Evidence, Finding, Severity, Tried, Trying
from perf_diagnostics.diagnose.tried import better
from perf_diagnostics.records import Json
from perf_diagnostics.report.model import Change
from perf_diagnostics.report.words import between, change_in_code, counted, number, plain

#: More changes than these are left to the findings.
CHANGES_TOLD = 3


def worthwhile(diagnosis: Diagnosis) -> list[Finding]:
    """Findings that are more than information and whose gain was estimated, in the engine's order."""
    return [f for f in diagnosis.findings if f.recoverable is not None and f.severity is not Severity.INFO]


def changes_of(diagnosis: Diagnosis) -> tuple[Change, ...]:
    """The first advice of each worthwhile finding; two findings that ask for the same are told once."""
    changes: dict[str, Change] = {}
    for finding in worthwhile(diagnosis):
        change = _change(finding, diagnosis.tried)
        if change is not None:
            changes.setdefault(f"{change.code or change.says} {change.where}", change)
    return tuple(changes.values())[:CHANGES_TOLD]


def _change(finding: Finding, tried: Sequence[Tried]) -> Change | None:
    if finding.recoverable is None:
        return None
    name = plain(finding.name.replace("-", " "), 80)
    won = _won(finding, tried)
    # A measured gain is that of what was tried, which may not be what the rules would propose today.
    advice = finding.remedies[0] if won is None and finding.remedies else won
    result = won if won is not None or advice is None else _undecided(finding, advice.change, tried)
    return Change(
        says=plain(advice.says, 300) if advice is not None else f"Mend what “{name}” describes; no setting does it.",
        code="" if advice is None else plain(change_in_code(advice.change), 200),
        where=plain(finding.scope, 80),
        because=because(finding),
        gain=finding.recoverable,
        confidence=finding.confidence,
        key=finding_key(finding),
        tried="" if result is None else _result(result),
    )


def _about(finding: Finding, tried: Sequence[Tried], verdict: Trying) -> list[Tried]:
    return [
        one
        for one in tried
        if one.verdict is verdict and not one.ceiling and finding.code in one.codes and finding.group in one.groups
    ]


def _won(finding: Finding, tried: Sequence[Tried]) -> Tried | None:
    """What was tried for a finding and won: the one whose gain the engine made the finding's."""
    return min(_about(finding, tried, Trying.CONFIRMED), key=better, default=None)


def _undecided(finding: Finding, change: Mapping[str, Json], tried: Sequence[Tried]) -> Tried | None:
    """The change as it was tried, where too few pairs ran or their interval tells nothing."""
    unsure = _about(finding, tried, Trying.INCONCLUSIVE)
    return next((one for one in unsure if dict(one.change) == dict(change)), None)


def _result(one: Tried) -> str:
    """``tried in 5 pairs of trials: confirmed, from 14.7 to 30.5 samples/s; predicted were 17 to 64 %``"""
    told = f"tried in {counted(one.pairs, 'pair')} of trials: {one.verdict}"
    if one.base_s and one.new_s:
        told += f", from {number(1 / one.base_s)} to {number(1 / one.new_s)} samples/s"
    if one.predicted is None:
        return told
    return f"{told}; predicted were {between(100 * one.predicted.low, 100 * one.predicted.high)} %"


def because(finding: Finding) -> str:
    """The number that made the finding: the first that was held against a limit, else the first.

    ``“exposed data wait” is 89.6 %, limit 20 %, from 185 values (INP001)``
    """
    held = [item for item in finding.evidence if item.limit is not None] or list(finding.evidence[:1])
    return f"{_in_words(held[0])} ({finding.code})" if held else f"{finding.name.replace('-', ' ')} ({finding.code})"


def _in_words(item: Evidence) -> str:
    unit = "" if item.unit in ("", "1") else f" {item.unit}"
    parts = [f"“{plain(item.metric, 80)}” is {plain(number(item.value), 60)}{unit}"]
    parts += [] if item.limit is None else [f"limit {item.limit:g}{unit}"]
    parts += [] if item.n is None else [f"from {counted(item.n, 'value')}"]
    return ", ".join(parts)


def finding_key(finding: Finding) -> str:
    """What a basis calls a finding; one rule may have found something in several places."""
    return f"finding {finding.code} {finding.scope}"
