"""CMP017: gradients of parameters that no optimizer holds, none of them, and nobody looked."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp017_unused_gradients import UnusedGradients
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = UnusedGradients()


def ask(unheld: int, used: int = 1000):
    facts = {"gradients_nobody_uses": unheld, "gradient_bytes_nobody_uses": 4 * unheld, "gradients_used": used}
    return ask_trial(RULE, forward=0.03, backward=0.06, optimizer=0.01, facts=facts)


def test_a_teacher_with_gradients_is_found_and_no_gain_is_promised():
    finding = found(ask(3000))  # 3000 of 4000
    assert finding.severity is Severity.WARNING and finding.recoverable is None
    assert finding.summary.startswith("75 % of the gradients")
    assert number(finding, "gradients that nobody uses").value == pytest.approx(75.0)
    assert number(finding, "backward").value == pytest.approx(60.0, rel=0.05)
    assert "no_grad()" in finding.remedies[0].says and changes(finding) == []


def test_whose_they_are_is_said_where_it_is_known():
    facts = {"gradients_nobody_uses": 3000, "gradients_used": 1000, "gradients_nobody_uses_of": "Teacher, Net.body"}
    finding = found(ask_trial(RULE, forward=0.03, backward=0.06, optimizer=0.01, facts=facts))
    assert "belong to parameters that no optimizer holds (Teacher, Net.body):" in finding.summary


@pytest.mark.parametrize("unheld", [0, 52])  # 52 of 1052: 4.9 %
def test_none_and_few_are_clear(unheld):
    clear(ask(unheld))


def test_at_the_limit_it_warns():
    found(ask(53))  # 53 of 1053: 5.03 %


def test_nobody_looked_is_not_none():
    assert "nobody looked" in str(missing(ask_trial(RULE, forward=0.03)))


def test_where_one_of_several_optimizers_showed_none_it_is_not_known_whether_somebody_uses_them():
    told = {"place": 1, "turns": 1, "sparse_gradients": 0, "unused_parameters": 0, "gradients_used": 10}
    facts = {"optimizers_in_turn": 2, "gradients_of_optimizers": [told]}
    assert "of 2 optimizers that take turns 1 showed" in str(missing(ask_trial(RULE, forward=0.03, facts=facts)))


def looked(operators: float, *, took: float | None = None, dropped: bool = False, unheld: int = 0):
    """Two backwards were looked into; so much of them leads to unused gradients alone."""
    facts = {"gradients_nobody_uses": unheld, "gradient_bytes_nobody_uses": 4 * unheld, "gradients_used": 1000}
    facts |= {"backwards_looked_into": 2, "backward_operators_unused": operators, "gradients_dropped": dropped}
    facts |= {} if took is None else {"backward_time_unused": took}
    return ask_trial(RULE, forward=0.03, backward=0.06, optimizer=0.01, noise=0.01, facts=facts)


def test_a_generator_that_the_critics_loss_reaches_is_found_with_its_time():
    finding = found(looked(0.3, took=0.4, dropped=True))
    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith("The backward computes gradients of another optimizer's parameters")
    assert "40 % of the first steps' backward: 24 % of a step" in finding.summary
    # 0.24 of the step, or twice as much beside the other 0.76: activations are kept for it, gradients added up.
    assert finding.recoverable.low == pytest.approx(0.3 * 0.24, rel=0.03)
    assert finding.recoverable.high == pytest.approx(0.48 / (0.48 + 0.76), rel=0.03)
    assert finding.claims == {"backward": pytest.approx(0.24, rel=0.03)}
    assert "made.detach()" in finding.remedies[0].says and len(finding.remedies) == 1
    assert finding.confidence == pytest.approx(0.7)


def test_a_frozen_body_has_a_gain_where_its_time_was_seen_and_none_where_it_was_not():
    timed, counted = found(looked(0.7, took=0.65, unheld=3000)), found(looked(0.7, unheld=3000))
    assert timed.summary.startswith("75 % of the gradients") and counted.summary.startswith("75 % of the gradients")
    assert timed.recoverable.high == pytest.approx(0.78 / (0.78 + 0.61), rel=0.03) and counted.recoverable is None
    assert "70 % of the backward's operators" in counted.summary
    assert counted.confidence == pytest.approx(0.3)


def test_transposes_of_a_critics_weights_are_no_fault():
    # A generator's backward passes through its critic, whose weights' gradients are dropped: as in every GAN.
    clear(looked(0.12, took=0.04, dropped=True))


def test_time_speaks_where_both_are_known():
    clear(looked(0.5, took=0.05, dropped=True))
    found(looked(0.05, took=0.5, dropped=True))
