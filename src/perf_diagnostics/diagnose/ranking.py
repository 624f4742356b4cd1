"""Orders findings by what a fix surely wins back, and puts causes before their symptoms."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from perf_diagnostics.diagnose.asking import SEVERITIES, Placed
from perf_diagnostics.diagnose.finding import Family, Finding, Severity
from perf_diagnostics.diagnose.rule_parts.crossings import WAITS

#: A cause explains a symptom if it speaks about at least this part of the same seconds.
EXPLAINS = 0.5

#: Predicted gains of at least this part of the largest are as good as equal: what is sure of a prediction is known to
#: no better than the families' kappas, which lie a third apart (0.2 and 0.3).
ABOUT_EQUAL = 2 / 3


def ranked(placed: Sequence[Placed], primary: str | None) -> tuple[Placed, ...]:
    """Findings in the order in which to read them, with :attr:`Finding.explains` filled in.

    Faults of the experiment come first, then faults that hold at the recommended batch, the primary group's before
    others', by the gain that is sure (the low end of what is recoverable), and where that is about equal by severity;
    then faults elsewhere, then infos. A symptom never stands before a cause of at least half of the same seconds.
    """
    ordered = _severe_first(sorted(placed, key=lambda item: _order(item, primary)), primary)
    causes = {
        symptom: [cause for cause in ordered if _explains(cause, symptom, primary)]
        for symptom in ordered
        if symptom.finding.symptom_of
    }
    return tuple(_with_explained(item, causes) for item in _causes_first(ordered, causes))


def _severe_first(ordered: Sequence[Placed], primary: str | None) -> list[Placed]:
    """The same order, but of those whose gain is about that of the first of them the more severe ones come first.

    A gain that is a guess cannot outrank one whose cause is known by a few hundredths of a step.
    """
    result: list[Placed] = []
    rest = list(ordered)
    while rest:
        first = rest[0]
        equal = [item for item in rest if item is first or _about_equal(first, item, primary)]
        result += sorted(equal, key=lambda item: -SEVERITIES.index(item.finding.severity))
        rest = [item for item in rest if item not in equal]
    return result


def _about_equal(first: Placed, item: Placed, primary: str | None) -> bool:
    """Whether nobody can say that the first one's gain is the larger; what was measured is larger if it says so."""
    if _order(first, primary)[:2] != _order(item, primary)[:2]:
        return False
    one, other = first.finding.recoverable, item.finding.recoverable
    if one is None or other is None or (one.measured and other.measured):
        return False
    return other.low >= ABOUT_EQUAL * one.low > 0


def _causes_first(ordered: Sequence[Placed], causes: Mapping[Placed, Sequence[Placed]]) -> list[Placed]:
    """The same order, but the causes of each that would stand behind it come right before it.

    Who cures a cause wins what its symptom promises: one whose own gain nobody knows stands where its symptom would.
    """
    result: list[Placed] = []
    for item in ordered:
        # Should causes ever form a circle, the order decides.
        before = [cause for cause in ordered if cause not in result and _is_behind(cause, item, causes)]
        for one in (*_causes_first(before, causes), item):
            if one not in result:
                result.append(one)
    return result


def _is_behind(cause: Placed, item: Placed, causes: Mapping[Placed, Sequence[Placed]]) -> bool:
    """Whether one is a cause of the other, or of one of its causes, and not the other way round."""
    return item is not cause and cause in _all_causes(item, causes) and item not in _all_causes(cause, causes)


def _all_causes(item: Placed, causes: Mapping[Placed, Sequence[Placed]]) -> list[Placed]:
    """Its causes, theirs, and so on."""
    found: list[Placed] = []
    waiting = list(causes.get(item, ()))
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.append(one)
            waiting += causes.get(one, ())
    return found


def _with_explained(cause: Placed, causes: Mapping[Placed, Sequence[Placed]]) -> Placed:
    codes = tuple(symptom.finding.code for symptom, found in causes.items() if cause in found)
    return dataclasses.replace(cause, finding=dataclasses.replace(cause.finding, explains=codes)) if codes else cause


def _order(item: Placed, primary: str | None) -> tuple[int, bool, float, int, str]:
    finding = item.finding
    won = 0.0 if finding.recoverable is None else finding.recoverable.low
    elsewhere = item.group not in (None, primary)
    return _class(item), elsewhere, -won, -SEVERITIES.index(finding.severity), finding.code


def _class(item: Placed) -> int:
    if item.finding.severity is Severity.INFO:
        return 3
    if item.finding.family is Family.EXPERIMENT:
        return 0
    return 1 if item.at_recommended else 2


def _explains(cause: Placed, symptom: Placed, primary: str | None) -> bool:
    """Whether a fault is the cause of another: named as one, about the same trials, and about the same seconds."""
    if cause.finding.code not in symptom.finding.symptom_of or cause.finding.severity is Severity.INFO:
        return False
    if cause.group != (primary if symptom.group is None else symptom.group):
        return False
    return _same_seconds(cause.finding, symptom.finding)


def _same_seconds(cause: Finding, symptom: Finding) -> bool:
    """Where one of the two knows no seconds of its own, it is enough that both are about the same batch sizes."""
    if not symptom.claims or not cause.claims:
        both = set(cause.batch_sizes) & set(symptom.batch_sizes)
        return bool(both) or not cause.batch_sizes or not symptom.batch_sizes
    shared = sum(min(share, cause.claims.get(phase, 0.0)) for phase, share in symptom.claims.items())
    if WAITS not in symptom.claims:
        shared += cause.claims.get(WAITS, 0.0)  # idle time of the device that may lie in any phase
    return shared >= EXPLAINS * sum(symptom.claims.values())
