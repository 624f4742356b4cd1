"""What a profiler window cannot tell from a fault: what the profiler itself adds, and what other programs take."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.facts import processor
from perf_diagnostics.diagnose.facts.facts import TrialFacts, ask
from perf_diagnostics.diagnose.finding import Evidence, Family, Finding, Severity
from perf_diagnostics.diagnose.rule import evidence
from perf_diagnostics.diagnose.rule_parts.gain import Tier
from perf_diagnostics.diagnose.wording import continued
from perf_diagnostics.records import Phase

#: Where evidence from a window says that it is from.
WINDOW = "profiler window"

#: What the profiler itself adds to.
_OF_THE_HOST = (Family.HOST, Family.INPUT)

#: And of the others what is time of the host's own: between a wait, or a launch, and the next launch.
_OF_ITS_CALLS = ("XFR003", "XFR005", "OPT001", "OPT003")

#: No rule's critical limit is less than so many times its warning limit, so that this part of it warns in any case.
CRITICAL_OVER_WARNING = 2.0

#: How a window's evidence says how many operators there are.
CALLS = "operators of forward and backward, a step"

#: The rule that finds other programs on the processors, and how it names what they took of the loop's thread.
_CONTENTION = "EXP010"
WITHOUT_A_CORE = "computing thread without a core for others"

#: The rule that tells of time in which no operator runs.
_NO_OPERATOR = "HST004"


#: What forward and backward of the undisturbed steps take for each operator that the window counted.
UNDISTURBED = "undisturbed, for each operator"

#: Up to this it is no more than calling the operator, whatever slowed the window: as HST011's call_s.
CALL_S = 10e-6


def of_undisturbed_calls(finding: Finding, trial: TrialFacts) -> Finding:
    """A finding about calls of operators, with what an undisturbed step has for each of those that were counted.

    The profiler slows steps, and adds no operators. Others' load slows them, too: what the thread surely had no core
    for is taken off.
    """
    counted = next((item.value for item in finding.evidence if item.metric == CALLS), None)
    work = ask(trial.joint_share, Phase.FORWARD, Phase.BACKWARD)
    if finding.code != "HST011" or not isinstance(counted, float) or not counted > 0 or work is None:
        return finding
    running = ask(processor.granted_share, trial)
    each = work.scaled(trial.step_time_s.value / counted * (1.0 if running is None else running))
    number = evidence(UNDISTURBED, each.scaled(1e6), "µs", limit=CALL_S * 1e6)
    return dataclasses.replace(finding, evidence=(*finding.evidence, number))


def _by_count(finding: Finding) -> bool:
    """Whether the undisturbed steps show that calls take the time, so that no doubt about a window counts."""
    shown = [item for item in finding.evidence if item.metric == UNDISTURBED]
    return any(isinstance(item.value, float) and item.value <= CALL_S * 1e6 for item in shown)


def allowing_for_the_profiler(finding: Finding, slower: float | None) -> Finding:
    """A finding with what the profiler cost beside it (``slower``: profiled over undisturbed step); an info where that
    alone could have made it, and a warning where it could have made it critical.

    The profiler slows the host. Of a share h of a window that is s times as long as the undisturbed steps, at least
    ``h s - (s - 1)`` of an undisturbed step remains if all that was added went into this share. Of calls that the
    undisturbed steps show as well (:func:`of_undisturbed_calls`) more remains, and a warning stays one.
    """
    if slower is None:
        return finding
    finding = dataclasses.replace(
        finding,
        evidence=(
            *finding.evidence,
            Evidence(metric="profiled step over undisturbed step", value=slower, unit="×", source=WINDOW),
        ),
    )
    limit = finding.evidence[0].limit
    if not _of_the_host(finding) or limit is None or not finding.claims:
        return finding
    share = sum(finding.claims.values())
    least = max(0.0, share * slower - max(0.0, slower - 1))
    won = finding.recoverable
    if won is not None and least < share:
        # Sure to be won is only what the profiler did not add.
        low = min(won.low, won.low * least / share)
        finding = dataclasses.replace(finding, recoverable=dataclasses.replace(won, low=low))
    if least >= limit / 100:
        return finding
    if _by_count(finding):
        lower = Severity.INFO if finding.severity is Severity.INFO else Severity.WARNING
        return dataclasses.replace(finding, severity=lower)
    still = finding.severity is Severity.CRITICAL and least >= limit / 100 / CRITICAL_OVER_WARNING
    return dataclasses.replace(finding, severity=Severity.WARNING if still else Severity.INFO)


def allowing_for_others(deep: Placed, own: Sequence[Placed]) -> Placed:
    """An info of what is about the host's time where others had its processors: a window does not tell them apart.

    Of time in which no operator runs, no more than what others took from the loop's thread, nothing is a saving: while
    a thread has no core nothing of it runs.
    """
    finding = deep.finding
    busy = [
        item.finding
        for item in own
        if item.finding.code == _CONTENTION
        and item.finding.severity is not Severity.INFO
        and item.group == deep.group
        and (not item.finding.batch_sizes or bool(set(item.finding.batch_sizes) & set(finding.batch_sizes)))
    ]
    if not busy or not _of_the_host(finding) or _by_count(finding):
        return deep
    says = f"While other programs used the processors, too: {continued(finding.summary)}"
    if finding.code == _NO_OPERATOR and sum(finding.claims.values()) <= max(map(_taken, busy)):
        lowered = dataclasses.replace(finding, severity=Severity.INFO, summary=says, recoverable=None)
        return dataclasses.replace(deep, finding=lowered)
    if finding.severity is Severity.INFO:
        return deep
    return dataclasses.replace(deep, finding=dataclasses.replace(finding, severity=Severity.INFO, summary=says))


def _taken(contention: Finding) -> float:
    """The share of the time in which others had the core of the loop's thread, 0…1; 0 where that was not counted."""
    taken = (item.value for item in contention.evidence if item.metric == WITHOUT_A_CORE)
    return next((value / 100 for value in taken if isinstance(value, int | float)), 0.0)


def _of_the_host(finding: Finding) -> bool:
    """Whether it is about time of the host's, to which the profiler and other programs add."""
    return finding.family in _OF_THE_HOST or finding.code in _OF_ITS_CALLS


def beside(deep: Placed) -> Placed:
    """What only the window shows, although the undisturbed steps were asked: the profiler may have made it."""
    finding = deep.finding
    slows = ", which slows the host" if _of_the_host(finding) else ""
    says = f"In the profiler window only{slows}: {continued(finding.summary)}"
    changed = dataclasses.replace(
        finding, severity=Severity.INFO, summary=says, confidence=min(finding.confidence, Tier.CONFIGURATION.value)
    )
    return dataclasses.replace(deep, finding=changed)
