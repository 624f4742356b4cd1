"""The order of findings, causes before symptoms, and the verdict."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.asking import Placed
from perf_diagnostics.diagnose.finding import Family, Finding, Severity, Share
from perf_diagnostics.diagnose.ranking import ranked, verdict

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


# -- verdict


def judged(*items):
    return verdict(ranked(items, HERE), HERE)


def test_the_verdict_is_the_first_fault():
    best, why = judged(placed("INP001", 0.3), placed("OPT001", 0.1), placed("EXP004"))
    assert (best.code, best.family, best.summary, why) == ("INP001", Family.INPUT, "summary of INP001", "")


def test_a_fault_that_is_not_sure_enough_is_passed_over():
    best, _ = judged(placed("INP001", 0.3, confidence=0.2), placed("OPT001", 0.1))
    assert best.code == "OPT001"


def test_only_unsure_faults_make_no_verdict_and_no_clean_bill():
    best, why = judged(placed("INP001", 0.3, confidence=0.2), placed("CMP002", severity=Severity.INFO))
    assert best is None
    assert "INP001" in why
    assert "0.20" in why


def test_without_fault_the_verdict_says_where_the_time_goes():
    best, _ = judged(placed("CMP002", severity=Severity.INFO), placed("SWP002", severity=Severity.INFO))
    assert best.code == "CMP002"
    assert best.summary.startswith("No rule found a fault in what was looked at; what forward and backward do inside ")
    assert best.summary.endswith("summary of CMP002")


def test_what_was_not_opened_is_no_clean_bill():
    """Forward (0.3) and backward (0.6 of the step) are one block without a profiler: it is said, with what opens it."""
    healthy = placed("CMP002", severity=Severity.INFO, claims={"forward": 0.3, "backward": 0.6})
    best, _ = judged(healthy)
    assert "do inside (90 % of a step) was not opened: a profiler window (`sweep --deep`;" in best.summary
    missing, _ = verdict(ranked([healthy], HERE), HERE, why_closed="the training ended before it")
    assert "was not opened: the profiler window is missing (the training ended before it). " in missing.summary
    shown, _ = verdict(ranked([healthy], HERE), HERE, opened=True, inside="It is all aten::mm.")
    assert shown.summary == "No rule found a fault. summary of CMP002 It is all aten::mm."
    opened, _ = verdict(ranked([healthy], HERE), HERE, opened=True)
    assert opened.summary == "No rule found a fault. summary of CMP002"


def test_a_trial_that_broke_off_gets_no_clean_bill():
    healthy, fault = placed("CMP002", severity=Severity.INFO), placed("INP001", 0.3)
    best, why = verdict(ranked([healthy], HERE), HERE, broke_off=True)
    assert best is None and "broke off before its end" in why
    best, _ = verdict(ranked([healthy, fault], HERE), HERE, broke_off=True)
    assert best.code == "INP001"  # what was found is there all the same


def test_another_groups_fault_is_not_the_verdict():
    best, _ = judged(placed("OPT001", 0.5, group=THERE), placed("CMP002", severity=Severity.INFO))
    assert best.code == "CMP002"


def test_where_the_time_goes_is_no_verdict_while_it_is_unsure():
    best, why = judged(placed("CMP002", severity=Severity.INFO, confidence=0.11))
    assert best is None
    assert "CMP002" in why
    assert "0.11" in why


def test_nothing_found_and_nothing_to_say():
    best, why = judged(placed("SWP002", severity=Severity.INFO))
    assert best is None
    assert "no rule found a fault" in why


# -- what is named beside the verdict that there is no fault


def info(code, low=None, high=None, **more):
    won = None if high is None else Share((low + high) / 2, low, high)
    return dataclasses.replace(
        (item := placed(code, severity=Severity.INFO, **more)),
        finding=dataclasses.replace(item.finding, name="what-it-is", recoverable=won),
    )


WORK = placed("CMP002", severity=Severity.INFO, claims={"forward": 0.9})


def said(*items, **given):
    best, why = verdict(ranked((WORK, *items), HERE), HERE, **{"opened": True, **given})
    return why if best is None else best.summary


def test_the_largest_info_is_named_after_the_sentence_that_there_is_no_fault():
    named = "Largest observation: what it is, predicted up to 27 % of a step [MEM007]."
    assert said(info("MEM007", 0.04, 0.27)) == f"No rule found a fault. {named} summary of CMP002"
    closed = said(info("MEM007", 0.04, 0.27), opened=False)
    start = (
        f"No rule found a fault in what was looked at. {named} What forward and backward do inside (90 % of a step) "
    )
    assert closed.startswith(start) and closed.endswith(" opens it. summary of CMP002")
    best, _ = verdict(ranked((WORK, info("MEM007", 0.04, 0.27)), HERE), HERE, opened=True)
    assert best.code == "CMP002"  # an info makes no verdict


def test_of_several_the_one_of_which_the_most_is_sure_is_named_as_it_is_listed_first():
    both = (info("INP001", 0.02, 0.3), info("MEM007", 0.04, 0.27))
    assert "up to 27 % of a step [MEM007]" in said(*both) and "INP001" not in said(*both)


def test_a_measured_gain_is_not_called_a_prediction():
    item = info("MEM007", 0.1, 0.27)
    won = dataclasses.replace(item.finding.recoverable, measured=True)
    measured = dataclasses.replace(item, finding=dataclasses.replace(item.finding, recoverable=won))
    assert "Largest observation: what it is, up to 27 % of a step [MEM007]." in said(measured)


def test_work_for_nothing_of_unknown_gain_is_named_where_no_gain_is_known():
    unused = info("CMP018", confidence=0.3)
    assert "Largest observation: what it is, of unknown gain [CMP018]." in said(unused)
    assert "CMP018" not in said(unused, info("MEM007", 0.04, 0.27))
    assert "of unknown gain [HST011]" in said(info("HST011"))
    assert said(info("CMP012")) == "No rule found a fault. summary of CMP002"  # of other infos the gain is what counts


def test_small_unsure_and_other_infos_are_not_named():
    alone = "No rule found a fault. summary of CMP002"
    assert said(info("MEM007", 0.04, 0.1499)) == alone
    assert "MEM007" in said(info("MEM007", 0.04, 0.15))
    assert said(info("HST004", 0.0, 0.24)) == alone  # nothing of it is sure
    assert said(info("EXP007", 0.1, 0.5)) == alone
    assert said(info("CMP002", 0.1, 0.5)) == alone
    assert said(info("MEM007", 0.1, 0.5, confidence=0.108)) == alone  # a setting, in few steps, under others' load
    assert "MEM007" in said(info("MEM007", 0.1, 0.5, confidence=0.18))  # with one doubt less
    assert said(info("MEM007", 0.1, 0.5, group=THERE)) == alone
    assert said(info("SWP003", 0.1, 0.5, at_recommended=False)) == alone


def test_beside_a_fault_no_info_is_named():
    assert said(placed("OPT001", 0.1), info("MEM007", 0.1, 0.5)) == "summary of OPT001"
    unsure = said(placed("OPT001", 0.1, confidence=0.2), info("MEM007", 0.1, 0.5))
    assert "OPT001" in unsure and "MEM007" not in unsure


def test_it_is_named_where_there_is_no_verdict_as_well():
    largest = "; largest observation: what it is, predicted up to 50 % of a step [MEM007]"
    item = info("MEM007", 0.1, 0.5)
    assert said(item, broke_off=True).endswith(f"broke off before its end{largest}")
    unsure = dataclasses.replace(WORK, finding=dataclasses.replace(WORK.finding, confidence=0.11))
    for other in ((unsure, item), (item,)):
        best, why = verdict(ranked(other, HERE), HERE)
        assert best is None and why.endswith(largest)
