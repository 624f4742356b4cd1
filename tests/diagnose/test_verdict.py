"""What is said first: a fault, else the largest saving that was seen, else where the time goes; or why nothing is."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.finding import Family, Remedy, Severity, Share
from perf_diagnostics.diagnose.ranking import ranked
from perf_diagnostics.diagnose.verdict import suspected, verdict, would_decide
from tests.diagnose.test_ranking import HERE, THERE, placed


def judged(*items, **given):
    return verdict(ranked(items, HERE), HERE, **given)


def decide(*items):
    return would_decide(ranked(items, HERE), HERE)


def test_the_verdict_is_the_first_fault():
    best, why = judged(placed("INP001", 0.3), placed("OPT001", 0.1), placed("EXP004"))
    assert (best.code, best.family, best.summary, why) == ("INP001", Family.INPUT, "summary of INP001", "")
    assert (best.fault, best.opening, best.note) == (True, "", "")


def test_a_fault_that_is_not_sure_enough_is_passed_over():
    best, _ = judged(placed("INP001", 0.3, confidence=0.2), placed("OPT001", 0.1))
    assert best.code == "OPT001"


def test_another_groups_fault_is_not_the_verdict():
    best, _ = judged(placed("OPT001", 0.5, group=THERE), placed("CMP002", severity=Severity.INFO))
    assert best.code == "CMP002"


# -- a fault of too little confidence


def test_only_unsure_faults_make_no_verdict_and_no_clean_bill():
    fault = placed("INP001", 0.3, confidence=0.2, remedies=(Remedy("Load with 2 workers."),))
    best, why = judged(fault, placed("CMP002", severity=Severity.INFO))
    assert best is None
    assert why == "INP001 inp001 is suspected, at a confidence of 0.20 where a verdict needs 0.25. summary of INP001"
    assert suspected(ranked((fault,), HERE), HERE) == "INP001"
    assert decide(fault) == "To decide it, try this: Load with 2 workers."


def test_what_would_decide_a_suspicion_is_also_to_measure_without_what_takes_the_confidence():
    fault = placed("INP001", 0.3, confidence=0.2, remedies=(Remedy("Load with 2 workers."),))
    assert decide(fault, placed("EXP010")) == (
        "To decide it, try this: Load with 2 workers; or measure it without “exp010” (EXP010)."
    )
    bare = placed("INP001", 0.3, confidence=0.2)
    assert decide(bare, placed("EXP010", severity=Severity.INFO)) == "To decide it, measure more steps."
    assert decide(info("MEM007", 0.1, 0.5)) == ""


def test_a_suspicion_stands_before_an_observation_and_not_before_a_verdict():
    unsure, saving = placed("OPT001", 0.1, confidence=0.2), info("MEM007", 0.1, 0.5)
    assert suspected(ranked((unsure, saving), HERE), HERE) == "OPT001"
    assert suspected(ranked((saving,), HERE), HERE) == "MEM007"
    assert suspected(ranked((WORK,), HERE), HERE) == ""
    assert suspected(ranked((placed("OPT001", 0.1, group=THERE),), HERE), HERE) == ""


# -- nothing is wrong


def test_without_fault_the_verdict_says_where_the_time_goes():
    best, _ = judged(placed("CMP002", severity=Severity.INFO), placed("SWP002", severity=Severity.INFO))
    assert (best.code, best.fault) == ("CMP002", False)
    assert best.summary == "No rule found a fault. summary of CMP002"
    assert best.opening == "No rule found a fault."


def test_what_was_not_opened_is_said_in_one_clause_after_the_answer():
    """Forward (0.3) and backward (0.6 of the step) are one block without a profiler: it is said, with what opens it."""
    healthy = placed("CMP002", severity=Severity.INFO, claims={"forward": 0.3, "backward": 0.6})
    best, _ = judged(healthy)
    assert best.summary == "No rule found a fault. summary of CMP002"
    assert best.note == "What forward and backward do inside (90 % of a step) was not profiled (--deep does)."
    missing, _ = judged(healthy, why_closed="the training ended before it")
    assert missing.note.endswith("(90 % of a step) was not profiled: the training ended before it.")
    shown, _ = judged(healthy, opened=True, inside="It is all aten::mm.")
    assert (shown.summary, shown.note) == ("No rule found a fault. summary of CMP002", "It is all aten::mm.")
    opened, _ = judged(healthy, opened=True)
    assert opened.note == ""
    bare, _ = judged(placed("CMP002", severity=Severity.INFO))
    assert bare.note == "What forward and backward do inside was not profiled (--deep does)."


def test_a_trial_that_broke_off_gets_no_clean_bill():
    healthy, fault = placed("CMP002", severity=Severity.INFO), placed("INP001", 0.3)
    best, why = judged(healthy, broke_off=True)
    assert best is None and "broke off before its end" in why
    best, _ = judged(healthy, fault, broke_off=True)
    assert best.code == "INP001"  # what was found is there all the same


def test_where_the_time_goes_is_no_verdict_while_it_is_unsure():
    best, why = judged(placed("CMP002", severity=Severity.INFO, confidence=0.11))
    assert best is None
    assert why == (
        "no rule found a fault; that forward and backward work takes most of the step is likely, at a confidence of "
        "0.11 where a verdict needs 0.25 [CMP002 cmp002]"
    )


def test_nothing_found_and_nothing_to_say():
    best, why = judged(placed("SWP002", severity=Severity.INFO))
    assert best is None
    assert "no rule found a fault" in why


# -- the largest saving where nothing is wrong


def info(code, low=None, high=None, **more):
    won = None if high is None else Share((low + high) / 2, low, high)
    return dataclasses.replace(
        (item := placed(code, severity=Severity.INFO, **more)),
        finding=dataclasses.replace(item.finding, name="what-it-is", recoverable=won),
    )


WORK = placed("CMP002", severity=Severity.INFO, claims={"forward": 0.9})


def said(*items, **given):
    """The verdict's words, or why there is none."""
    best, why = judged(WORK, *items, **{"opened": True, **given})
    return why if best is None else best.summary


