"""How replies about trials become one reply about a group, and how rules end up found, clear or unchecked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest

from perf_diagnostics.diagnose.asking import ask_all, void_trials
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, SweepFacts
from perf_diagnostics.diagnose.finding import Cleared, Evidence, Family, Finding, Severity, Share
from perf_diagnostics.diagnose.rules import RULES
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of


@dataclass(frozen=True)
class Told:
    """A rule that answers as it is told, by batch size and repeat (or batch size alone)."""

    answers: dict
    family: Family = Family.HOST
    limit: float | None = None

    code: ClassVar[str] = "HST999"
    name: ClassVar[str] = "told"
    looks_at: ClassVar[str] = "trial"

    def check(self, facts):
        settings = facts.result.trial
        answer = self.answers.get((facts.batch_size, settings.repeat), self.answers.get(facts.batch_size))
        if isinstance(answer, NotMeasured):
            raise answer
        if isinstance(answer, Severity):
            return Finding(
                code=self.code,
                name=self.name,
                family=self.family,
                severity=answer,
                summary=f"fault {answer}",
                scope="",
                evidence=(Evidence(metric="number", value=facts.batch_size, limit=self.limit),),
                recoverable=Share(0.1, 0.1, 0.1),
            )
        return Cleared(self.code, self.name, f"batch {facts.batch_size} is well")


#: Throughputs by which batch 16 is recommended.
RUN = throughput_sweep({8: 50, 16: 97, 32: 100})


def told(answers, run=RUN, family=Family.HOST, limit=None):
    facts = SweepFacts.of(run)
    return ask_all([Told(answers, family, limit)], facts, facts)


def one_finding(answers, **more):
    (placed,) = told(answers, **more).placed
    return placed.finding


def test_found_everywhere_is_one_finding():
    finding = one_finding({8: Severity.WARNING, 16: Severity.WARNING, 32: Severity.WARNING})
    assert finding.scope == "synthetic on cpu, batch 8, 16 and 32"
    assert finding.batch_sizes == (16, 8, 32)  # first the one it tells of
    assert finding.summary == "Batch 16: fault warning The same holds at batch 8 and 32."
    assert [item.metric for item in finding.evidence] == ["number"]
    assert finding.evidence[0].value == 16


def test_the_severity_is_that_at_the_recommended_batch():
    finding = one_finding({8: Severity.CRITICAL, 16: Severity.WARNING, 32: Severity.INFO})
    assert finding.severity is Severity.WARNING


def test_the_worst_batch_adds_its_evidence():
    finding = one_finding({8: Severity.CRITICAL, 16: Severity.WARNING})
    assert [(item.metric, item.value) for item in finding.evidence] == [("number", 16), ("number, batch 8", 8)]


def test_found_elsewhere_only_is_an_info():
    (placed,) = told({8: Severity.CRITICAL}).placed
    assert placed.finding.severity is Severity.INFO
    assert not placed.at_recommended
    assert "does not hold at the recommended batch 16" in placed.finding.summary


@pytest.mark.parametrize(("limit", "worst"), [(4.0, 32), (64.0, 8)])
def test_elsewhere_the_one_farthest_beyond_its_limit_is_told(limit, worst):
    finding = one_finding({8: Severity.INFO, 32: Severity.INFO}, limit=limit)
    assert finding.summary.startswith(f"Batch {worst}: fault info")
    assert len(finding.evidence) == 1


def test_a_fault_of_the_experiment_elsewhere_counts_one_less():
    assert one_finding({8: Severity.CRITICAL}, family=Family.EXPERIMENT).severity is Severity.WARNING


def test_where_the_recommended_batch_cannot_be_checked_the_worst_counts():
    assert one_finding({8: Severity.CRITICAL, 16: NotMeasured("x", "y")}).severity is Severity.CRITICAL


def test_clear_everywhere_is_cleared_with_the_recommended_batchs_numbers():
    replies = told({})
    assert [item.summary for item in replies.cleared] == ["batch 16 is well"]
    assert (replies.placed, replies.unchecked) == ((), ())


def test_measured_nowhere_is_unchecked():
    replies = told(dict.fromkeys((8, 16, 32), NotMeasured("tokens", "the loop counts none")))
    (item,) = replies.unchecked
    assert (item.code, item.signal, item.why) == ("HST999", "tokens", "the loop counts none")
    assert (replies.placed, replies.cleared) == ((), ())


def test_measured_somewhere_is_checked():
    replies = told({8: NotMeasured("tokens", "the loop counts none")})
    assert replies.unchecked == ()
    assert len(replies.cleared) == 1


@pytest.mark.parametrize(("faulty", "found"), [(1, False), (2, True), (3, True)])
def test_half_of_the_repeats_make_a_fault(faulty, found):
    run = run_of(*(trial_of(repeat=repeat) for repeat in range(4)))
    replies = told({(8, repeat): Severity.WARNING for repeat in range(faulty)}, run)
    assert bool(replies.placed) is found
    assert bool(replies.cleared) is not found


def test_of_repeats_the_middle_one_speaks():
    run = run_of(*(trial_of(repeat=repeat) for repeat in range(3)))
    answers = {(8, 0): Severity.CRITICAL, (8, 1): Severity.INFO, (8, 2): Severity.WARNING}
    assert one_finding(answers, run=run).severity is Severity.WARNING


def test_one_batch_size_needs_no_prefix():
    assert one_finding({8: Severity.WARNING}, run=run_of(trial_of())).summary == "fault warning"


TWO_GROUPS = run_of(trial_of(batch_size=8), trial_of(batch_size=16, device="cuda:0"))


def test_each_group_has_its_own_finding():
    replies = told({8: Severity.WARNING, 16: Severity.WARNING}, TWO_GROUPS)
    assert [placed.group for placed in replies.placed] == ["synthetic on cpu", "synthetic on cuda:0"]


def test_a_question_that_does_not_arise_in_one_group_is_no_news():
    assert told({8: NotApplicable("x", "no device")}, TWO_GROUPS).unchecked == ()
    (item,) = told({8: NotMeasured("x", "lost")}, TWO_GROUPS).unchecked
    assert item.why == "lost (synthetic on cpu)"


def test_a_reason_that_holds_in_all_groups_is_said_once():
    (item,) = told(dict.fromkeys((8, 16), NotMeasured("x", "lost")), TWO_GROUPS).unchecked
    assert item.why == "lost"
    answers = {8: NotMeasured("x", "lost"), 16: NotMeasured("x", "never there")}
    whys = [item.why for item in told(answers, TWO_GROUPS).unchecked]
    assert whys == ["lost (synthetic on cpu)", "never there (synthetic on cuda:0)"]


def test_a_question_that_arises_nowhere_is_unchecked():
    (item,) = told({8: NotApplicable("x", "no device")}, run_of(trial_of())).unchecked
    assert item.why == "no device"


def test_without_trials_a_rule_is_unchecked():
    (item,) = told({}, run_of()).unchecked
    assert (item.signal, item.why) == ("trials", "no trial completed")


def test_void_trials():
    short, endless = trial_of(batch_size=8, steps=2), trial_of(batch_size=16, columns={"loss": float("inf")})
    fine, open_ended = (
        trial_of(batch_size=32, columns={"loss": 1.0}),
        trial_of(batch_size=64, without=["measured_wall_s"]),
    )
    facts = SweepFacts.of(run_of(short, endless, fine, open_ended))
    assert [trial.batch_size for trial in void_trials(RULES, facts)] == [8, 16]
