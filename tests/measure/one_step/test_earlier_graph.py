"""Backward through what was computed before the step is told apart by torch's numbers of its nodes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import dispatch_mode
from perf_diagnostics.measure.one_step.earlier_graph import SIGNAL, EarlierGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from tests.measure.one_step.looking import Loss, looked_at

WEIGHT = torch.ones(4, 4, requires_grad=True)


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


def told(loss: Loss) -> list[Any]:
    facts, gaps = looked_at([EarlierGraph(OperatorLines())], loss)
    assert gaps == {}
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found


def features() -> torch.Tensor:
    return (torch.ones(2, 4) @ WEIGHT).tanh()


def test_what_was_computed_before_is_told_with_its_part_of_backward() -> None:
    earlier = features()

    def both() -> torch.Tensor:
        return (features() + earlier).sum()

    def detached() -> torch.Tensor:
        return (features() + earlier.detach()).sum()

    (one,) = told(both)
    # tanh and the product of both: two nodes, and as many operators as those of this step.
    assert one["nodes"] == 2 and one["forward"] == 0
    assert 0.2 < one["backward"] < 0.6 and one["whole"] < one["backward"]
    assert one["function"] == "looked_at" and "backward" in one["text"]
    assert told(detached) == []


def test_parameters_and_what_needs_no_gradient_are_no_earlier_graph() -> None:
    made = WEIGHT.detach() * 2

    def loss() -> torch.Tensor:
        return (torch.ones(2, 4) @ WEIGHT @ made).sum()

    assert told(loss) == []


def test_operators_that_it_is_not_shown_take_their_time_all_the_same() -> None:
    first, second = features(), features()
    sparse = torch.eye(4).to_sparse()

    def with_sparse() -> torch.Tensor:
        return (features() + first).sum() + torch.sparse.mm(sparse, WEIGHT.detach()).sum()

    def without() -> torch.Tensor:
        return (features() + second).sum()

    (one,), (plain,) = told(with_sparse), told(without)
    assert one["nodes"] == plain["nodes"]
    assert one["whole"] < plain["whole"] * 0.95
