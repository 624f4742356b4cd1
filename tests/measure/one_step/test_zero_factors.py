"""Which terms of a loss are told as multiplied by 0, and what of the step is for them alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.zero_factors import SIGNAL, ZeroFactors
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_weight_penalties import OneSecondEach

BODY, MAIN, SIDE = nn.Linear(6, 5), nn.Linear(5, 1), nn.Linear(5, 1)
X = torch.rand(8, 6)
NOTHING = torch.tensor(0.0)


def told(loss: Loss, *, timed: bool = False) -> tuple[list[Any], OperatorGraph]:
    """What the look tells, with the operators' true times or as if each had taken a second."""
    graph = OperatorGraph()
    watchers = [graph, ZeroFactors(graph, OperatorLines())]
    facts, gaps = looked_at(watchers if timed else [OneSecondEach(*watchers)], loss)
    assert not gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found, graph


def side(hidden: torch.Tensor) -> torch.Tensor:
    """Five operators of forward: t, addmm, sigmoid, detach for its own backward, and sum."""
    return SIDE(hidden).sigmoid().sum()


def main(hidden: torch.Tensor) -> torch.Tensor:
    return MAIN(hidden).sum()


def test_what_leads_to_the_factor_alone_counts_there_and_back() -> None:
    def loss() -> torch.Tensor:
        hidden = BODY(X)
        return main(hidden) + 0.0 * side(hidden)

    (one,), graph = told(loss)
    assert one["calls"] == 1
    # These and mul, beside t, addmm, t, addmm, sum and add.
    assert (one["forward"], graph.forward) == (pytest.approx(6 / 12), 12.0)
    # mul, expand, sigmoid_backward and what its layer's node asks for; what becomes of weights' gradients is nobody's.
    assert one["backward"] == pytest.approx(12 / graph.backward)


def test_the_line_that_multiplies_is_named() -> None:
    def loss() -> torch.Tensor:
        hidden = BODY(X)
        return main(hidden) + 0.0 * side(hidden)

    (one,), _ = told(loss, timed=True)
    assert one["line"] == loss.__code__.co_firstlineno + 2 and 0 < one["whole"] < 1


def test_what_is_logged_is_needed_in_forward_and_not_in_backward() -> None:
    def loss(*, logs: bool) -> torch.Tensor:
        hidden = BODY(X)
        term = side(hidden)
        if logs:
            assert term.detach().item() > 0
        return main(hidden) + term * 0

    (plain,), _ = told(lambda: loss(logs=False))
    (logged,), graph = told(lambda: loss(logs=True))
    assert logged["backward"] == plain["backward"] and logged["forward"] == pytest.approx(1 / graph.forward)


def test_a_tensor_of_one_zero_that_was_there_before_is_a_factor_too() -> None:
    weights = torch.tensor([1.0, 0.0])

    def loss() -> torch.Tensor:
        hidden = BODY(X)
        return main(hidden) + side(hidden) * NOTHING

    def by_index() -> torch.Tensor:
        hidden = BODY(X)
        return weights[0] * main(hidden) + weights[1] * side(hidden)

    assert len(told(loss)[0]) == 1
    # What picks it is an operator of the step; but a view holds what was there before.
    assert len(told(by_index)[0]) == 1


def test_a_line_that_does_it_for_each_of_several_terms_is_one() -> None:
    def loss() -> torch.Tensor:
        hidden = BODY(X)
        total = main(hidden)
        for _ in range(3):
            total = total + 0 * side(hidden)
        return total

    (one,), graph = told(loss)
    assert one["calls"] == 3 and one["forward"] == pytest.approx(18 / graph.forward)


def _quiet() -> dict[str, Loss]:
    def weighted() -> torch.Tensor:
        hidden = BODY(X)
        return main(hidden) + 1e-9 * side(hidden)

    def computed_in_the_step() -> torch.Tensor:
        hidden = BODY(X)
        return main(hidden) + (hidden.detach().sum() > 1e9).float() * side(hidden)

    def without_gradients() -> torch.Tensor:
        hidden = BODY(X)
        with torch.no_grad():
            held = 0.0 * side(hidden)
        return main(hidden) + held

    def of_no_gradient() -> torch.Tensor:
        return main(BODY(X)) + 0.0 * X.sum()

    def left_out_of_the_loss() -> torch.Tensor:
        hidden = BODY(X)
        _ = 0.0 * side(hidden)
        return main(hidden)

    def a_mask() -> torch.Tensor:
        hidden = BODY(X)
        return main(hidden) + functional.relu(SIDE(hidden) * (X[:, :1] > 2)).sum()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_quiet()))
def test_what_is_no_factor_of_zero_is_not_told(name: str) -> None:
    assert told(_quiet()[name])[0] == []
