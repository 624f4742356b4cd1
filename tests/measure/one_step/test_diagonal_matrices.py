"""Which linear algebra is told as done on diagonal matrices, and what of the step counts with it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from perf_diagnostics.measure.one_step.diagonal_matrices import SIGNAL, DiagonalMatrices
from perf_diagnostics.measure.one_step.operator_graph import OperatorGraph
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from tests.measure.one_step.looking import Loss, looked_at
from tests.measure.one_step.test_weight_penalties import OneSecondEach

D = torch.rand(6, 4, requires_grad=True)
FULL = torch.rand(6, 4, 4)


def told(loss: Loss, *, timed: bool = False) -> tuple[list[Any], OperatorGraph]:
    """What the look tells, with the operators' true times or as if each had taken a second."""
    graph = OperatorGraph()
    watchers = [graph, DiagonalMatrices(graph, OperatorLines())]
    facts, gaps = looked_at(watchers if timed else [OneSecondEach(*watchers)], loss)
    assert not gaps
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found, graph


def positive(d: torch.Tensor) -> torch.Tensor:
    return torch.diag_embed(d + 1)


@pytest.mark.parametrize(
    ("of", "operator"),
    [
        (torch.linalg.cholesky, "linalg_cholesky_ex"),
        (torch.linalg.inv, "linalg_inv_ex"),
        (torch.linalg.det, "_linalg_det"),
        (torch.logdet, "_linalg_slogdet"),
        (lambda a: torch.linalg.solve(a, FULL), "_linalg_solve_ex"),
        (lambda a: torch.linalg.solve_triangular(a, FULL, upper=False), "linalg_solve_triangular"),
        (torch.linalg.eigvalsh, "_linalg_eigh"),
        (lambda a: torch.cholesky_solve(FULL, a), "cholesky_solve"),
    ],
)
def test_what_is_done_with_diagonal_matrices_is_told(of: Any, operator: str) -> None:
    (one,), _ = told(lambda: of(positive(D)).sum())
    assert one["operators"] == [operator] and one["shape"] == [6, 4, 4] and one["calls"] == 1
    assert 0 < one["forward"] < 1 and 0 < one["backward"] < 1


@pytest.mark.parametrize(
    "matrices",
    [
        lambda: positive(D) + 1e-6 * FULL,  # nearly
        lambda: torch.cat([positive(D)[:5], positive(D)[5:] + 1e-6 * FULL[5:]]),  # one of six is not
        lambda: positive(D[:, :1]),  # of one number
    ],
)
def test_other_matrices_are_not(matrices: Loss) -> None:
    found, _ = told(lambda: torch.linalg.inv(matrices()).sum())
    assert found == []


def test_what_follows_counts_while_there_are_as_many_numbers() -> None:
    """By a second each: what makes the matrix, the inverse, its squares; the sum is one number and stays."""
    (one,), graph = told(lambda: torch.linalg.inv(positive(D)).square().sum())
    assert graph.forward - one["forward"] * graph.forward == pytest.approx(3)  # D + 1, torch's look at errors, the sum
    found, _ = told(lambda: (torch.linalg.inv(positive(D)) + FULL).square().sum() + positive(D).sum())
    assert found[0]["forward"] < one["forward"]  # who adds up all matrices needs them


def test_a_normal_distribution_given_a_matrix_is_told_and_one_of_vectors_is_not() -> None:
    zero, ones = torch.zeros(4), torch.ones(4)

    def full() -> torch.Tensor:
        return kl_divergence(MultivariateNormal(D, positive(D)), MultivariateNormal(zero, torch.eye(4))).sum()

    def vectors() -> torch.Tensor:
        posterior = Independent(Normal(D, (D + 1).sqrt()), 1)
        return kl_divergence(posterior, Independent(Normal(zero, ones), 1)).sum()

    found, _ = told(full, timed=True)
    assert [one["function"].split(".")[-1] for one in found] == ["full"]
    found, _ = told(full)
    assert {"linalg_cholesky_ex", "linalg_solve_triangular"} <= set(found[0]["operators"])
    assert found[0]["whole"] > 0.3
    assert told(vectors)[0] == []
    assert full().item() == pytest.approx(vectors().item(), rel=1e-4)


def test_of_more_numbers_than_are_looked_at_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf_diagnostics.measure.one_step.diagonal_matrices._BUDGET", 100)
    (one,), _ = told(lambda: torch.linalg.inv(positive(D)).sum() + torch.linalg.det(positive(D)).sum())
    assert one["calls"] == 1
