"""Which masks are told as drawn number by number, and what drawing them from words takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step.drawn_masks import SIGNAL, DrawnMasks, _Tried
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_weight_penalties import OneSecondEach

W = torch.randn(512, 512, requires_grad=True)


def told(loss: Loss) -> list[Any]:
    """What the look tells, as if each operator had taken a second."""
    graph = OperatorGraph()
    facts, gaps = looked_at([OneSecondEach(graph, DrawnMasks(graph, OperatorLines()))], loss)
    assert not gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found


@pytest.fixture(autouse=True)
def _tries_take_a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Tried, "_once", lambda _self, _mask, _p: 0.25)


def test_dropouts_masks_are_told_with_their_line_numbers_and_time() -> None:
    (one,) = told(lambda: functional.dropout(functional.dropout(W, 0.1), 0.1).sum())
    assert one["calls"] == 2 and one["numbers"] == 2 * W.numel()
    # empty_like, bernoulli_, div_ and mul, twice, and sum.
    assert one["forward"] == pytest.approx(2 / 9) and one["backward"] == 0
    assert one["left"] == pytest.approx(0.25)


def test_the_line_that_drops_is_named() -> None:
    graph = OperatorGraph()
    watchers = [graph, DrawnMasks(graph, OperatorLines())]
    facts, _ = looked_at(watchers, lambda: 2 * functional.dropout(W, 0.1).sum())
    (one,) = facts[SIGNAL]  # type: ignore[misc,union-attr]
    assert "functional.dropout" in one["text"]  # type: ignore[index,operator]


def test_other_masks_of_the_same_size_are_drawn_to_try_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    seconds = _Tried().seconds(W.numel(), 0.9)
    assert seconds is not None and seconds > 0


def test_what_the_user_draws_and_evaluation_are_none() -> None:
    layer = nn.Dropout(0.5).eval()
    assert told(lambda: 2 * (layer(W) * torch.rand_like(W) * torch.bernoulli(torch.rand(512, 512))).sum()) == []


def test_the_scripts_random_numbers_stay_as_they_are() -> None:
    torch.manual_seed(5)
    functional.dropout(W, 0.1)
    plain = torch.rand(3)
    torch.manual_seed(5)
    assert len(told(lambda: functional.dropout(W, 0.1).sum())) == 1
    assert torch.equal(torch.rand(3), plain)


def test_more_numbers_than_are_tried_have_no_time_to_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf_diagnostics.measure.one_step.drawn_masks._MOST_NUMBERS", 1000)
    (one,) = told(lambda: functional.dropout(W, 0.1).sum())
    assert one["left"] is None and one["forward"] > 0
