"""Which alternatives are told as computed for rows that a choice leaves out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from perf_diagnostics.measure.one_step import operator_graph
from perf_diagnostics.measure.one_step.chosen_afterwards import SIGNAL, ChosenAfterwards
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_needless_operators import told

ROWS, TAKEN = 12, 3


@pytest.fixture
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a second, so that times are counts."""
    monkeypatch.setattr(operator_graph, "seconds_or_bytes", lambda _ran: 1.0)


def network(*, norm: bool = False) -> nn.Module:
    torch.manual_seed(0)
    between = [nn.BatchNorm1d(8)] if norm else []
    return nn.Sequential(nn.Linear(8, 8), *between, nn.Tanh(), nn.Linear(8, 8))


def mask() -> torch.Tensor:
    return (torch.arange(ROWS) < TAKEN).view(-1, 1)


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


@pytest.mark.usefixtures("_a_second_each")
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

    (one,) = told(SIGNAL, both(network(norm=True)))
    (whole,) = told(SIGNAL, both(network()))
    (graph,) = told(SIGNAL, of_neighbours)
    assert one["forward"] < whole["forward"] / 2 and graph["forward"] < whole["forward"] / 2


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
