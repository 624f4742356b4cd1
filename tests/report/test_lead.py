"""The verdict at a glance, what is said besides, and whose symptom a finding is."""

from __future__ import annotations

import dataclasses
import re

import pytest

from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity, Share, Verdict
from perf_diagnostics.report.changes import changes_of
from perf_diagnostics.report.formats.html import render_html
from perf_diagnostics.report.formats.markdown import render_markdown
from perf_diagnostics.report.gains import explained_by
from perf_diagnostics.report.lead import lead, lead_of
from perf_diagnostics.report.model import Change, Report
from perf_diagnostics.report.tables.tables import findings_table

TRIED = "Tried: length_bucketing=True wins 44 % (25 % to 58 %) of the time a sample takes, in 4 pairs of trials."


@pytest.mark.parametrize(
    ("headline", "first"),
    [
        ("No rule found a fault. 84 % of a step of 22.7 ms is work.", "No rule found a fault."),
        (
            "Batch 32: 66 % (62 % to 70 %) are padding. The same holds at 4.",
            "Batch 32: 66 % (62 % to 70 %) are padding.",
        ),
        ("It waits at train.py:9. It is slow.", "It waits at train.py:9."),
        ("The step takes 1. 5 is less.", "The step takes 1. 5 is less."),
        ("One sentence alone.", "One sentence alone."),
    ],
)
def test_the_first_sentence_is_the_lead_and_nothing_is_lost(headline: str, first: str) -> None:
    told, rest = lead(headline)
    assert told == first
    assert f"{told} {rest}".strip() == headline


def finding(code: str, *, explains: tuple[str, ...] = (), gain: bool = True, scope: str = "cpu") -> Finding:
    return Finding(
        code=code, name="a-name", family=Family.INPUT, severity=Severity.WARNING, scope=scope, summary="It waits.",
        evidence=(), recoverable=Share(0.3, 0.1, 0.5) if gain else None, remedies=(), confidence=0.7, explains=explains,
    )  # fmt: skip


def with_trial(report: Report, summary: str, tried: str) -> Report:
    found = dataclasses.replace(finding("AAA001"), summary=summary)
    diagnosis = Diagnosis(verdict=Verdict("AAA001", "a-name", Family.INPUT, summary), findings=(found,))
    change = Change(
        says="Do it.", code="", where="cpu", because="it waits", gain=Share(0.4, 0.2, 0.6), confidence=0.9,
        key="finding AAA001 cpu", tried=tried,
    )  # fmt: skip
    return dataclasses.replace(report, headline=summary, diagnosis=diagnosis, changes=(change,))


def test_what_the_change_says_of_its_trial_is_not_said_twice(report: Report) -> None:
    summary = f"It waits. The same holds at batch 4. {TRIED} It changes the optimisation."
    told = with_trial(report, summary, "tried in 4 pairs of trials: confirmed")
    assert lead_of(told) == ("It waits.", "The same holds at batch 4.")
    assert lead_of(with_trial(report, f"It waits. {TRIED}", "tried: confirmed")) == ("It waits.", "")
    assert lead_of(with_trial(report, summary, ""))[1].endswith(f"{TRIED} It changes the optimisation.")


def test_the_page_leads_with_one_sentence_and_markdown_stresses_it(report: Report) -> None:
    told = with_trial(report, "It waits. The same holds at batch 4.", "")
    assert '<h2 class="headline">It waits.</h2>' in render_html(told)
    assert '<p class="besides">The same holds at batch 4.</p>' in render_html(told)
    assert "**It waits.** The same holds at batch 4." in render_markdown(told)
    alone = render_html(with_trial(report, "It waits.", ""))
    assert '<p class="besides">' not in alone


def test_a_symptom_says_whose_and_that_its_gain_is_not_a_second_one(report: Report) -> None:
    cause, symptom = finding("AAA001", explains=("BBB002",)), finding("BBB002")
    diagnosis = Diagnosis(verdict=None, findings=(cause, symptom))
    assert explained_by(symptom, diagnosis) == "Explained by AAA001: one gain, not two."
    assert explained_by(cause, diagnosis) == ""
    assert explained_by(finding("BBB002", gain=False), diagnosis) == "Explained by AAA001."
    assert explained_by(finding("BBB002", scope="cuda:0"), diagnosis) == ""  # found elsewhere
    apart = dataclasses.replace(diagnosis, findings=(cause, dataclasses.replace(symptom, name="another-name")))
    of_cause, of_symptom = (change.because for change in changes_of(apart))
    assert of_cause.endswith("AAA001)")
    assert of_symptom.endswith("BBB002, explained by AAA001: one gain, not two)")
    told = dataclasses.replace(report, diagnosis=diagnosis)
    for text in (render_html(told), render_markdown(told)):
        assert text.count("Explained by AAA001: one gain, not two.") == 1


def test_that_nothing_was_found_is_not_said_with_the_confidence_of_something_else(report: Report) -> None:
    said = "No rule found a fault. It computes."
    found = dataclasses.replace(finding("AAA001"), summary="It computes.")

    def page(opening: str) -> str:
        verdict = Verdict("AAA001", "a-name", Family.INPUT, said, fault=False, opening=opening)
        diagnosis = Diagnosis(verdict=verdict, findings=(found,))
        return render_html(dataclasses.replace(report, headline=said, diagnosis=diagnosis, changes=()))

    sure = re.compile(r'class="sure">.*?</span>', re.S)
    assert "confidence" not in sure.findall(page("No rule found a fault."))[0]
    assert "confidence 70" in sure.findall(page(""))[0]


def test_what_could_be_won_is_explained_only_where_something_could() -> None:
    for gain in (True, False):
        note = findings_table(Diagnosis(verdict=None, findings=(finding("AAA001", gain=gain),))).note
        assert ("Could win back" in note) is gain
