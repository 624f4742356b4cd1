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
