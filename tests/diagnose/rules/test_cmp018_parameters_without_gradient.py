"""CMP018: parameters that an optimizer holds and no backward reaches, none of them, and nobody looked."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp018_parameters_without_gradient import ParametersWithoutGradient
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = ParametersWithoutGradient()


def ask(without: int, used: int = 1000, **facts: bool):
    known = {"unused_parameters": without, "gradients_used": used, **facts}
    sizes = {"parameters": 4000, "parameter_bytes": 16 * 2**20}
    return ask_trial(RULE, forward=0.03, backward=0.06, optimizer=0.01, facts=known, quantities=sizes)


def test_a_head_that_is_not_in_the_loss_is_mentioned_and_no_gain_is_promised():
    finding = found(ask(1000))  # 1000 of 2000
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary.startswith("50 % of the parameters")
    assert number(finding, "parameters that got no gradient").value == pytest.approx(50.0)
    # 1000 of the model's 4000 parameters, which take 16 MiB.
    assert number(finding, "memory of these parameters").value == pytest.approx(4.0)
    assert "p.grad is None" in finding.remedies[0].says and changes(finding) == []
    assert len(finding.remedies) == 2


def test_that_ddp_looks_for_them_is_said_where_it_does():
    finding = found(ask(1000, ddp_find_unused_parameters=True))
    assert "no longer walks the graph" in finding.remedies[2].says
    assert number(finding, "find_unused_parameters").value == "True"


@pytest.mark.parametrize("without", [0, 52])  # 52 of 1052: 4.9 %
def test_none_and_few_are_clear(without):
    clear(ask(without))


def test_at_the_limit_it_is_mentioned():
    found(ask(53))  # 53 of 1053: 5.03 %


def test_all_of_them_without_one_that_has_is_no_division_by_nothing():
    assert number(found(ask(10, used=0)), "parameters that got no gradient").value == pytest.approx(100.0)
    clear(ask(0, used=0))


def test_nobody_looked_is_not_none():
    assert "nobody looked" in str(missing(ask_trial(RULE, forward=0.03)))


def test_sizes_need_not_be_known():
    facts = {"unused_parameters": 500, "gradients_used": 500}
    finding = found(ask_trial(RULE, forward=0.03, facts=facts))
    assert [evidence.metric for evidence in finding.evidence] == ["parameters that got no gradient"]
