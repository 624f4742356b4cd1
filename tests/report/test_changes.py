"""What to change: the first advice of each worthwhile finding, or what was tried of it and won."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.code_share import CodeShare
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
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.records import CodePlace
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
    assert change.because == "the wait is 30.0 % (limit 20 %, from 7 values; INP001)"
    assert change.key == "finding INP001 w on cpu, batch 8" and change.tried == ""


def test_what_to_write_instead_of_a_line_known_to_be_slow_goes_before_a_general_advice() -> None:
    def saying(share: float, family: Family = Family.HOST, **change: object) -> str:
        place = CodePlace(file="a.py", line=7, function="f", text="x = q.pop(0)", kinds=(("q", "list"),))
        line = CodeShare(
            place=place, callers=(), called="", phase="other", share=Interval(share, None, None, 100), looks=50
        )
        remedies = (Remedy("Do it for many at once.", change),)
        return of(finding(lines=(line,), claims={"other": 0.4}, remedies=remedies, family=family))[0]

    assert saying(0.3) == "At a.py:7: make q a collections.deque, and use popleft()."
    assert saying(0.1) == saying(0.3, num_workers=2) == "Do it for many at once."
    # What need not be computed at all is not to be computed in another way.
    assert saying(0.3, Family.COMPUTE) == "Do it for many at once."


def test_a_training_of_the_users_own_is_told_what_to_write_and_no_settings() -> None:
    same = finding(2, remedies=(Remedy("In other words.", {"num_workers": 1}),))
    own = Diagnosis(verdict=None, findings=(finding(), same), takes_settings=False)
    assert [(change.says, change.code) for change in changes_of(own)] == [("Do 1.", "DataLoader(…, num_workers=1)")]


def test_a_count_has_no_decimals() -> None:
    threads = (Evidence(metric="threads at work", value=16.0, limit=2.0),)
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(evidence=threads),)))
    assert change.because == "the number of threads at work is 16 (limit 2; INP001)"


def test_what_was_tried_and_decides_nothing_is_said_so_beside_the_prediction() -> None:
    early = Tried(
        codes=("INP001",),
        groups=("",),
        where="cpu, batch 8",
        says="Do 1.",
        change={"num_workers": 1},
        verdict=Trying.TOO_EARLY,
        predicted=HALF,
        gain=Interval(0.1, None, None, 1),
        pairs=1,
        base_s=0.1,
        new_s=0.09,
        why="a verdict needs 3",
    )
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),), tried=(early,)))
    assert change.tried == "tried, too early to say: a verdict needs 3"
    assert change.gain == HALF
    unsure = dataclasses.replace(early, verdict=Trying.INCONCLUSIVE, pairs=3)
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),), tried=(unsure,)))
    # 1 / 0.09 = 11.1; the prediction stands, and is told once: as the change's gain.
    assert change.tried == "tried in 3 pairs of trials: inconclusive, from 10.0 to 11.1 samples/s"
    left = dataclasses.replace(early, verdict=Trying.NOT_TRIED, gain=None, pairs=0, why="no time was left for it")
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),), tried=(left,)))
    assert change.tried == "not tried: no time was left for it"
    lost = dataclasses.replace(unsure, change={"num_workers": 2})
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(),), tried=(lost,)))
    assert change.tried == ""  # of another change


def test_information_and_findings_without_a_gain_ask_for_no_change() -> None:
    assert of(finding(severity=Severity.INFO), finding(gain=None)) == ()


def test_information_asks_for_the_change_that_won_when_it_was_tried() -> None:
    won = Tried(
        codes=("INP001",),
        groups=("",),
        where="cpu, batch 8",
        says="Do 1.",
        change={"num_workers": 1},
        verdict=Trying.CONFIRMED,
        predicted=HALF,
        gain=Interval(0.3, 0.2, 0.4, 5),
        pairs=5,
        base_s=0.1,
        new_s=0.07,
        as_predicted=True,
    )
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(severity=Severity.INFO),), tried=(won,)))
    assert change.says == "Do 1." and "confirmed, from 10.0 to 14.3 samples/s" in change.tried
    lost = dataclasses.replace(won, verdict=Trying.REFUTED)
    assert changes_of(Diagnosis(verdict=None, findings=(finding(severity=Severity.INFO),), tried=(lost,))) == ()


def test_the_same_change_in_the_same_place_is_told_once() -> None:
    same = finding(2, remedies=(Remedy("In other words.", {"num_workers": 1}),))
    elsewhere = finding(3, remedies=(Remedy("Do 1.", {"num_workers": 1}),), scope="w on cpu, batch 16")
    assert of(finding(1), same, elsewhere) == ("Do 1.", "Do 1.")


def test_what_was_tried_for_two_findings_is_told_once_with_one_prediction() -> None:
    """Else one change stands twice, beside two predictions of one and the same experiment."""
    both = Tried(
        codes=("INP001", "INP002"),
        groups=("",),
        where="cpu, batch 8",
        says="Do 1.",
        change={"num_workers": 1},
        verdict=Trying.TOO_EARLY,
        predicted=HALF,
        gain=Interval(0.1, None, None, 1),
        pairs=1,
    )
    second = finding(2, remedies=(Remedy("Do 1.", {"num_workers": 1}),), scope="w on cpu", gain=Share(0.3, 0.1, 0.9))
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(), second), tried=(both,)))
    assert change.gain == HALF and "INP001" in change.because
    assert len(changes_of(Diagnosis(verdict=None, findings=(finding(), second)))) == 2  # in two places, and not tried


def test_no_more_than_a_few_are_told() -> None:
    assert len(of(*(finding(number) for number in range(1, 7)))) == CHANGES_TOLD


def test_a_finding_without_advice_or_evidence_still_says_what_it_is_about() -> None:
    (change,) = changes_of(Diagnosis(verdict=None, findings=(finding(remedies=(), evidence=()),)))
    assert "“some fault”" in change.says and change.code == ""
    assert change.because == "some fault (INP001)"
