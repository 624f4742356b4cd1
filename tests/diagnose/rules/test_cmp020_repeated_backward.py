"""CMP020: several backwards through one graph, what they cost, and the trainings that need them."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp020_repeated_backward import RepeatedBackward
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = RepeatedBackward()
MS = 1_000_000


def ask(again_ms: float, *, again: float = 2, backwards: float = 3, facts=None, **trial):
    """A step of 1 s, half of it backward, of which so much is spent in backwards beyond the longest."""
    columns = {"backwards": backwards, "backwards_again": again, "backwards_again_ns": int(again_ms * MS)}
    return ask_trial(
        RULE, forward=0.5, backward=0.5, noise=0.02, columns=columns | trial.pop("columns", {}), facts=facts, **trial
    )


@pytest.mark.parametrize(("again_ms", "severity"), [(150, Severity.WARNING), (400, Severity.CRITICAL)])
def test_their_share_is_graded_and_can_be_won(again_ms, severity):
    finding = found(ask(again_ms, facts={"backwards_add_up": True}))
    assert finding.severity is severity
    assert "calls backward 3 times, 2 of them" in finding.summary
    assert finding.recoverable.high == pytest.approx(again_ms / 1e3, rel=0.05)
    assert finding.recoverable.low == pytest.approx(0.3 * again_ms / 1e3, rel=0.05)
    assert finding.claims == {"backward": pytest.approx(again_ms / 1e3, rel=0.05)}
    assert finding.confidence == pytest.approx(0.7, abs=0.01)
    assert "(loss_a + loss_b).backward()" in finding.remedies[0].says


def test_below_the_limit_it_is_clear():
    assert number(clear(ask(50)), "repeated backwards").value == pytest.approx(5, rel=0.05)


def test_where_nobody_saw_whether_gradients_add_up_it_is_less_sure():
    assert found(ask(400)).confidence == pytest.approx(0.5, abs=0.01)


def test_gradients_that_are_taken_away_in_between_are_needed_by_themselves():
    assert "taken away" in clear(ask(400, facts={"backwards_add_up": False})).summary


def test_a_graph_that_is_kept_in_few_steps_is_no_way_of_training():
    clear(ask(0, again=0, backwards=1))
    seldom = [1 if step % 10 == 0 else 0 for step in range(100)]
    clear(ask(400, columns={"backwards_again": seldom}))


def test_on_a_device_it_is_counted_and_not_timed():
    finding = found(ask(400, device="cuda:0"))
    assert finding.severity is Severity.WARNING and finding.recoverable is None and finding.claims == {}
    assert "how long that takes was not measured" in finding.summary


def test_old_records_and_trials_of_a_sweep_are_not_counted():
    assert "older records" in str(missing(ask_trial(RULE, forward=0.5, backward=0.5)))
    assert "no call of backward" in str(missing(ask(0, again=0, backwards=0)))


def chunks(**facts):
    """Four backwards a step with calls of the model in between; half of a step of 1 s is backward."""
    return ask(0, again=0, backwards=4, facts=facts)


def test_a_state_that_is_handed_on_is_run_through_again():
    finding = found(chunks(backward_operators_again=0.55, backward_time_again=0.6))
    assert finding.severity is Severity.CRITICAL  # 0.6 of the half of a step
    assert "in the first steps 60 % of their time" in finding.summary and "30 % of a step" in finding.summary
    assert finding.recoverable.high == pytest.approx(0.3, rel=0.05)
    assert finding.claims == {"backward": pytest.approx(0.3, rel=0.05)}
    assert "state.detach()" in finding.remedies[0].says and "call backward once" in finding.remedies[1].says


def test_what_torch_adds_up_between_operators_may_go_with_them():
    finding = found(chunks(backward_time_again=0.6, backward_time_again_at_most=0.8))
    assert finding.recoverable.high == pytest.approx(0.4, rel=0.05)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.3, rel=0.05)


def test_little_of_it_is_clear():
    quiet = clear(chunks(backward_operators_again=0.5, backward_time_again=0.1))
    assert number(quiet, "repeated backwards").value == pytest.approx(5, rel=0.05)
    clear(chunks(backward_operators_again=0.0, backward_time_again=0.0))


def test_what_was_not_timed_is_told_by_its_operators():
    finding = found(chunks(backward_operators_again=0.4))
    assert finding.severity is Severity.WARNING and finding.recoverable is None
    assert "40 % of their operators" in finding.summary
    clear(chunks(backward_operators_again=0.2))
