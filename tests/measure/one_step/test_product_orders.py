"""Which chains of matrix products are told as multiplied in a dearer order."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step.product_orders import SIGNAL
from tests.measure.one_step.looking import Loss
from tests.measure.one_step.test_needless_operators import told, trained

B, H, N, D = 2, 4, 96, 8

#: Of (q @ k.T) @ v for 96 rows of 8 numbers, forward and backward; and in the other order.
FLOPS, INSTEAD = 3 * B * H * 4 * N * N * D, 3 * B * H * 4 * N * D * D

#: Of a polynomial of x @ x.T, times x, for 96 rows of 12 numbers.
_POLYNOMIAL = 2 * 96 * 96 * (12 + 96 + 12)

_UNTRAINED = ("polynomial", "in_one_call", "three_times")


def positive(one: torch.Tensor) -> torch.Tensor:
    return functional.elu(one) + 1


def _dear() -> dict[str, tuple[Loss, list[int], int, int]]:
    """Each with the shape of what it makes, and the operations of both orders."""
    q, k, v = (trained(B, H, N, D) for _ in range(3))

    def attention() -> torch.Tensor:
        return (positive(q) @ positive(k).transpose(-1, -2) @ v).tanh().sum()

    def scaled() -> torch.Tensor:
        scores = q @ k.transpose(-1, -2) / N
        scores *= torch.rand(N, 1)
        return (0.5 * scores.double() @ v.double()).tanh().sum()

    def summed_einsum() -> torch.Tensor:
        return torch.einsum("bhnm,bhmd->bhnd", torch.einsum("bhnd,bhmd->bhnm", q, k), v).tanh().sum()

    def used_twice() -> torch.Tensor:
        scores = q @ k.transpose(-1, -2)
        return ((scores @ v).tanh() + (scores @ q).tanh()).sum()

    square, vector = trained(120, 120), trained(120)

    def chain() -> torch.Tensor:
        return (square @ square @ square @ vector).tanh().sum()

    neighbours, features, weight = torch.rand(4, 100, 100), trained(4, 100, 4), trained(4, 64)

    def widened_first() -> torch.Tensor:
        """Of a batch of graphs, whose features are multiplied as one matrix."""
        return (neighbours @ (features @ weight)).relu().sum()

    rows, low, rank = torch.rand(32, 256), trained(256, 2), trained(2, 256)

    def of_low_rank() -> torch.Tensor:
        return (rows @ (low.tanh() @ rank.tanh())).relu().sum()

    wide, narrow, given = nn.Linear(8, 256), nn.Linear(256, 8), trained(200, 8)

    def linear_layers() -> torch.Tensor:
        return narrow(wide(given)).tanh().sum()

    tall, (r, c) = torch.randn(96, 12), (96, 12)

    def polynomial(x: torch.Tensor) -> torch.Tensor:
        """Newton and Schulz's, on the larger side."""
        gram = x @ x.T
        return 3.4 * x + (-4.7 * gram + 2.0 * gram @ gram) @ x

    def in_one_call(x: torch.Tensor) -> torch.Tensor:
        gram = x @ x.T
        return torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.7, alpha=2.0), x, beta=3.4)

    def once() -> torch.Tensor:
        return (vector * polynomial(tall).sum()).tanh().sum()

    def in_one() -> torch.Tensor:
        return (vector * in_one_call(tall).sum()).tanh().sum()

    def three_times() -> torch.Tensor:
        return (vector * polynomial(polynomial(polynomial(tall))).sum()).tanh().sum()

    return {
        # By x.T @ x, which both of its chains need, and its square; each times x.
        "polynomial": (once, [r, r], _POLYNOMIAL, 2 * (3 * r * c * c + c**3)),
        "in_one_call": (in_one, [r, r], _POLYNOMIAL, 2 * (3 * r * c * c + c**3)),
        "three_times": (three_times, [r, r], 3 * _POLYNOMIAL, 6 * (3 * r * c * c + c**3)),
        "attention": (attention, [8, N, N], FLOPS, INSTEAD),
        # Rows are scaled in the result, or the queries are.
        "scaled": (scaled, [8, N, N], FLOPS, INSTEAD + 2 * B * H * N * D),
        "einsum": (summed_einsum, [8, N, N], FLOPS, INSTEAD),
        "used_twice": (used_twice, [8, N, N], FLOPS * 3 // 2, 2 * INSTEAD),
        "chain": (chain, [120, 120], 3 * 2 * (2 * 120**3 + 120**2), 3 * 3 * 2 * 120**2),
        # The neighbours' sums need no gradient but the features'.
        "widened_first": (widened_first, [400, 64], 2 * 400 * 64 * (3 * 4 + 2 * 100), 2 * 400 * 4 * (2 * 100 + 3 * 64)),
        "of_low_rank": (of_low_rank, [256, 256], 2 * 256**2 * (3 * 2 + 2 * 32), 2 * 32 * 256 * 2 * (2 + 3)),
        "linear_layers": (linear_layers, [200, 256], 3 * 2 * 2 * 200 * 256 * 8, 3 * 2 * 64 * (256 + 200)),
    }


@pytest.mark.parametrize("name", sorted(_dear()))
def test_a_dearer_order_is_told_with_the_operations_of_both(name: str) -> None:
    loss, shape, flops, instead = _dear()[name]
    (one,) = told(SIGNAL, loss)
    assert (one["shape"], one["flops"], one["flops_instead"]) == (shape, flops, instead)
    assert one["function"].rpartition(".")[2] in (loss.__name__, "forward", "polynomial", "in_one_call")
    assert 0 < one["whole"] <= 1 and 0 < one["left"] <= 2 * instead / flops + 1e-9
    assert (one["backward"] > 0) is (name not in _UNTRAINED)


def test_the_sums_that_rows_are_divided_by_can_be_had_of_the_factors() -> None:
    q, k, v = (trained(B, H, N, D) for _ in range(3))

    def normalised() -> torch.Tensor:
        scores = positive(q) @ positive(k).transpose(-1, -2)
        weights = scores / (scores.sum(-1, keepdim=True) + 1e-6)
        return (weights @ v).tanh().sum()

    (one,) = told(SIGNAL, normalised)
    # Beside the products: the sum of the keys with its gradient, its product with the queries, and the division, whose
    # divisor has a gradient, too.
    more = 2 * B * H * N * D + 3 * 2 * B * H * N * D + 3 * B * H * N * D
    assert (one["flops"], one["flops_instead"]) == (FLOPS, INSTEAD + more)
    assert one["then"]["line"] == one["line"] + 2


def test_projections_before_it_do_not_hide_it() -> None:
    x, weights = trained(2, 64, 64), [trained(64, 64) for _ in range(3)]

    def of_heads() -> torch.Tensor:
        q, k, v = ((x @ one).view(2, 64, 8, 8).transpose(1, 2) for one in weights)
        return (q @ k.transpose(-1, -2) @ v).transpose(1, 2).reshape(2, 64, 64).tanh().sum()

    (one,) = told(SIGNAL, of_heads)
    assert (one["flops"], one["flops_instead"]) == (3 * 16 * 4 * 64 * 64 * 8, 3 * 16 * 4 * 64 * 8 * 8)


def test_heads_may_be_summed_between() -> None:
    q, k, v = trained(H, N, D), trained(H, N, D), trained(N, D)

    def summed() -> torch.Tensor:
        return ((q @ k.transpose(-1, -2)).sum(0) @ v).tanh().sum()

    (one,) = told(SIGNAL, summed)
    # Keys of all heads are multiplied with the values, and these with the queries.
    assert (one["flops"], one["flops_instead"]) == (3 * 2 * N * N * D * (H + 1), 3 * 2 * 2 * H * N * D * D)


def test_each_layer_of_one_line_counts() -> None:
    q = trained(B, N, D)

    def layers() -> torch.Tensor:
        x = q
        for _ in range(3):
            x = (x @ x.transpose(-1, -2) @ x).tanh()
        return x.sum()

    (one,) = told(SIGNAL, layers)
    assert one["calls"] == 3 and one["flops"] == 3 * 3 * B * 4 * N * N * D


def _quiet() -> dict[str, Loss]:
    q, k, v = (trained(B, H, N, D) for _ in range(3))

    def scores() -> torch.Tensor:
        return q @ k.transpose(-1, -2)

    def softmax() -> torch.Tensor:
        return (scores().softmax(-1) @ v).sum()

    def causal() -> torch.Tensor:
        return (scores().tril() @ v).tanh().sum()

    def masked() -> torch.Tensor:
        return ((scores() * torch.ones(N, N).tril()) @ v).tanh().sum()

    def biased() -> torch.Tensor:
        return ((scores() + torch.rand(N, N)) @ v).tanh().sum()

    def dropped() -> torch.Tensor:
        return (functional.dropout(scores(), 0.5) @ v).tanh().sum()

    def squared() -> torch.Tensor:
        one = scores()
        return ((one * one) @ v).tanh().sum()

    def times_its_turn() -> torch.Tensor:
        one = scores()
        return ((one * one.transpose(-1, -2)) @ v).tanh().sum()

    def divided_into() -> torch.Tensor:
        return ((1.0 / scores()) @ v).tanh().sum()

    def used_otherwise() -> torch.Tensor:
        one = scores()
        return (one @ v).tanh().sum() + one.exp().mean()

    def read_by_python() -> torch.Tensor:
        one = scores()
        return (one @ v).tanh().sum() * one[0, 0, 0, 0].item()

    def in_parts() -> torch.Tensor:
        one = scores()
        return (one[..., :48] @ v[..., :48, :]).tanh().sum() + (one[..., 48:] @ v[..., 48:, :]).tanh().sum()

    def normed() -> torch.Tensor:
        one = scores()
        return (one / one.norm(dim=-1, keepdim=True) @ v).tanh().sum()

    def right_order() -> torch.Tensor:
        return (q @ (k.transpose(-1, -2) @ v)).tanh().sum()

    def little_better() -> torch.Tensor:
        wide = torch.rand(B, H, N, 60, requires_grad=True)
        return (wide @ wide.transpose(-1, -2) @ wide).tanh().sum()

    x, down, up, weight = trained(256, 64), trained(64, 4), trained(4, 64), trained(64, 64)

    def adapters() -> torch.Tensor:
        return (x @ weight + x @ down @ up).tanh().sum()

    def averaged() -> torch.Tensor:
        """To average before the layers would take less, which is no other order of theirs."""
        return ((x @ weight).tanh() @ weight).view(4, 64, 64).mean(1).tanh().sum()

    def written_over() -> torch.Tensor:
        one = torch.empty(B, H, N, N)
        with torch.no_grad():
            torch.matmul(q, k.transpose(-1, -2), out=one)
            one.exp_()
        return (one @ v).tanh().sum()

    return {name: one for name, one in locals().items() if callable(one) and one is not scores}


@pytest.mark.parametrize("name", sorted(_quiet()))
def test_what_has_no_cheaper_order_is_not_told(name: str) -> None:
    assert told(SIGNAL, _quiet()[name]) == []


def test_products_of_parameters_alone_are_left_to_who_follows_them() -> None:
    from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
    from perf_diagnostics.measure.one_step.every_watcher import watchers_of

    low, rank, x = trained(256, 2), trained(2, 256), torch.rand(32, 256)
    found: dict[bool, Any] = {}
    for known in (True, False):
        mode = OperatorMode(watchers_of([low, rank] if known else []))
        mode.open()
        loss = (x @ (low @ rank)).relu().sum()
        mode.enter_backward()
        loss.backward()
        mode.close()
        found[known] = mode.conclude()[0][SIGNAL]
    assert found[True] == [] and len(found[False]) == 1


def test_a_linear_recurrence_is_told_of_however_long_it_is() -> None:
    """Its sums hang together without end: multiplied out they would be as many products as it has steps."""
    a, b, c, x = trained(6, 6), trained(6, 6), trained(6, 6), torch.rand(400, 4, 6)

    def recurrence() -> torch.Tensor:
        state, made = torch.zeros(4, 6), []
        for one in x:
            state = 0.01 * (state @ a) + one @ b
            made.append(state @ c)
        return torch.stack(made).tanh().sum()

    assert told(SIGNAL, recurrence) == []


def test_a_sum_of_itself_is_multiplied_out_a_few_times_only() -> None:
    low, rank, given = trained(96, 2), trained(2, 96), trained(96, 4)

    def grown() -> torch.Tensor:
        made = low @ rank
        for _ in range(30):
            made = made + 0.1 * made  # twice as many products each time
        return (made @ given).tanh().sum()

    assert told(SIGNAL, grown) == []
