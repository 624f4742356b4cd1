"""What to change, the most worthwhile first: each finding's first advice with what it wins and the number behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from perf_diagnostics.diagnose.code.slow_idioms import slow_idiom
from perf_diagnostics.diagnose.evidence_words import sentence, unit_words
from perf_diagnostics.diagnose.finding import Diagnosis, Evidence, Family, Finding, Remedy, Severity, Tried, Trying
from perf_diagnostics.diagnose.tried.outcomes import UNSURE, better
from perf_diagnostics.records import Json
from perf_diagnostics.report.gains import explained_by
from perf_diagnostics.report.in_code import in_code
from perf_diagnostics.report.model import Change
from perf_diagnostics.report.words import between, change_in_code, counted, evidence_number, number, plain

#: More changes than these are left to the findings.
CHANGES_TOLD = 3


def worthwhile(diagnosis: Diagnosis) -> list[Finding]:
    """Findings whose gain is known, in the engine's order: faults, and information of which what was tried won."""
    known = (one for one in diagnosis.findings if one.recoverable is not None)
    return [one for one in known if one.severity is not Severity.INFO or _won(one, diagnosis.tried) is not None]


def changes_of(diagnosis: Diagnosis) -> tuple[Change, ...]:
    """The first advice of each worthwhile finding; two findings that ask for the same are told once.

    The same is what stands in the same place, or was tried for both of them in the same trials.
    """
    changes: dict[str, Change] = {}
    for finding in worthwhile(diagnosis):
        result = _tried_for(finding, diagnosis.tried)
        advice = _advice(finding, result)
        change = _change(finding, result, advice, diagnosis)
        if change is not None:
            asked = change_in_code(advice.change) if advice is not None and advice.change else change.says
            place = change.where if result is None else f"{result.where} {result.groups}"
            changes.setdefault(f"{asked} {place}", change)
    return tuple(changes.values())[:CHANGES_TOLD]


def _tried_for(finding: Finding, tried: Sequence[Tried]) -> Tried | None:
    """What came of a finding's advice: what won, else the first advice where it was tried and decides nothing."""
    won = _won(finding, tried)
    if won is not None or not finding.remedies:
        return won
    return _undecided(finding, finding.remedies[0].change, tried)


def _advice(finding: Finding, result: Tried | None) -> Remedy | Tried | None:
    """The first remedy; where one won, that: a measured gain is its own, and the rules may propose another today."""
    won = result is not None and result.verdict is Trying.CONFIRMED
    return result if won or not finding.remedies else finding.remedies[0]


def _change(
    finding: Finding, result: Tried | None, advice: Remedy | Tried | None, diagnosis: Diagnosis
) -> Change | None:
    if finding.recoverable is None:
        return None
    name = plain(finding.name.replace("-", " "), 80)
    says = plain(advice.says, 300) if advice is not None else f"Mend what “{name}” describes; no setting does it."
    if advice is None or not advice.change:
        says = _of_its_line(finding) or says
    return Change(
        says=says,
        code="" if advice is None else plain(in_code(advice, diagnosis), 200),
        where=plain(finding.scope, 80),
        because=because(finding, explained_by(finding, diagnosis)),
        gain=finding.recoverable,
        confidence=finding.confidence,
        key=finding_key(finding),
        tried="" if result is None else _result(result) + _caution(result, says),
    )


def _of_its_line(finding: Finding) -> str:
    """What to write instead, where a line that is known to be slow has at least half of what the finding claims.

    What need not be computed at all is not to be computed in another way: there the rule's own advice stands.
    """
    computed = finding.family is Family.COMPUTE
    if computed or not finding.lines or finding.lines[0].share.value < sum(finding.claims.values()) / 2:
        return ""
    idiom = slow_idiom(finding.lines[0])
    if idiom is None:
        return ""
    return plain(f"At {idiom.place.file}:{idiom.place.line}: {idiom.instead}.", 400)


def _about(finding: Finding, tried: Sequence[Tried], *verdicts: Trying) -> list[Tried]:
    return [
        one
        for one in tried
        if one.verdict in verdicts and not one.ceiling and finding.code in one.codes and finding.group in one.groups
    ]


def _won(finding: Finding, tried: Sequence[Tried]) -> Tried | None:
    """What was tried for a finding and won: the one whose gain the engine made the finding's."""
    return min(_about(finding, tried, Trying.CONFIRMED), key=better, default=None)


def _undecided(finding: Finding, change: Mapping[str, Json], tried: Sequence[Tried]) -> Tried | None:
    """The change as it was tried or was to be, where that decides nothing."""
    unsure = _about(finding, tried, *UNSURE, Trying.NOT_TRIED)
    return next((one for one in unsure if dict(one.change) == dict(change)), None)


def _result(one: Tried) -> str:
    """What was predicted, what was measured and whether the prediction held.

    ``tried in 5 pairs of trials: confirmed, from 14.7 to 30.5 samples/s; predicted 17 to 64 % less time a sample,
    measured 52 % (44 to 58 %): the prediction held``
    """
    if one.verdict is Trying.NOT_TRIED:
        return f"{one.verdict}: {plain(one.why, 300)}"
    if one.verdict in (Trying.TOO_EARLY, Trying.NOT_SETTLED):
        return f"tried, {one.verdict}: {plain(one.why, 300)}"
    told = f"tried in {counted(one.pairs, 'pair')} of trials: {one.verdict}"
    if one.base_s and one.new_s:
        told += f", from {number(1 / one.base_s)} to {number(1 / one.new_s)} samples/s"
    if one.predicted is None or one.verdict in UNSURE:
        return told  # the prediction stands, and is what the change is said to save
    told += f"; predicted {between(100 * one.predicted.low, 100 * one.predicted.high)} % less time a sample"
    if one.gain is None or one.gain.low is None or one.gain.high is None:
        return told
    told += f", measured {100 * one.gain.value:.0f} % ({between(100 * one.gain.low, 100 * one.gain.high)} %)"
    if one.as_predicted is None:
        return told
    return f"{told}: the prediction {'held' if one.as_predicted else 'did not hold'}"


def _caution(result: Tried, says: str) -> str:
    """That what won changes more than the speed, where the advice does not say so itself."""
    if result.verdict is not Trying.CONFIRMED or not result.changes_training or "This changes" in says:
        return ""
    return "; it changes the optimisation, so look at the loss, too"


def because(finding: Finding, explained: str) -> str:
    """The number that made the finding, in a clause: the first that was held against a limit, else the first.

    ``waiting for data takes 89.6 % of the step (limit 20 %, from 185 values; INP001)``; one that another explains says
    so, for their gains do not add up: ``(…; COM001, explained by COM003: one gain, not two)``.
    """
    code = f"{finding.code}, {explained[0].lower()}{explained[1:].rstrip('.')}" if explained else finding.code
    held = [item for item in finding.evidence if item.limit is not None] or list(finding.evidence[:1])
    return _in_words(held[0], code) if held else f"{finding.name.replace('-', ' ')} ({code})"


def _in_words(item: Evidence, code: str) -> str:
    said = sentence(plain(item.metric, 80), plain(evidence_number(item.value, item.unit), 60), item.unit)
    notes = [] if item.limit is None else [f"limit {item.limit:g}{unit_words(item.unit)}"]
    notes += [] if item.n is None else [f"from {counted(item.n, 'value')}"]
    return f"{said} ({', '.join(notes)}{'; ' if notes else ''}{code})"


def finding_key(finding: Finding) -> str:
    """What a basis calls a finding; one rule may have found something in several places."""
    return f"finding {finding.code} {finding.scope}"
