"""The order of findings, and causes before symptoms."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Share
from perf_diagnostics.diagnose.ranking import ranked

HERE, THERE = "model on cuda:0", "model on cpu"


def placed(code, low=None, severity=Severity.WARNING, group=HERE, *, at_recommended=True, **more):
    won = None if low is None else Share(low, low, low)
    finding = Finding(
        code=code,
        name=code.lower(),
        family=Family(code[:3]),
        severity=severity,
        summary=f"summary of {code}",
        scope="",
        evidence=(),
        recoverable=won,
        **{"confidence": 0.7, **more},
    )
    return Placed(finding, group, at_recommended)


def order(*items):
    return [item.finding.code for item in ranked(items, HERE)]


def test_by_the_gain_that_is_sure():
    assert order(placed("OPT001", 0.1), placed("INP001", 0.3), placed("XFR001")) == ["INP001", "OPT001", "XFR001"]


def test_faults_of_the_experiment_come_first_and_infos_last():
    items = (
        placed("INP001", 0.3),
        placed("CMP002", 0.9, Severity.INFO),
        placed("EXP001"),
        placed("EXP002", severity=Severity.INFO),
    )
    assert order(*items) == ["EXP001", "INP001", "CMP002", "EXP002"]


def test_what_holds_at_the_recommended_batch_comes_before_what_does_not():
    assert order(placed("SWP003", 0.5, at_recommended=False), placed("INP001", 0.1)) == ["INP001", "SWP003"]


def test_the_primary_group_comes_before_others():
    assert order(placed("OPT001", 0.5, group=THERE), placed("INP001", 0.1)) == ["INP001", "OPT001"]


def test_equal_gains_are_ordered_by_severity_then_code():
    items = (placed("XFR001", 0.1), placed("OPT001", 0.1, Severity.CRITICAL), placed("INP001", 0.1))
    assert order(*items) == ["OPT001", "INP001", "XFR001"]


def test_about_equal_gains_are_ordered_by_severity():
    # A guess of 0.42 realises 0.084 at least, a wait of 0.41 0.082: nobody can say which is the larger.
    items = (placed("OPT001", 0.084), placed("INP001", 0.082, Severity.CRITICAL))
    assert order(*items) == ["INP001", "OPT001"]
    items = (placed("OPT001", 0.084), placed("INP001", 0.057, Severity.CRITICAL))  # 0.68 of it
    assert order(*items) == ["INP001", "OPT001"]


def test_a_gain_that_is_clearly_larger_comes_before_severity():
    items = (placed("OPT001", 0.084), placed("INP001", 0.05, Severity.CRITICAL))  # 0.6 of it
    assert order(*items) == ["OPT001", "INP001"]


def test_what_was_measured_is_larger_if_it_says_so():
    def measured(item):
        won = item.finding.recoverable
        won = dataclasses.replace(won, measured=True)
        return dataclasses.replace(item, finding=dataclasses.replace(item.finding, recoverable=won))

    items = (placed("OPT001", 0.30), placed("INP001", 0.28, Severity.CRITICAL))
    assert order(*map(measured, items)) == ["OPT001", "INP001"]
    assert order(*items) == ["INP001", "OPT001"]


def test_a_chain_of_about_equal_gains_does_not_turn_the_order_round():
    """Each is held against the largest that is left, and not against its neighbour."""
    items = (placed("OPT001", 0.30), placed("XFR001", 0.22), placed("INP001", 0.16, Severity.CRITICAL))
    assert order(*items) == ["OPT001", "XFR001", "INP001"]


def test_gains_that_nobody_knows_are_not_equal_to_known_ones():
    assert order(placed("OPT001", 0.1), placed("INP001", None, Severity.CRITICAL)) == ["OPT001", "INP001"]


def symptom(low=0.9, claims=None, **more):
    return placed("SWP001", low, symptom_of=("OPT001",), claims={} if claims is None else claims, **more)


def test_a_symptom_never_stands_before_its_cause():
    items = ranked((symptom(claims={"optimizer": 0.4}), placed("OPT001", 0.1, claims={"optimizer": 0.4})), HERE)
    assert [item.finding.code for item in items] == ["OPT001", "SWP001"]
    assert items[0].finding.explains == ("SWP001",)
    assert items[1].finding.explains == ()


def test_a_cause_has_to_speak_about_half_of_the_same_seconds():
    claims = {"optimizer": 0.1, "forward": 0.4}
    assert order(symptom(claims=claims), placed("OPT001", 0.1, claims={"optimizer": 0.3})) == ["SWP001", "OPT001"]
    claims = {"optimizer": 0.3, "forward": 0.2}
    assert order(symptom(claims=claims), placed("OPT001", 0.1, claims={"optimizer": 0.3})) == ["OPT001", "SWP001"]


def test_an_info_causes_nothing():
    cause = placed("OPT001", 0.1, Severity.INFO, claims={"optimizer": 0.4})
    assert order(symptom(claims={"optimizer": 0.4}), cause) == ["SWP001", "OPT001"]


def test_a_cause_elsewhere_explains_nothing_here():
    cause = placed("OPT001", 0.1, group=THERE, claims={"optimizer": 0.4})
    assert ranked((symptom(claims={"optimizer": 0.4}), cause), HERE)[1].finding.explains == ()


def test_a_symptom_without_seconds_of_its_own_needs_common_batch_sizes():
    peak = placed("SWP003", 0.3, batch_sizes=(64,), symptom_of=("MEM001",))
    assert order(peak, placed("MEM001", batch_sizes=(32, 64))) == ["MEM001", "SWP003"]
    assert order(peak, placed("MEM001", batch_sizes=(8,))) == ["SWP003", "MEM001"]


def test_a_symptom_of_the_whole_run_is_explained_in_the_primary_group():
    slow = placed("CMP001", 0.5, group=None, symptom_of=("INP001",))
    assert order(slow, placed("INP001", 0.1)) == ["INP001", "CMP001"]
    assert order(slow, placed("INP001", 0.1, group=THERE)) == ["CMP001", "INP001"]


def test_chains_of_causes_are_kept_in_order():
    slow = placed("CMP001", 0.9, group=None, symptom_of=("SWP001",))
    middle = symptom(0.5, claims={"optimizer": 0.4})
    cause = placed("OPT001", 0.1, claims={"optimizer": 0.4})
    assert order(slow, middle, cause) == ["OPT001", "SWP001", "CMP001"]


def test_a_cause_of_unknown_gain_stands_where_its_symptom_would():
    # Memory that is paged costs a third of the step, why it is full nobody knows the price of; the optimizer a tenth.
    full = placed("MEM001", severity=Severity.CRITICAL)
    paged = placed("MEM006", 0.3, symptom_of=("MEM001",))
    assert order(placed("OPT001", 0.1), full, paged) == ["MEM001", "MEM006", "OPT001"]


def test_a_cause_that_knows_no_seconds_explains_what_holds_at_the_same_batches():
    retried = placed("MEM003", batch_sizes=(64,))
    churn = placed("HST003", 0.1, claims={"forward": 0.2}, symptom_of=("MEM003",), batch_sizes=(32, 64))
    assert order(churn, retried) == ["MEM003", "HST003"]
    assert order(churn, placed("MEM003", batch_sizes=(8,))) == ["HST003", "MEM003"]


def test_idle_time_after_waits_may_lie_in_any_phase():
    outside = placed("HST006", 0.2, claims={"other": 0.2}, symptom_of=("XFR005",))
    assert order(outside, placed("XFR005", 0.05, claims={"waits": 0.15})) == ["XFR005", "HST006"]
    assert order(outside, placed("XFR005", 0.05, claims={"waits": 0.05})) == ["HST006", "XFR005"]


def test_findings_that_name_each_other_still_have_an_order():
    one = placed("INP001", 0.2, symptom_of=("XFR001",))
    other = placed("XFR001", 0.1, symptom_of=("INP001",))
    assert order(one, other) == ["INP001", "XFR001"]
