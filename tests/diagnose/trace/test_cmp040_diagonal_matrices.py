"""CMP040 in traces: matrices made of their diagonals, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp040_diagonal_matrices import DiagonalMatrices
from perf_diagnostics.diagnose.trace.diagonal_matrices import diagonal_matrices
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp040_diagonal_matrices import MatricesOfDiagonals
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "linear algebra on diagonal matrices"
ROWS, LATENT = 6, 12

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def training(loss: Loss) -> Callable[[], None]:
    layer, given = nn.Linear(8, 2 * LATENT), torch.rand(ROWS, 8)

    def step() -> None:
        mean, spread = layer(given).chunk(2, 1)
        loss(mean, spread.exp()).backward()

    return step


def posterior(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    made = MultivariateNormal(mean, torch.diag_embed(variance))
    prior = MultivariateNormal(torch.zeros(LATENT), torch.eye(LATENT))
    drawn = made.rsample().square().mean()
    return torch.as_tensor(drawn + kl_divergence(made, prior).mean())


def inverted(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    return (torch.linalg.inv(torch.diag_embed(variance)) @ mean[..., None]).square().mean()


@pytest.mark.parametrize(("loss", "name"), [(posterior, "linalg_cholesky"), (inverted, "linalg_inv")])
def test_linear_algebra_on_matrices_of_their_diagonals_is_told_with_the_way_back(
    loss: Loss, name: str, tmp_path: Path
) -> None:
    facts = recorded(training(loss), tmp_path)
    seen = diagonal_matrices(facts)
    assert seen is not None and seen.size == (ROWS, LATENT, LATENT)
    assert name in seen.operators and seen.calls >= 1
    engine = facts.require_nodes().rows
    named = facts.trace.named(lambda one: "Cholesky" in one or "LinalgInv" in one)[engine.name]
    assert named.any() and (seen.nodes.containing(engine.start_ns[named]) >= 0).all()
    finding = found(ask(MatricesOfDiagonals(DiagonalMatrices(info_share=1e-9)), facts))
    assert "Independent(Normal(" in finding.remedies[0].says


def low_rank(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    """Diagonal plus something: a full matrix."""
    covariance = torch.diag_embed(variance) + mean[:, :, None] @ mean[:, None, :]
    return torch.linalg.cholesky(covariance).diagonal(dim1=-2, dim2=-1).log().sum()


def independent(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    prior = Independent(Normal(torch.zeros(LATENT), torch.ones(LATENT)), 1)
    return kl_divergence(Independent(Normal(mean, variance.sqrt()), 1), prior).mean()


def only_made(mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
    return (torch.diag_embed(variance) * mean[..., None]).sum()


@pytest.mark.parametrize("loss", [low_rank, independent, only_made])
def test_full_matrices_and_vectors_are_not_told(loss: Loss, tmp_path: Path) -> None:
    facts = recorded(training(loss), tmp_path)
    assert diagonal_matrices(facts) is None
    clear(ask(MatricesOfDiagonals(), facts))


def test_without_sizes_nobody_knows(tmp_path: Path) -> None:
    answer = ask(MatricesOfDiagonals(), recorded(training(posterior), tmp_path, shapes=False))
    assert missing(answer).signal == "input_dims"


def solving(takes: float, node: float) -> TraceBuilder:
    """Steps of 1 ms in which a matrix of a diagonal is factorised for so many µs, and so many of the node."""

    def fill(builder: TraceBuilder, start: float) -> None:
        about, count = {"Input type": ["float"]}, int(start) // 100
        made = about | {"Input Dims": [[4, 16]], "Sequence number": count}
        builder.operator("aten::diag_embed", start, start + 1, **made)
        factor = about | {"Input Dims": [[4, 16, 16]], "Sequence number": count + 1}
        builder.operator("aten::linalg_cholesky", start + 1, start + 1 + takes, **factor)
        at = start + takes + 10
        builder.operator(ENGINE + "LinalgCholeskyExBackward0", at, at + node, **{"Sequence number": count + 1})
        builder.operator(ENGINE + "DiagonalBackward0", at + node, at + node + 1, **{"Sequence number": count})
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("takes", "node", "severity"), [(100, 100, Severity.WARNING), (20, 20, Severity.INFO), (5, 5, None)]
)
def test_both_ways_together_decide(takes: float, node: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = ask(MatricesOfDiagonals(), solving(takes, node).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx((takes + node + 2) / 10, rel=0.02)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and "4×16×16" in finding.summary
    assert finding.recoverable is not None
