"""The order in which findings are read: the verdict's own, other faults, doubts about the measuring, observations."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity
from perf_diagnostics.diagnose.verdict_place import verdict_finding

#: The rule that says how trials ended; critical where none completed, which is no matter of less sure numbers.
FAILED_TRIALS = "EXP002"


def in_reading_order(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis with its findings as a reader needs them.

    The engine names faults of the experiment first, for they decide what can be said at all. A reader wants to know
    first what the verdict rests on; within each kind the engine's order stays, by the gain that is sure.
    """
    first = verdict_finding(diagnosis)
    rest = [finding for finding in diagnosis.findings if finding is not first]
    ordered = sorted(rest, key=_place)
    return dataclasses.replace(diagnosis, findings=(*(() if first is None else (first,)), *ordered))


def doubts_measuring(finding: Finding) -> bool:
    """Whether a finding says why the numbers are less sure, and not why the training is slow, or that it failed."""
    of_measuring = finding.family is Family.EXPERIMENT and finding.severity is not Severity.INFO
    return of_measuring and not (finding.code == FAILED_TRIALS and finding.severity is Severity.CRITICAL)


def _place(finding: Finding) -> int:
    return 2 if finding.severity is Severity.INFO else 1 if doubts_measuring(finding) else 0
