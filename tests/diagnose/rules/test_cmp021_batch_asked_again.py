"""CMP021: a batch that goes through the model once more after it was trained on."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp021_batch_asked_again import BatchAskedAgain
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = BatchAskedAgain()
MS = 1_000_000


def ask(training_ms: float = 0, evaluating_ms: float = 0, *, again: float = 0, without: float = 0, **trial):
    """A step of 1 s with so much of it in calls on a batch that was trained on."""
    columns = {
        "backwards": 1,
        "forwards": 1 + again - min(again, without),
        "forwards_without_gradients": without,
        "forwards_again": again,
        "forwards_again_ns": int(training_ms * MS),
        "evaluations_again_ns": int(evaluating_ms * MS),
    }
    return ask_trial(RULE, forward=0.6, backward=0.3, other=0.1, noise=0.02, columns=columns, **trial)


def test_in_training_mode_it_warns_and_its_time_can_be_won():
    finding = found(ask(200, again=1))
    assert finding.severity is Severity.WARNING
    assert "called once a step in training mode" in finding.summary
    # And of what is left 5 % at most, which the call leaves cold.
    assert finding.recoverable.high == pytest.approx(0.2, rel=0.05)
    assert finding.claims == {"forward": pytest.approx(0.2, rel=0.05)}
    assert "detach()" in finding.remedies[0].says


def test_without_gradients_it_lies_outside_of_forward():
    finding = found(ask(200, again=1, without=1))
    assert finding.claims == {"other": pytest.approx(0.2, rel=0.05)}


@pytest.mark.parametrize("times", [{"training_ms": 70, "again": 1}, {"evaluating_ms": 300, "without": 1}])
def test_less_of_it_or_in_evaluation_mode_it_is_mentioned(times):
    finding = found(ask(**times))
    assert finding.severity is Severity.INFO
    assert ("in evaluation mode" in finding.summary) is ("evaluating_ms" in times)


def test_the_training_outputs_are_no_answer_for_evaluation_mode():
    evaluated, trained = found(ask(evaluating_ms=300, without=1)), found(ask(training_ms=70, again=1))
    assert "once in many steps" in evaluated.remedies[0].says and "neither dropout" in evaluated.remedies[1].says
    assert "Without dropout and batch norm" in evaluated.summary
    assert trained.remedies[0].says.startswith("Take what the training's own call") and "dropout" not in trained.summary


def test_what_evaluation_mode_would_win_is_a_guess():
    finding = found(ask(evaluating_ms=300, without=1))
    assert finding.recoverable.low == pytest.approx(0.2 * 0.3, rel=0.05)
    assert finding.recoverable.high == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("times", [{}, {"training_ms": 20, "again": 1}, {"evaluating_ms": 20, "without": 1}])
def test_little_of_it_is_clear(times):
    clear(ask(**times))


def test_the_numbers_of_calls_are_told():
    answer = clear(ask(0, without=3))
    assert number(answer, "other calls of the model a step").value == 3
    assert number(answer, "calls of the model to be trained a step").value == 1


def test_on_a_device_it_is_counted_and_not_timed():
    finding = found(ask(200, again=1, device="cuda:0"))
    assert finding.severity is Severity.WARNING and finding.recoverable is None and finding.claims == {}
    clear(ask(device="cuda:0"))


def test_old_records_are_not_counted():
    assert "older records" in str(missing(ask_trial(RULE, forward=0.5, backward=0.5)))
