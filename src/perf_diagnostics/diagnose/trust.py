"""Findings from disturbed trials are worth less: what the trust rules found lowers the confidence of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Share
from perf_diagnostics.diagnose.gain import STRADDLES

#: Faults of the experiment that change what a trial measures without making it void: the observer, and other programs.
DISTURBING = ("EXP009", "EXP010")


def tempered(placed: Sequence[Placed]) -> tuple[Placed, ...]:
    """The findings, those about disturbed trials with less confidence and less of their gain vouched for.

    Shares of a step stay much the same under other people's load (their intervals did in 17 of 19 disturbed and
    undisturbed controls), so a predicted gain only loses part of its lower end. A gain measured between two trials
    was measured between two moments, and nothing of it is sure.
    """
    causes = [item for item in placed if item.finding.code in DISTURBING and item.finding.severity != Severity.INFO]
    return tuple(
        dataclasses.replace(item, finding=_lowered(item.finding)) if any(_touches(c, item) for c in causes) else item
        for item in placed
    )


def _touches(cause: Placed, item: Placed) -> bool:
    """Whether a finding is about trials that were disturbed; one about the whole run is, if any of its groups was."""
    if item.finding.family is Family.EXPERIMENT:
        return False
    if item.group is None:
        return True
    if item.group != cause.group:
        return False
    disturbed, about = set(cause.finding.batch_sizes), set(item.finding.batch_sizes)
    return not disturbed or not about or bool(disturbed & about)


def _lowered(finding: Finding) -> Finding:
    gain = finding.recoverable
    if gain is not None:
        gain = Share(gain.value, 0.0 if gain.measured else gain.low * STRADDLES, gain.high)
    return dataclasses.replace(finding, confidence=finding.confidence * STRADDLES, recoverable=gain)
