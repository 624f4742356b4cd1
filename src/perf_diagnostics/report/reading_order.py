"""The order in which findings are read: a failure, the verdict's own, other faults, doubts, observations; and which of
them say that all the others are less sure."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity
from perf_diagnostics.diagnose.verdict import FAILED_TRIALS
from perf_diagnostics.diagnose.verdict_place import verdict_finding
from perf_diagnostics.report.lead import lead

#: The finding that steps are few, or do not tell their mean.
TOO_FEW_STEPS = "EXP001"


def in_reading_order(diagnosis: Diagnosis) -> Diagnosis:
    """The same diagnosis with its findings as a reader needs them.

    The engine names faults of the experiment first, for they decide what can be said at all. A reader wants to know
    first that nothing completed, then what the verdict rests on; within each kind the engine's order stays, by the gain
    that is sure.
    """
    first = verdict_finding(diagnosis)
    ordered = sorted(diagnosis.findings, key=lambda finding: _place(finding, is_first=finding is first))
    return dataclasses.replace(diagnosis, findings=tuple(ordered))


def doubts_measuring(finding: Finding) -> bool:
    """Whether a finding says why the numbers are less sure, and not why the training is slow, or that it failed."""
    of_measuring = finding.family is Family.EXPERIMENT and finding.severity is not Severity.INFO
    return of_measuring and not _nothing_completed(finding)


def less_sure(diagnosis: Diagnosis) -> str:
    """Why what is said in a line or two is less sure than it sounds, each reason in a clause; empty where it is not.

    Faults of the measuring, and steps that are few or do not tell their mean, at the batch at which one would train.
    """
    clauses = [lead(one.summary)[0].partition("; ")[0].rstrip(".") for one in diagnosis.findings if _doubts_all(one)]
    return " ".join(f"{clause}." for clause in dict.fromkeys(clauses))


def _doubts_all(finding: Finding) -> bool:
    if finding.code == FAILED_TRIALS:  # who failed makes the others no less sure
        return False
    doubts = doubts_measuring(finding) or (finding.code == TOO_FEW_STEPS and finding.severity is Severity.INFO)
    return doubts and finding.at_recommended


def _nothing_completed(finding: Finding) -> bool:
    """The rule on how trials ended is critical where none completed, which is no matter of less sure numbers."""
    return finding.code == FAILED_TRIALS and finding.severity is Severity.CRITICAL


def _place(finding: Finding, *, is_first: bool) -> int:
    if _nothing_completed(finding):
        return 0
    if is_first:
        return 1
    return 4 if finding.severity is Severity.INFO else 3 if doubts_measuring(finding) else 2
