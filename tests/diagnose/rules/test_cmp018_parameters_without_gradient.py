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


def turn(place: int, unused: int, used: int, **more: object) -> dict[str, object]:
    kinds = {1: ("Adam", "Judge"), 2: ("SGD", "Forger")}[place]
    told = {"place": place, "optimizer": kinds[0], "trains": kinds[1], "turns": 1, "sparse_gradients": 0}
    return {**told, "unused_parameters": unused, "gradients_used": used, **more}


def ask_several(*told: dict[str, object], count: int = 2, **facts: object):
    known = {"optimizers_in_turn": count, "gradients_of_optimizers": list(told), **facts}
    return ask_trial(RULE, forward=0.03, backward=0.06, optimizer=0.01, facts=known)


def test_of_several_optimizers_the_one_concerned_is_named():
    # 10 of 1000 in all, but half of the forger's 20.
    finding = found(ask_several(turn(1, 0, 980), turn(2, 10, 10), unused_parameters=10, gradients_used=990))
    assert "50 % of the parameters that optimizer 2 of 2 (SGD, of Forger) is to train" in finding.summary
    assert number(finding, "parameters that got no gradient, optimizer 1 of 2 (Adam, of Judge)").value == 0
    both = found(ask_several(turn(1, 100, 300), turn(2, 10, 10)))
    # 110 of 420
    assert both.summary.startswith("26 % of the parameters that optimizer 1 of 2 (Adam, of Judge) and optimizer 2 of 2")
    assert " are to train" in both.summary


def test_several_optimizers_are_clear_only_together():
    together = clear(ask_several(turn(1, 0, 980), turn(2, 0, 20), unused_parameters=0, gradients_used=1000))
    assert len(together.evidence) == 2 and "each of the 2 optimizers" in together.summary
    assert "of 2 optimizers that take turns 1 showed" in str(missing(ask_several(turn(1, 0, 980))))
    found(ask_several(turn(2, 10, 10)))  # what is seen is seen


def test_records_of_several_that_make_no_sense_are_not_read():
    for broken in ("two", [1, {"place": 1}], [turn(1, -1, 5)]):
        facts = {"optimizers_in_turn": 2, "gradients_of_optimizers": broken}
        assert "nobody looked" in str(missing(ask_trial(RULE, forward=0.03, facts=facts)))
