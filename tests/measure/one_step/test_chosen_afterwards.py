"""Which alternatives are told as computed for rows that a choice leaves out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from perf_diagnostics.measure.one_step import chosen_afterwards, operator_graph
from perf_diagnostics.measure.one_step.chosen_afterwards import SIGNAL, ChosenAfterwards
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told

ROWS, TAKEN = 12, 3


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a second, so that times are counts."""
    monkeypatch.setattr(operator_graph, "seconds_or_bytes", lambda _ran: 1.0)


def network(*, norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    between = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(8, 8), *between, nn.Tanh(), nn.Linear(8, 8))


def mask() -> torch.Tensor:
    return (torch.arange(ROWS) < TAKEN).view(-1, 1)


def counted(loss: Loss) -> float:
    """How many operators of forward are told as for nothing."""
    graph = OperatorGraph()
    facts, gaps = looked_at([graph, ChosenAfterwards(graph, OperatorLines())], loss)
    assert gaps == {}
    (one,) = facts[SIGNAL]  # type: ignore[union-attr]
    share = one["forward"]  # type: ignore[index, call-overload]
    assert isinstance(share, float)
    return share * graph.forward


X, NOTHING = torch.randn(ROWS, 8), torch.zeros(ROWS, 8)


def both(net: nn.Module, *, keep: bool = False) -> Loss:
    kept: list[torch.Tensor] = []

    def loss() -> torch.Tensor:
        with_it, without = net(X), net(NOTHING)
        made = torch.where(mask(), without, with_it).square().sum()
        if keep:
            kept.append(without.detach().square())
        return made

    return loss


def test_both_alternatives_are_told_by_the_rows_that_are_not_taken() -> None:
    graph, net = OperatorGraph(), network()
    facts, gaps = looked_at([graph, ChosenAfterwards(graph, OperatorLines())], both(net))
    assert gaps == {}
    (one,) = facts[SIGNAL]  # type: ignore[union-attr]
    assert (one["shape"], one["calls"], one["part"]) == ([ROWS], 1, 1 - TAKEN / ROWS)  # type: ignore[index, call-overload]
    assert "torch.where(mask(), without, with_it)" in one["text"]  # type: ignore[index, call-overload, operator]
    # Two layers, what lies between, and autograd's view of that: of which a quarter of one call's and three quarters of
    # the other's are left out. Views of weights are of no rows.
    assert one["forward"] * graph.forward == pytest.approx(4)  # type: ignore[index, call-overload, operator]


def test_a_choice_of_what_goes_in_is_not_told() -> None:
    net = network()
    assert told(SIGNAL, lambda: net(torch.where(mask(), NOTHING, X)).square().sum()) == []


def test_an_alternative_that_is_read_by_others_is_needed() -> None:
    (one,) = told(SIGNAL, both(network(), keep=True))
    assert one["part"] == TAKEN / ROWS  # only the other one


def test_what_is_for_all_rows_alike_is_needed_whichever_are_taken() -> None:
    """A hypernetwork's weights, and its numbers that are added to each row, of as many as there are rows twice."""
    torch.manual_seed(0)
    hyper, shift = nn.Sequential(nn.Linear(4, 64), nn.Tanh()), nn.Sequential(nn.Linear(4, 2 * ROWS), nn.Tanh())
    given, last = torch.randn(1, 4), nn.Linear(8, 2 * ROWS)

    def with_weights() -> torch.Tensor:
        return torch.where(mask(), X, X @ hyper(given).view(8, 8)).square().sum()

    def with_shift() -> torch.Tensor:
        made = last(X) + shift(given[0])
        return torch.where(mask(), torch.zeros_like(made), made).square().sum()

    # The product alone; the layer and the sum. A quarter of them is taken.
    assert counted(with_weights) == pytest.approx(TAKEN / ROWS)
    assert counted(with_shift) == pytest.approx(2 * TAKEN / ROWS)


def test_a_recurrence_of_choices_is_followed_within_the_budget() -> None:
    """Each choice reads the one before it: to follow all of them to the beginning would take the square of them."""
    net, steps = network(), 60

    def loss() -> torch.Tensor:
        state = X
        for _ in range(steps):
            state = torch.where(mask(), NOTHING, net(state))
        return state.square().sum()

    graph = OperatorGraph()
    chosen = ChosenAfterwards(graph, OperatorLines())
    facts, gaps = looked_at([graph, chosen], loss)
    (one,) = facts[SIGNAL]  # type: ignore[union-attr]
    assert gaps == {} and one["calls"] == steps  # type: ignore[index, call-overload]
    assert chosen._looks <= chosen_afterwards._MOST_LOOKS * len(chosen._rows)


def test_what_autograd_keeps_of_an_operator_is_no_reader_of_it() -> None:
    """A group's norm gives its mean and deviation for backward as well."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.GroupNorm(2, 8), nn.SiLU(), nn.Linear(8, 8))
    (one,) = told(SIGNAL, both(net))
    assert one["whole"] > 0.25


def test_rows_that_are_treated_together_are_needed_up_to_there() -> None:
    """Only the layer behind a batch's norm can do without some; so it is where neighbours of a graph are summed."""
    torch.manual_seed(0)
    near, net = torch.rand(ROWS, ROWS), network()

    def of_neighbours() -> torch.Tensor:
        return torch.where(mask(), X, near @ net(X)).square().sum()

    # What lies behind the norm, of both calls together once: the activation, autograd's view of it, and the last layer.
    assert counted(both(network(norm=True))) == pytest.approx(3)
    assert counted(both(network())) == pytest.approx(4)
    # Of the sum over neighbours the quarter that is not taken; of what they are, nothing.
    assert counted(of_neighbours) == pytest.approx(TAKEN / ROWS)


def test_a_condition_that_is_expanded_counts_each_row_once() -> None:
    net = network()
    (one,) = told(SIGNAL, lambda: torch.where(mask().expand(-1, 8), net(NOTHING), net(X)).square().sum())
    assert one["part"] == 1 - TAKEN / ROWS and one["whole"] < 1


def test_zeros_of_the_same_shape_are_no_reader() -> None:
    net = network()

    def loss() -> torch.Tensor:
        made = net(X)
        return torch.where(mask(), made, torch.zeros_like(made)).square().sum()

    (one,) = told(SIGNAL, loss)
    assert one["part"] == 1 - TAKEN / ROWS


def test_a_mask_that_comes_of_what_is_computed_is_known_only_afterwards() -> None:
    net = network()

    def loss() -> torch.Tensor:
        made, other = net(X), net(NOTHING)
        return torch.where((made.sum(1, keepdim=True) > other.sum(1, keepdim=True)), made, other).square().sum()

    assert told(SIGNAL, loss) == []


@pytest.mark.parametrize("shape", [(1, 8), (ROWS, 8)])
def test_a_choice_along_other_dimensions_is_none_of_rows(shape: tuple[int, int]) -> None:
    net, chosen = network(), torch.rand(shape) > 0.5
    assert told(SIGNAL, lambda: torch.where(chosen, net(X), net(NOTHING)).square().sum()) == []


def test_experts_that_compute_all_rows_are_told_though_their_gate_is_trained() -> None:
    experts, gate = [network() for _ in range(3)], nn.Linear(8, 3)

    def loss() -> torch.Tensor:
        chosen, made = gate(X).argmax(1, keepdim=True), torch.zeros(ROWS, 8)
        for number, expert in enumerate(experts):
            made = torch.where(chosen == number, expert(X), made)
        return made.square().sum()

    (one,) = told(SIGNAL, loss)
    assert one["calls"] == 3 and 0.3 < one["whole"] < 0.75
