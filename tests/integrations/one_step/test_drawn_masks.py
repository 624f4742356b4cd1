"""Which masks are told as drawn number by number, and what drawing them from words takes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.integrations.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.integrations.one_step.drawn_masks import SIGNAL, DrawnMasks
from perf_diagnostics.integrations.one_step.operator_graph import OperatorGraph
from perf_diagnostics.integrations.one_step.operator_lines import OperatorLines
from tests.integrations.one_step.looking import Loss

W = torch.randn(512, 512, requires_grad=True)


def told(loss: Loss) -> list[Any]:
    graph = OperatorGraph()
    mode = OperatorMode([graph, DrawnMasks(graph, OperatorLines())])
    mode.open()
    try:
        total = loss()
        mode.enter_backward()
        total.backward()
    finally:
        mode.close()
    facts, gaps = mode.conclude()
    assert not gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found


def test_dropouts_masks_are_told_with_their_line_numbers_and_time() -> None:
    (one,) = told(lambda: 2 * functional.dropout(functional.dropout(W, 0.1), 0.1).sum())
    assert one["calls"] == 2 and one["numbers"] == 2 * W.numel() and "functional.dropout" in one["text"]
    assert 0.1 < one["forward"] < 1 and one["backward"] == 0
    assert 0 < one["left"] < 1  # 0.3 to 0.5 where it was tried


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
    monkeypatch.setattr("perf_diagnostics.integrations.one_step.drawn_masks._MOST_NUMBERS", 1000)
    (one,) = told(lambda: functional.dropout(W, 0.1).sum())
    assert one["left"] is None and one["forward"] > 0
