"""Which derivatives are told as asked for one by one, and how much of the work one pass would have spared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import grad as named_before

from perf_diagnostics.measure.one_step import derivatives_apart, operator_graph
from perf_diagnostics.measure.one_step.derivatives_apart import SIGNAL, DerivativesApart
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from tests.measure.one_step.looking import Loss, looked_at

Grad = Callable[..., tuple[torch.Tensor, ...]]


class Field(nn.Module):
    """Two results of two coordinates."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))
        self.x, self.t = (torch.rand(16, 1, requires_grad=True) for _ in "xt")

    def forward(self) -> torch.Tensor:
        made: torch.Tensor = self.body(torch.cat([self.x, self.t], 1))
        return made


def grad(result: torch.Tensor, *inputs: torch.Tensor, how: Grad = torch.autograd.grad) -> tuple[torch.Tensor, ...]:
    return how(result, inputs, torch.ones_like(result), create_graph=True)


def seen(loss: Loss) -> tuple[list[Any], OperatorGraph]:
    """What is told of a loss, forward and backward, and how long all of it took."""
    graph = OperatorGraph()
    facts, gaps = looked_at([graph, DerivativesApart(graph, OperatorLines())], loss)
    assert gaps == {}
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found, graph


def told(loss: Loss) -> list[Any]:
    return seen(loss)[0]


