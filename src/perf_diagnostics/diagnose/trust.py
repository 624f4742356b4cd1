"""Findings from disturbed trials are worth less: what the trust rules found lowers the confidence of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.facts.facts import INDICATIVE_STEPS
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Share
from perf_diagnostics.diagnose.rule_parts.gain import STRADDLES

#: Faults of the experiment that change what a trial measures without making it void: the observer, and other programs
#: on the processors or on the device.
DISTURBING = ("EXP009", "EXP010", "EXP012")

#: What a trial says of its warm-up, and of one whose end could not be shown.
WARMED_UP, NOT_SHOWN = "warm-up over", "not shown"

#: Under other people's load step times do not settle: that is no second fault of the experiment.
_CONTENTION, _EXPLAINED = "EXP010", ("EXP004",)


def tempered(placed: Sequence[Placed]) -> tuple[Placed, ...]:
    """The findings, those about disturbed trials with less confidence and less of their gain vouched for.

    Shares of a step stay much the same under other people's load (their intervals did in 17 of 19 disturbed and
    undisturbed controls), so a predicted gain only loses part of its lower end. A gain measured between two trials
    was measured between two moments, and nothing of it is sure.

    A trial whose steps did not settle has cost its findings confidence already; where that is the same load's doing, it
    costs them none again.
    """
    causes = [item for item in placed if item.finding.code in DISTURBING and item.finding.severity != Severity.INFO]
    unsettled = [item for item in placed if _never_settled(item.finding)]
    return tuple(_in_the_light_of(causes, unsettled, item) for item in placed)


def _never_settled(finding: Finding) -> bool:
    """Whether this says that a trial of enough steps never came to the end of its warm-up."""
    return finding.code in _EXPLAINED and any(
        one.metric == WARMED_UP and one.value == NOT_SHOWN and (one.n or 0) >= INDICATIVE_STEPS
        for one in finding.evidence
    )


def _in_the_light_of(causes: Sequence[Placed], unsettled: Sequence[Placed], item: Placed) -> Placed:
    finding = item.finding
    if finding.code in _EXPLAINED and any(c.finding.code == _CONTENTION and _same_trials(c, item) for c in causes):
        return dataclasses.replace(item, finding=dataclasses.replace(finding, severity=Severity.INFO))
    touching = [cause for cause in causes if _touches(cause, item)]
    if not touching:
        return item
    by_load_alone = all(cause.finding.code == _CONTENTION for cause in touching)
    known = by_load_alone and any(_same_trials(one, item) for one in unsettled)
    return dataclasses.replace(item, finding=_lowered(finding, 1.0 if known else STRADDLES))


def _touches(cause: Placed, item: Placed) -> bool:
    """Whether a finding is about trials that were disturbed; one about the whole run is, if any of its groups was."""
    if item.finding.family is Family.EXPERIMENT:
        return False
    return item.group is None or _same_trials(cause, item)


def _same_trials(cause: Placed, item: Placed) -> bool:
    if item.group != cause.group:
        return False
    disturbed, about = set(cause.finding.batch_sizes), set(item.finding.batch_sizes)
    return not disturbed or not about or bool(disturbed & about)


def _lowered(finding: Finding, by: float) -> Finding:
    gain = finding.recoverable
    if gain is not None:
        gain = Share(gain.value, 0.0 if gain.measured else gain.low * STRADDLES, gain.high)
    return dataclasses.replace(finding, confidence=finding.confidence * by, recoverable=gain)
