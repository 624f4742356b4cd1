"""What to change: the first advice of each worthwhile finding, or what was tried of it and won."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.finding import (
    Diagnosis,
    Evidence,
    Family,
    Finding,
    Remedy,
    Severity,
    Share,
    Tried,
    Trying,
)
from perf_diagnostics.diagnose.statistics import Interval
from perf_diagnostics.report.changes import CHANGES_TOLD, changes_of

HALF = Share(0.5, 0.2, 0.6)


def finding(number: int = 1, *, gain: Share | None = HALF, **more: object) -> Finding:
    given: dict[str, object] = {
        "code": f"INP00{number}",
        "name": "some-fault",
        "family": Family.INPUT,
        "severity": Severity.WARNING,
        "summary": "It is slow.",
        "scope": "w on cpu, batch 8",
        "evidence": (Evidence(metric="cores", value=2.0), Evidence(metric="wait", value=30.0, unit="%", limit=20, n=7)),
        "remedies": (Remedy(f"Do {number}.", {"num_workers": number}), Remedy("Or else.")),
        "recoverable": gain,
        **more,
    }
    return Finding(**given)  # type: ignore[arg-type]


def of(*findings: Finding) -> tuple[str, ...]:
    return tuple(change.says for change in changes_of(Diagnosis(verdict=None, findings=findings)))


def test_the_first_advice_of_a_finding_stands_with_the_number_that_was_held_against_a_limit() -> None:
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),)))
    assert (change.says, change.code) == ("Do 1.", "num_workers=1")
    assert change.because == "“wait” is 30.0 %, limit 20 %, from 7 values (INP001)"
    assert change.key == "finding INP001 w on cpu, batch 8" and change.tried == ""


def test_what_was_tried_and_stayed_undecided_is_said_so_beside_the_prediction() -> None:
    unsure = Tried(
        codes=("INP001",),
        groups=("",),
        where="cpu, batch 8",
        says="Do 1.",
        change={"num_workers": 1},
        verdict=Trying.INCONCLUSIVE,
        gain=Interval(0.1, None, None, 1),
        pairs=1,
        base_s=0.1,
        new_s=0.09,
    )
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),), tried=(unsure,)))
    assert change.tried == "tried in 1 pair of trials: inconclusive, from 10.0 to 11.1 samples/s"  # 1 / 0.09 = 11.1
    assert change.gain == HALF
    lost = dataclasses.replace(unsure, change={"num_workers": 2})
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),), tried=(lost,)))
    assert change.tried == ""  # of another change


def test_information_and_findings_without_a_gain_ask_for_no_change() -> None:
    assert of(finding(severity=Severity.INFO), finding(gain=None)) == ()


def test_the_same_change_in_the_same_place_is_told_once() -> None:
    same = finding(2, remedies=(Remedy("In other words.", {"num_workers": 1}),))
    elsewhere = finding(3, remedies=(Remedy("Do 1.", {"num_workers": 1}),), scope="w on cpu, batch 16")
    assert of(finding(1), same, elsewhere) == ("Do 1.", "Do 1.")


def test_no_more_than_a_few_are_told() -> None:
    assert len(of(*(finding(number) for number in range(1, 7)))) == CHANGES_TOLD


def test_a_finding_without_advice_or_evidence_still_says_what_it_is_about() -> None:
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(remedies=(), evidence=()),)))
    assert "“some fault”" in change.says and change.code == ""
    assert change.because == "some fault (INP001)"