@pytest.fixture
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a second, so that times are counts."""
    for module in (operator_graph, derivatives_apart):
        monkeypatch.setattr(module, "seconds_or_bytes", lambda _ran: 1.0)


FIELD = Field()


def one_by_one() -> torch.Tensor:
    u = FIELD()
    return (grad(u, FIELD.x)[0] + grad(u, FIELD.t)[0]).square().sum()


def at_once() -> torch.Tensor:
    u_x, u_t = grad(FIELD(), FIELD.x, FIELD.t)
    return (u_x + u_t).square().sum()


def test_one_pass_for_each_input_is_told_with_its_line() -> None:
    (one,) = told(one_by_one)
    assert (one["calls"], one["results"], one["inputs"]) == (2, 1, 2)
    assert "how(result" in one["text"]
    assert 0 < one["forward"] < 0.5 and 0 < one["backward"] < 0.5 and 0 < one["whole"] < 0.5


def test_one_pass_for_all_inputs_is_not_told() -> None:
    assert told(at_once) == []


@pytest.mark.usefixtures("_a_second_each")
def test_what_is_told_is_what_goes_when_they_are_asked_for_at_once() -> None:
    (one,), apart = seen(one_by_one)
    _, together = seen(at_once)
    assert apart.forward > together.forward and apart.backward > together.backward
    # Autograd adds up what comes to a node from both passes: these additions are nobody's, and go as well.
    assert one["forward"] * apart.forward == pytest.approx(apart.forward - together.forward, abs=2)
    assert one["backward"] * apart.backward == pytest.approx(apart.backward - together.backward, rel=0.25)
    assert one["backward"] * apart.backward <= apart.backward - together.backward


def _second(u: torch.Tensor, *, of_one: bool) -> torch.Tensor:
    u_x, u_t = grad(u, FIELD.x, FIELD.t)
    others = (grad(u_x, FIELD.x), grad(u_x, FIELD.t)) if of_one else (grad(u_x, FIELD.x), grad(u_t, FIELD.t))
    return (others[0][0] + others[1][0]).square().sum()


def test_second_derivatives_of_one_first_derivative_are_told_and_those_of_two_are_not() -> None:
    (one,) = told(lambda: _second(FIELD(), of_one=True))
    assert one["results"] == 1 and one["calls"] == 2
    assert told(lambda: _second(FIELD(), of_one=False)) == []


@pytest.mark.parametrize(
    "again",
    [
        lambda u: u.sum(),
        lambda u: u.mean(),
        lambda u: u[:, 0],
        lambda u: u[:, 0:1].sum(),
        lambda u: u.split(1, 1)[1],
        lambda u: u.unbind(1)[0].reshape(4, 4),
        lambda u: u.T[0].unsqueeze(-1),
    ],
)
def test_views_and_sums_that_are_written_anew_are_the_same_result(again: Callable[[torch.Tensor], Any]) -> None:
    def loss() -> torch.Tensor:
        u = FIELD()
        return (grad(again(u), FIELD.x)[0] + grad(again(u), FIELD.t)[0]).square().sum()

    (one,) = told(loss)
    assert one["results"] == 1


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda u: u[:, 0], lambda u: u[:, 1]),
        (lambda u: u.split(1, 1)[0], lambda u: u.split(1, 1)[1]),
        (lambda u: u.sum(), lambda u: u.mean()),
        (lambda u: u.sum(0), lambda u: u[:8].sum(0)),
        (lambda u: u.sin(), lambda u: u.sin()),  # computed twice: that is another fault
    ],
)
def test_other_results_are_not_told(first: Callable[[Any], Any], second: Callable[[Any], Any]) -> None:
    def loss() -> torch.Tensor:
        u = FIELD()
        return grad(first(u), FIELD.x)[0].square().sum() + grad(second(u), FIELD.t)[0].square().sum()

    assert told(loss) == []


def _weighed(first: torch.Tensor, second: torch.Tensor, *, how: Grad = torch.autograd.grad) -> Loss:
    def loss() -> torch.Tensor:
        u = FIELD()
        parts = [how(u, one, weight, create_graph=True)[0] for one, weight in ((FIELD.x, first), (FIELD.t, second))]
        return torch.cat(parts).square().sum()

    return loss


def test_with_other_weights_they_are_others() -> None:
    ones, drawn = torch.ones(16, 2), torch.randn(16, 2)
    assert told(_weighed(ones, 2 * ones)) == []
    assert told(_weighed(drawn, drawn.flip(0))) == []
    assert len(told(_weighed(ones, torch.ones(1).expand(16, 2)))) == 1
    assert len(told(_weighed(drawn, drawn.clone()))) == 1


def test_a_script_may_know_the_function_by_a_name_of_its_own() -> None:
    ones = torch.ones(16, 2)
    assert len(told(_weighed(ones, ones, how=named_before))) == 1


def test_the_same_derivative_twice_is_told() -> None:
    def loss() -> torch.Tensor:
        u = FIELD()
        return (grad(u, FIELD.x)[0] + grad(u, FIELD.x)[0]).square().sum()

    assert len(told(loss)) == 1


def test_it_changes_no_result_and_is_gone_afterwards() -> None:
    engine = vars(torch.autograd)["_engine_run_backward"]
    plain = one_by_one().item()
    looked: list[float] = []

    def loss() -> torch.Tensor:
        made = one_by_one()
        looked.append(made.item())
        return made

    assert len(told(loss)) == 1
    assert looked == [plain]
    assert vars(torch.autograd)["_engine_run_backward"] is engine


def test_rows_of_a_jacobian_by_vmap_go_through() -> None:
    def loss() -> torch.Tensor:
        u = FIELD()
        rows = torch.eye(2)[:, None].expand(2, 16, 2)
        (u_x,) = torch.autograd.grad(u, FIELD.x, rows, create_graph=True, is_grads_batched=True)
        return u_x.square().sum()

    assert told(loss) == []


def test_a_fault_in_looking_is_a_gap_and_no_fault_of_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_tensor: torch.Tensor) -> Any:
        raise RuntimeError("no node")

    monkeypatch.setattr(derivatives_apart, "_result", fails)
    graph = OperatorGraph()
    facts, gaps = looked_at([graph, DerivativesApart(graph, OperatorLines())], one_by_one)
    assert SIGNAL not in facts and "no node" in gaps[SIGNAL]


def test_weights_that_need_a_gradient_are_compared_without_a_word() -> None:
    """A derivative along a direction by two passes back has such weights."""
    weights = torch.ones(16, 2, requires_grad=True)

    def loss() -> torch.Tensor:
        u = FIELD()
        parts = [torch.autograd.grad(u, one, weights, create_graph=True)[0] for one in (FIELD.x, FIELD.t)]
        return torch.cat(parts).square().sum()

    (one,) = told(loss)
    assert one["results"] == 1


def test_edges_of_a_graph_are_no_results_and_lose_nothing() -> None:
    def loss() -> torch.Tensor:
        u = FIELD()
        edge = torch.autograd.graph.get_gradient_edge(u)
        (slope,) = torch.autograd.grad(edge, FIELD.x, torch.ones_like(u), create_graph=True)
        return (slope + grad(u, FIELD.t)[0]).square().sum()

    assert told(loss) == []
