"""Orders findings by what a fix surely wins back, puts causes before their symptoms, and draws the verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from perf_diagnostics.diagnose.advice import PROFILER_WINDOW
from perf_diagnostics.diagnose.asking import SEVERITIES, Placed
from perf_diagnostics.diagnose.crossing_facts import WAITS
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Verdict
from perf_diagnostics.diagnose.gain import Tier
from perf_diagnostics.diagnose.wording import percent

#: A finding of less confidence is shown but makes no verdict: a share whose interval straddles its threshold (0.3)
#: still does, in a trial of very few steps (0.18) no more.
LEAST_CONFIDENCE = 0.25

#: A cause explains a symptom if it speaks about at least this part of the same seconds.
EXPLAINS = 0.5

#: Predicted gains of at least this part of the largest are as good as equal: what is sure of a prediction is known to
#: no better than the families' kappas, which lie a third apart (0.2 and 0.3).
ABOUT_EQUAL = 2 / 3

#: The finding that says where the time goes when nothing is wrong.
HEALTHY = "CMP002"

#: An info that may win this part of a step is named beside the verdict that no rule found a fault; it is a judgement.
WORTH_NAMING = 0.15

#: An info is named down to this confidence: half of what a setting alone gives (0.3), so that one doubt more (times
#: 0.6, as under other programs' load) does not silence it and two do.
LEAST_NAMED = Tier.CONFIGURATION.value / 2

#: Infos that tell of work or calls that may be for nothing, where nobody knows what a step without them would take.
UNPRICED = ("CMP018", "HST011")


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


def verdict(
    ordered: Sequence[Placed],
    primary: str | None,
    *,
    opened: bool = False,
    inside: str = "",
    why_closed: str = "",
    broke_off: bool = False,
) -> tuple[Verdict | None, str]:
    """The sentence to read first, or None and why there is none.

    It is the first fault about the primary group (or the whole run) that is sure enough. Without one it is what
    takes the time. An info is no fault and makes no verdict, but the largest one of a considerable gain is named.

    Args:
        ordered: as :func:`ranked` gives them.
        primary: label of the group that the verdict is about.
        opened: a profiler's trace shows what forward and backward do inside.
        inside: what it shows, in a sentence.
        why_closed: why there is none, where one was asked for.
        broke_off: no trial ended by itself; what has been found in its steps is there, and nothing is ruled out.
    """
    about = [item.finding for item in ordered if item.group in (None, primary)]
    faults = [f for f in about if f.family is not Family.EXPERIMENT and f.severity is not Severity.INFO]
    sure = [fault for fault in faults if fault.confidence >= LEAST_CONFIDENCE]
    healthy = [f for f in about if f.code == HEALTHY and f.confidence >= LEAST_CONFIDENCE]
    observed = _largest_observation([item for item in ordered if item.group in (None, primary)])
    if sure or (healthy and not faults and not broke_off):
        first = (sure or healthy)[0]
        nothing = _nothing_found(first, observed, opened=opened, why_closed=why_closed)
        says = first.summary if sure else f"{nothing} {first.summary} {inside}".rstrip()
        return Verdict(first.code, first.name, first.family, says), ""
    if faults:
        unsure = faults[0]
        return None, (
            f"the strongest finding, {unsure.code} {unsure.name}, has a confidence of {unsure.confidence:.2f}; "
            f"a verdict needs {LEAST_CONFIDENCE}"
        )
    beside = f"; {observed}" if observed else ""
    if broke_off:
        why = "no rule found a fault in the steps that were measured, but the trial broke off before its end"
        return None, f"{why}{beside}"
    unsure_work = [f for f in about if f.code == HEALTHY]
    if unsure_work:
        return None, (
            f"no rule found a fault, and that forward and backward take most of the step ({HEALTHY}) has a confidence "
            f"of {unsure_work[0].confidence:.2f}; a verdict needs {LEAST_CONFIDENCE}{beside}"
        )
    return None, f"no rule found a fault, and forward and backward were not shown to take most of the step{beside}"


def _largest_observation(about: Sequence[Placed]) -> str:
    """The first info that may win a considerable part of a step, in a clause that starts small; empty without one.

    First is the one of which the most is sure, as in the order of findings. Without one, an info that tells of work
    for nothing whose time nobody knows. Infos about the experiment, about other batches than one would train at, and
    those of whose gain nothing is sure do not count.
    """
    infos = [
        item.finding
        for item in about
        if item.finding.severity is Severity.INFO
        and item.at_recommended
        and item.finding.family is not Family.EXPERIMENT
        and item.finding.code != HEALTHY
        and item.finding.confidence >= LEAST_NAMED
    ]
    for info in infos:
        won = info.recoverable
        if won is not None and won.high >= WORTH_NAMING and won.low > 0:
            how = "" if won.measured else "predicted "
            return f"largest observation: {_called(info)}, {how}up to {percent(won.high)} of a step [{info.code}]"
    for info in infos:
        if info.code in UNPRICED and info.recoverable is None:
            return f"largest observation: {_called(info)}, of unknown gain [{info.code}]"
    return ""


def _called(finding: Finding) -> str:
    return finding.name.replace("-", " ")


def _nothing_found(healthy: Finding, observed: str, *, opened: bool, why_closed: str) -> str:
    """That no rule found a fault, the largest observation, and where no rule looked.

    The observation comes second, so that a line that is cut to a length still has it.
    """
    named = f" {observed[:1].upper()}{observed[1:]}." if observed else ""
    if opened:
        return f"No rule found a fault.{named}"
    inside = sum(healthy.claims.values())
    how = f"the profiler window is missing ({why_closed})" if why_closed else f"{PROFILER_WINDOW} opens it"
    looked = "No rule found a fault in what was looked at"
    return (
        f"{f'{looked}.{named} What' if named else f'{looked}; what'} forward and backward do inside"
        f"{f' ({percent(inside)} of a step)' if inside else ''} was not opened: {how}."
    )


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
