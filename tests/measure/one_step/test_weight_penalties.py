"""Which sums of weights are told as a penalty that autograd need not work out, and of what kind."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran, Watcher
from perf_diagnostics.measure.one_step.weight_penalties import SIGNAL, WeightPenalties
from perf_diagnostics.records import Json
from tests.measure.one_step.looking import Loss

NET = nn.Sequential(nn.Linear(30, 20), nn.ReLU(), nn.Linear(20, 1))
X = torch.rand(8, 30)
P = list(NET.parameters())
OLD = [one.detach().clone() for one in P]
#: In four tensors.
WEIGHTS = 30 * 20 + 20 + 20 + 1


def told(penalty: Loss) -> list[Any]:
    """What the look tells of a loss with this penalty in it."""
    mode = OperatorMode(watchers_of(P))
    mode.open()
    try:
        loss = functional.mse_loss(NET(X), torch.ones(8, 1)) + 1e-3 * penalty()
        mode.enter_backward()
        loss.backward()
    finally:
        mode.close()
    facts, gaps = mode.conclude()
    assert SIGNAL not in gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found


def total(each: Any) -> torch.Tensor:
    found = sum(each(one) for one in P)
    assert isinstance(found, torch.Tensor)
    return found


def _penalties() -> dict[str, dict[str, Loss]]:
    """By kind."""
    return {
        "squares": {
            "pow": lambda: total(lambda p: p.pow(2).sum()),
            "halved": lambda: total(lambda p: (0.5 * p**2).sum()),
            "norm": lambda: total(lambda p: p.norm() ** 2),
            "product": lambda: total(lambda p: (p * p).sum()),
            "dot": lambda: total(lambda p: torch.dot(p.view(-1), p.view(-1))),
            "mse": lambda: total(lambda p: functional.mse_loss(p, torch.zeros_like(p), reduction="sum")),
            "one_vector": lambda: torch.cat([p.view(-1) for p in P]).pow(2).sum(),
            "norm_of_all": lambda: torch.stack([p.norm() for p in P]).norm() ** 2,
            "row_by_row": lambda: total(lambda p: p.square().sum(-1).sum()),
        },
        "absolute": {
            "abs": lambda: total(lambda p: p.abs().sum()),
            "norm": lambda: total(lambda p: p.norm(1)),
        },
        "norms": {
            "each": lambda: total(lambda p: p.norm()),
            "of_all": lambda: total(lambda p: p.pow(2).sum()).sqrt(),
        },
        "distances": {
            "pow": lambda: _distances(lambda p, old: (p - old).pow(2).sum()),
            "mse": lambda: _distances(lambda p, old: functional.mse_loss(p, old, reduction="sum")),
            "weighted": lambda: _distances(lambda p, old: (old.abs() * (p - old) ** 2).sum()),
        },
    }


def _distances(each: Any) -> torch.Tensor:
    found = sum(each(one, old) for one, old in zip(P, OLD, strict=True))
    assert isinstance(found, torch.Tensor)
    return found


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, all_ in _penalties().items() for name in all_])
def test_a_penalty_is_told_with_its_kind_and_its_weights(kind: str, name: str) -> None:
    (one,) = told(_penalties()[kind][name])
    assert (one["kind"], one["weights"], one["tensors"], one["averaged"]) == (kind, WEIGHTS, 4, False)
    assert 0 < one["forward"] < 1 and 0 < one["backward"] < 1


class OneSecondEach(Watcher):
    """Shows operators as if each had taken a second."""

    def __init__(self, *watchers: Watcher) -> None:
        self.watchers = watchers

    def see(self, ran: Ran) -> None:
        for one in self.watchers:
            one.see(ran._replace(seconds=1.0))

    @property
    def told(self) -> dict[str, Json]:
        return self.watchers[-1].told


def test_what_it_takes_is_that_of_its_own_operators_there_and_back() -> None:
    weight, x = nn.Parameter(torch.rand(100)), torch.rand(100)
    graph = OperatorGraph()
    mode = OperatorMode([OneSecondEach(graph, WeightPenalties(graph, [weight], OperatorLines()))])
    mode.open()
    loss = (x * weight).sum() + 0.5 * weight.pow(2).sum()
    mode.enter_backward()
    loss.backward()
    mode.close()
    facts: Any = mode.conclude()[0]
    (one,) = facts[SIGNAL]
    # Of mul, sum, pow, sum, mul and add the last sum, its square and what that is multiplied with.
    assert (one["forward"], graph.forward) == (pytest.approx(3 / 6), 6.0)
    # Its mul, expand, pow, mul and mul; the addition of both gradients is not its own.
    assert one["backward"] == pytest.approx(5 / graph.backward)


def test_a_mean_is_told_as_one() -> None:
    (one,) = told(lambda: total(lambda p: p.square().mean()))
    assert one["averaged"] is True
    (one,) = told(lambda: total(lambda p: functional.mse_loss(p, torch.zeros_like(p))))
    assert (one["kind"], one["averaged"]) == ("squares", True)


def test_two_penalties_of_one_step_are_two() -> None:
    def elastic() -> torch.Tensor:
        absolute = total(lambda p: p.abs().sum())
        return absolute + total(lambda p: p.pow(2).sum())

    assert {(one["kind"], one["line"]) for one in told(elastic)} == {
        ("absolute", elastic.__code__.co_firstlineno + 1),
        ("squares", elastic.__code__.co_firstlineno + 2),
    }


def _quiet() -> dict[str, Loss]:
    weight = P[0]

    def activations() -> torch.Tensor:
        return NET[0](X).pow(2).sum()

    def orthogonal() -> torch.Tensor:
        return (weight @ weight.t() - torch.eye(20)).pow(2).sum()

    def normalised() -> torch.Tensor:
        """Of weights that are divided by their norm, as of other numbers that are made with it."""
        return (X @ (weight / weight.norm()).t()).sum()

    def cubes() -> torch.Tensor:
        return total(lambda p: p.pow(3).abs().sum())

    def learned_coefficient() -> torch.Tensor:
        return total(lambda p: p.pow(2).sum()) * NET(X).sum()

    def not_linear() -> torch.Tensor:
        return total(lambda p: p.pow(2).sum()).exp()

    def square_of_a_sum_of_norms() -> torch.Tensor:
        return total(lambda p: p.norm()) ** 2

    def pruned() -> torch.Tensor:
        return (weight.pow(2) * (OLD[0] > 0)).sum()

    def tied() -> torch.Tensor:
        return (P[1] - P[2].view(-1)).pow(2).sum()

    def only_written_down() -> torch.Tensor:
        with torch.no_grad():
            norm = total(lambda p: p.pow(2).sum())
        return norm + NET(X).sum()

    def rows() -> torch.Tensor:
        return (weight.pow(2).sum(1) + NET[0](X)).sigmoid().sum()

    def of_gradients() -> torch.Tensor:
        found = torch.autograd.grad(NET(X).sum(), P, create_graph=True)
        return torch.stack([one.pow(2).sum() for one in found]).sum()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_quiet()))
def test_what_is_no_penalty_on_the_weights_alone_is_not_told(name: str) -> None:
    assert told(_quiet()[name]) == []