def test_a_considerable_saving_is_said_first_and_is_no_fault():
    best, _ = judged(WORK, info("MEM007", 0.04, 0.27))
    assert (best.code, best.name, best.family, best.fault) == ("MEM007", "what-it-is", Family.MEMORY, False)
    assert best.summary == (
        "Nothing was found broken; the largest saving seen is 4.0 % to 27 % of a step (predicted). summary of MEM007"
    )
    # Where the time goes, and where nobody looked, come last.
    assert best.note == (
        "summary of CMP002 What forward and backward do inside (90 % of a step) was not profiled (--deep does)."
    )
    assert "fault" not in best.summary.lower()


def test_a_saving_whose_summary_has_a_colon_makes_no_sentence_with_two():
    item = info("MEM007", 0.04, 0.27)
    says = "Activations are computed again: forward runs twice."
    best, _ = judged(WORK, dataclasses.replace(item, finding=dataclasses.replace(item.finding, summary=says)))
    assert best.summary.endswith(f". {says}")
    assert max(sentence.count(":") for sentence in best.summary.split(". ")) == 1


def test_of_several_savings_the_one_of_which_the_most_is_sure_is_said_as_it_is_listed_first():
    both = (info("INP001", 0.02, 0.3), info("MEM007", 0.04, 0.27))
    assert "summary of MEM007" in said(*both) and "INP001" not in said(*both)


def test_a_measured_saving_is_not_called_a_prediction():
    item = info("MEM007", 0.1, 0.27)
    won = dataclasses.replace(item.finding.recoverable, measured=True)
    measured = dataclasses.replace(item, finding=dataclasses.replace(item.finding, recoverable=won))
    assert "is 10 % to 27 % of a step (measured). summary of MEM007" in said(measured)


def test_a_saving_of_which_nothing_is_sure_counts_by_its_best_guess():
    assert said(info("HST011", 0.0, 0.44)) == (
        "Nothing was found broken; the largest saving seen is up to 44 % of a step (predicted, and none of it sure). "
        "summary of HST011"
    )
    assert said(info("HST004", 0.0, 0.29)).startswith("No rule found a fault.")  # 14.5 %
    assert "MEM007" in said(info("HST011", 0.0, 0.9), info("MEM007", 0.01, 0.2))  # what is sure comes first


def test_work_for_nothing_of_unknown_gain_is_said_where_no_gain_is_known():
    unused = info("CMP018", confidence=0.3)
    assert said(unused) == (
        "Nothing was found broken; one thing is worth a look first, its gain unknown. summary of CMP018"
    )
    assert "CMP018" not in said(unused, info("MEM007", 0.04, 0.27))
    assert "its gain unknown. summary of HST011" in said(info("HST011"))
    assert said(info("CMP012")) == "No rule found a fault. summary of CMP002"  # of other infos the gain is what counts


def test_small_unsure_and_other_infos_are_not_said_first():
    alone = "No rule found a fault. summary of CMP002"
    assert said(info("MEM007", 0.04, 0.1499)) == alone
    assert "MEM007" in said(info("MEM007", 0.04, 0.15))
    assert said(info("EXP007", 0.1, 0.5)) == alone
    assert said(info("CMP002", 0.1, 0.5)) == alone
    assert said(info("MEM007", 0.1, 0.5, confidence=0.108)) == alone  # a setting, in few steps, under others' load
    assert "MEM007" in said(info("MEM007", 0.1, 0.5, confidence=0.18))  # with one doubt less
    assert said(info("MEM007", 0.1, 0.5, group=THERE)) == alone
    assert said(info("SWP003", 0.1, 0.5, at_recommended=False)) == alone


def test_beside_a_fault_no_saving_is_said():
    assert said(placed("OPT001", 0.1), info("MEM007", 0.1, 0.5)) == "summary of OPT001"
    unsure = said(placed("OPT001", 0.1, confidence=0.2), info("MEM007", 0.1, 0.5))
    assert "OPT001" in unsure and "MEM007" not in unsure


def test_it_is_said_first_where_there_is_no_verdict_as_well():
    largest = "the largest saving seen is 10 % to 50 % of a step (predicted) [MEM007]. Summary of MEM007. No rule found"
    item = info("MEM007", 0.1, 0.5)
    broken = said(item, broke_off=True)
    assert broken.startswith(largest) and broken.endswith("broke off before its end")
    guess = info("MEM007", 0.1, 0.5, confidence=0.24)
    unsure = dataclasses.replace(WORK, finding=dataclasses.replace(WORK.finding, confidence=0.11))
    for other in ((unsure, guess), (guess,)):
        best, why = judged(*other, parts="a step is all forward")
        assert best is None and why.startswith(largest) and why.endswith("; a step is all forward")


def test_a_saving_that_is_sure_enough_is_the_verdict_also_where_it_is_not_known_what_takes_the_time():
    given = {"parts": "a step is all forward", "why_no_work": "the device ran dry in 90 % of the steps"}
    best, why = judged(info("MEM007", 0.1, 0.5, confidence=0.25), **given)
    assert (best.code, best.fault, why) == ("MEM007", False, "")
    assert best.note == ("No rule found a fault; the device ran dry in 90 % of the steps; a step is all forward.")
    assert judged(info("MEM007", 0.1, 0.5), broke_off=True)[0] is None
