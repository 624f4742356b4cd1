"""Of which results a part is told as never read, and of which not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.dataflow_storages import Storages
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.unread_parts import SIGNAL, UnreadParts, _made_for
from tests.measure.one_step.looking import looked_at

B, Q, T = 8, 16, 4

Match = Callable[[torch.Tensor, torch.Tensor], Any]


def told(match: Match, *, gradient: bool = False) -> list[Any]:
    """Of a step that matches a model's outputs with targets."""
    model, x, targets = nn.Linear(6, 6), torch.randn(B * Q, 6), torch.randn(B * T, 6)
    graph = OperatorGraph()
    unread = UnreadParts(graph, OperatorLines())

    def loss() -> torch.Tensor:
        out = model(x)
        with torch.set_grad_enabled(gradient):
            chosen = match(out, targets)
        used = chosen if isinstance(chosen, torch.Tensor) else 0
        return out.sum() + 0 * used  # type: ignore[no-any-return]

    facts, gaps = looked_at([graph, unread, StepDataflow(Storages(()), None, (unread,))], loss)
    assert SIGNAL not in gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found


def operators_of(match: Match) -> list[Any]:
    """What is told to be for the part that nobody reads."""
    out, targets = torch.randn(B * Q, 6), torch.randn(B * T, 6)
    graph = OperatorGraph()
    unread = UnreadParts(graph, OperatorLines())
    leaf = torch.zeros((), requires_grad=True)
    looked_at([graph, unread], lambda: leaf + match(out, targets))
    return [each.operator for one in unread._results if 0 < one.read <= 1 / 2 for each in _made_for(one)]


def costs(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of each prediction of the batch for each of its targets."""
    return 2 * torch.cdist(out, targets) + torch.cdist(out, targets, p=1)


def by_numpy(out: torch.Tensor, targets: torch.Tensor) -> Any:
    blocks = costs(out, targets).view(B, Q, B * T).split([T] * B, -1)
    return [block[number].numpy().argmin() for number, block in enumerate(blocks)]


def by_lists(out: torch.Tensor, targets: torch.Tensor) -> Any:
    blocks = costs(out, targets).view(B, Q, B * T).split([T] * B, -1)
    return [min(block[number].tolist()) for number, block in enumerate(blocks)]


def by_operators(out: torch.Tensor, targets: torch.Tensor) -> Any:
    blocks = costs(out, targets).view(B, Q, B * T).split([T] * B, -1)
    return torch.stack([block[number].min() for number, block in enumerate(blocks)]).sum()


@pytest.mark.parametrize("match", [by_numpy, by_lists, by_operators])
def test_blocks_of_a_batchs_costs_are_told_with_all_that_was_computed_for_the_rest(match: Match) -> None:
    (one,) = told(match)
    assert one["function"] == "costs" and one["part"] == pytest.approx(1 / B) and one["shape"] == [B * Q * B * T]
    assert 0 < one["forward"] < 1 - 1 / B and one["backward"] == 0


def test_a_crop_of_what_was_computed_of_a_whole_image_is_told() -> None:
    image = torch.rand(3, 64, 64)

    def crop(out: torch.Tensor, targets: torch.Tensor) -> Any:
        bright = image.mul(2).add(1).sqrt()
        return bright[:, :32, :32].clone()

    (one,) = told(lambda out, targets: crop(out, targets).sum())
    assert one["part"] == pytest.approx(1 / 4) and "sqrt" in one["text"]


def test_what_a_product_is_given_is_needed_for_any_part_of_it() -> None:
    rows, weight = torch.rand(64, 256), torch.rand(256, 64)

    def some_columns(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return (rows.sin() @ weight)[:, :8].sum()

    def alone(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return (rows @ weight)[:, :8].sum()

    (whole,) = told(some_columns)
    assert whole["part"] == pytest.approx(1 / 8) and "sin" in whole["text"]
    assert operators_of(some_columns) == operators_of(alone) == [torch.ops.aten.mm]


kept: list[Any] = []


def _read() -> dict[str, Match]:
    def keeps(out: torch.Tensor, targets: torch.Tensor) -> Any:
        kept.append(costs(out, targets))
        return kept[-1][0].sum()

    def whole(out: torch.Tensor, targets: torch.Tensor) -> Any:
        cost = costs(out, targets)
        return cost[0].sum() + cost.min()

    def by_mask(out: torch.Tensor, targets: torch.Tensor) -> Any:
        cost = costs(out, targets)
        return cost[cost > 3].sum()

    def most(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return costs(out, targets)[: B * Q * 3 // 4].sum()

    def ranked(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return costs(out, targets).sort(1).values[:, :3].sum()

    def detached(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return costs(out, targets).detach().numpy()[0].sum()

    def chosen_by_all(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return costs(out, targets).softmax(1)[:, 0].sum()

    def halves(out: torch.Tensor, targets: torch.Tensor) -> Any:
        first, second = costs(out, targets).chunk(2)
        return first.sum() + second.amax(1).sum()

    def changed_in_part(out: torch.Tensor, targets: torch.Tensor) -> Any:
        cost = costs(out, targets)
        cost[:, 0] = 1e9
        return cost.amin(1).sum()

    def small(out: torch.Tensor, targets: torch.Tensor) -> Any:
        return (out[:8] * 2)[0].sum()

    cases = (keeps, whole, by_mask, most, ranked, detached, chosen_by_all, halves, changed_in_part, small)
    return {one.__name__: one for one in cases}


@pytest.mark.parametrize("name", [*_read()])
def test_what_is_read_is_not_told(name: str) -> None:
    assert told(_read()[name]) == []
    kept.clear()


def test_of_what_gradients_go_back_through_other_parts_are_told_elsewhere() -> None:
    assert told(by_operators, gradient=True) == []


def scores(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Of each prediction for each one, by their own products."""
    return (out @ out.t()) / 0.1


def contrastive(out: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    each = scores(out, targets)
    return each.logsumexp(1).sum() - each.diagonal().sum()


DIAGONALS: dict[str, Match] = {
    "view": lambda out, targets: nn.functional.logsigmoid(torch.diagonal(scores(out, targets))).mean(),
    "copy": lambda out, targets: scores(out, targets).diag().sum(),
    "trace": lambda out, targets: torch.trace(scores(out, targets)),
    "of many": lambda out, targets: (out.view(B, Q, 6) @ out.view(B, 6, Q)).diagonal(dim1=1, dim2=2).square().mean(),
}


@pytest.mark.parametrize("gradient", [True, False])
@pytest.mark.parametrize("match", [*DIAGONALS])
def test_diagonals_are_told_with_and_without_a_gradient(match: str, gradient: bool) -> None:
    (one,) = told(DIAGONALS[match], gradient=gradient)
    assert one["diagonal"] is True
    assert one["part"] == pytest.approx(1 / Q if match == "of many" else 1 / (B * Q))
    assert 0 < one["forward"] < 1 and (one["backward"] > 0) is gradient


@pytest.mark.parametrize(
    "match",
    [
        lambda out, targets: scores(out, targets).logsumexp(1).sum() - scores(out, targets).amax(),
        contrastive,
        # Backward reads it whole.
        lambda out, targets: scores(out, targets).sigmoid().diagonal().sum(),
        lambda out, targets: scores(out, targets)[:, 0].sum(),
    ],
)
def test_with_a_gradient_what_is_read_beside_the_diagonal_counts(match: Match) -> None:
    assert told(match, gradient=True) == []
