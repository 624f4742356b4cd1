"""Which operators of a step's forward and loss are told as needless: blow-ups, arithmetic with zeros, attention."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Normal
from torch.nn import functional

from perf_diagnostics.measure.one_step.broadcast_blow_ups import SIGNAL as BLOW_UPS
from perf_diagnostics.measure.one_step.composed_attention import SIGNAL as ATTENTION
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.zero_arithmetic import SIGNAL as ZEROS
from tests.measure.one_step.looking import Loss, looked_at


def told(signal: str, loss: Loss) -> list[Any]:
    """What the look tells of a loss, forward and backward."""
    torch.manual_seed(0)
    facts, gaps = looked_at(watchers_of([]), loss)
    assert signal not in gaps
    found = facts[signal]
    assert isinstance(found, list)
    return found


def trained(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


N, M, D = 128, 40, 16


def _spread() -> dict[str, Loss]:
    """All of them write a number for each of 128 rows, 40 others and 16 features, and use sums over features only."""
    x, c = trained(N, D), trained(M, D)

    def squared_differences() -> torch.Tensor:
        return ((x.unsqueeze(1) - c.unsqueeze(0)) ** 2).sum(-1).exp().mean()

    def a_line_each() -> torch.Tensor:
        difference = x[:, None] - c
        size = difference.abs()
        return size.mean(2).exp().sum()

    def distances() -> torch.Tensor:
        return functional.pairwise_distance(x.unsqueeze(1), c.unsqueeze(0)).mean()

    def norms() -> torch.Tensor:
        return (x[:, None] - c).norm(dim=-1).min(1).values.sum()

    def cosines() -> torch.Tensor:
        return functional.cosine_similarity(x.unsqueeze(1), c.unsqueeze(0), dim=-1).exp().mean()

    def products() -> torch.Tensor:
        return (x[:, :, None] * c.t()[None]).sum(1).exp().sum()

    def gaussians() -> torch.Tensor:
        return Normal(c, c.exp()).log_prob(x[:, None]).sum(-1).logsumexp(1).sum()

    def expanded() -> torch.Tensor:
        return (x.unsqueeze(1).expand(N, M, D) - c.unsqueeze(0).expand(N, M, D)).pow(2).sum(-1).exp().mean()

    def repeated() -> torch.Tensor:
        pairs = x.unsqueeze(1).repeat(1, M, 1) - c.unsqueeze(0).repeat(N, 1, 1)
        return pairs.square().sum(-1).exp().mean()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_spread()))
def test_pairs_that_are_only_added_up_are_told_with_their_part_of_the_time(name: str) -> None:
    (one,) = told(BLOW_UPS, _spread()[name])
    assert sorted(one["shape"]) == sorted((N, M, D)) and one["function"].endswith(name)
    # Of 128·40·16 numbers, which two to eight operators go through, 128·40 are left.
    assert 1 / 16 / 9 <= one["left"] <= 1 / 16 / 2
    assert 0 < one["whole"] <= 1 and one["backward"] > 0


def test_the_numbers_that_are_left_are_those_of_all_that_the_operators_go_through() -> None:
    (one,) = told(BLOW_UPS, _spread()["squared_differences"])
    assert one["left"] == pytest.approx(1 / 16 / 3) and one["operators"] == ["sub", "pow", "sum"]
    assert one["shapes"] == [[N, 1, D], [1, M, D]] and one["calls"] == 1


def test_a_line_that_is_called_twice_is_told_with_both_of_its_calls() -> None:
    x, c = trained(N, D), trained(M, D)

    def squares(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1)

    (one,) = told(BLOW_UPS, lambda: squares(x, c).exp().mean() + squares(x, c).log().mean())
    assert one["calls"] == 2 and one["left"] == pytest.approx(1 / 16 / 3)
    (once,) = told(BLOW_UPS, lambda: squares(x, c).exp().mean() + (squares(x, c) ** 2).mean())
    assert once["calls"] == 2  # a square behind the sum is none of it


def _not_spread() -> dict[str, Loss]:
    x, c = trained(N, D), trained(M, D)

    def nonlinear() -> torch.Tensor:
        """Additive attention: no product does this."""
        return (torch.tanh(x[:, None] + c).sum(-1)).sum()

    def used_otherwise() -> torch.Tensor:
        difference = x[:, None] - c
        return difference.pow(2).sum(-1).mean() + torch.tanh(difference).sum()

    def cubes() -> torch.Tensor:
        """torch.cdist is slow with p=3."""
        return (x[:, None] - c).abs().pow(3).sum(-1).mean()

    def of_one() -> torch.Tensor:
        """Summed over a dimension that only one of both has."""
        return (x[:, None] * c.sum(1)[None, :, None]).sum(1).sum()

    def of_pairs() -> torch.Tensor:
        """A weight for each pair and feature is no product of smaller ones."""
        return ((x[:, None] - c) * torch.rand(N, M, D)).sum(-1).exp().mean()

    def a_bias() -> torch.Tensor:
        return (x + c[0]).pow(2).sum(-1).mean()

    def a_product() -> torch.Tensor:
        return (x @ c.t()).exp().mean() + torch.cdist(x, c).mean()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_not_spread()))
def test_what_no_product_does_is_not_told(name: str) -> None:
    assert told(BLOW_UPS, _not_spread()[name]) == []


CLASSES, SIDE = 21, 20


def _zeros() -> dict[str, Loss]:
    logits, target = trained(4, CLASSES, SIDE, SIDE), torch.randint(0, CLASSES, (4, SIDE, SIDE))

    def focal() -> torch.Tensor:
        labels = functional.one_hot(target, CLASSES).permute(0, 3, 1, 2).float()
        p = torch.softmax(logits, 1)
        return (-labels * (1 - p) ** 2.0 * torch.log(p + 1e-8)).sum(1).mean()

    def likelihood() -> torch.Tensor:
        labels = torch.zeros_like(logits).scatter_(1, target[:, None], 1.0)
        return -(functional.log_softmax(logits, 1) * labels).sum() / target.numel()

    def truth_values() -> torch.Tensor:
        labels = target[:, None] == torch.arange(CLASSES)[None, :, None, None]
        return (labels * logits.sigmoid().log()).mean()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_zeros()))
def test_what_labels_leave_out_is_told_with_its_part_of_the_time(name: str) -> None:
    (one,) = told(ZEROS, _zeros()[name])
    assert one["zeros"] == pytest.approx(1 - 1 / CLASSES) and one["shape"] == [4, CLASSES, SIDE, SIDE]
    assert one["function"].endswith(name) and 0 < one["whole"] < 1


def test_powers_and_logarithms_for_zeros_alone_count_and_softmax_does_not() -> None:
    """By the operators that are kept: the sum of their seconds is no more than that of what is listed."""
    torch.manual_seed(0)
    mode = OperatorMode(watchers_of([]))
    mode.open()
    loss = _zeros()["focal"]()
    mode.close()
    graph = next(one for one in mode.watchers if type(one).__name__ == "OperatorGraph")
    seconds: dict[str, float] = {}
    for operation in graph._by_node.values():  # type: ignore[attr-defined]
        seconds[operation.operator.__name__] = seconds.get(operation.operator.__name__, 0.0) + operation.forward
    facts, _ = mode.conclude()
    (one,) = facts[ZEROS]  # type: ignore[misc]
    rest = seconds.get("_softmax", 0.0)
    assert loss.requires_grad and 0 < one["forward"] <= 1 - rest / graph.forward  # type: ignore[index, attr-defined, operator]


def _no_zeros() -> dict[str, Loss]:
    logits, target = trained(4, CLASSES, SIDE, SIDE), torch.randint(0, CLASSES, (4, SIDE, SIDE))
    labels = functional.one_hot(target, CLASSES).permute(0, 3, 1, 2).float()

    def soft_labels() -> torch.Tensor:
        return (torch.rand_like(logits) * logits.log_softmax(1)).sum(1).mean()

    def smoothed() -> torch.Tensor:
        return ((labels * 0.9 + 0.1 / CLASSES) * logits.log_softmax(1)).sum(1).mean()

    def not_added_up() -> torch.Tensor:
        return (labels * logits).exp().sum()

    def dropout() -> torch.Tensor:
        return functional.dropout(logits, 0.97).sum()

    def relu() -> torch.Tensor:
        return (functional.relu(logits - 3) * logits).sum()

    def picked() -> torch.Tensor:
        return -functional.log_softmax(logits, 1).gather(1, target[:, None]).mean()

    return {name: one for name, one in locals().items() if callable(one)}


@pytest.mark.parametrize("name", sorted(_no_zeros()))
def test_soft_labels_dropout_activations_and_picking_are_not_told(name: str) -> None:
    assert told(ZEROS, _no_zeros()[name]) == []


TOKENS, HEADS, WIDTH = 32, 2, 16


class ByHand(nn.Module):
    """Attention written out; ``dropout``, ``causal`` and ``reads`` (the loss reads the weights) change it."""

    def __init__(self, *, dropout: float = 0.0, causal: bool = False, reads: bool = False, sums: bool = False) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.dropout, self.causal, self.reads, self.sums = dropout, causal, reads, sums

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).view(2, TOKENS, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.3 if self.sums else q @ k.transpose(-2, -1) / 3
        if self.causal:
            scores = scores.masked_fill(torch.ones(TOKENS, TOKENS).triu(1).bool(), float("-inf"))
        weights = functional.dropout(scores.softmax(-1), self.dropout)
        out = torch.einsum("bhqk,bhkd->bhqd", weights, v) if self.sums else weights @ v
        return out.square().sum() + ((weights + 1).log().mean() if self.reads else 0)


class Torchs(nn.Module):
    """nn.MultiheadAttention, of whose weights ``reads`` makes use."""

    def __init__(self, *, weights: bool = True, reads: bool = False, causal: bool = False) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.weights, self.reads = weights, reads
        self.mask = nn.Transformer.generate_square_subsequent_mask(TOKENS) if causal else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out, weights = self.inner(x, x, x, attn_mask=self.mask, need_weights=self.weights)
        return out.square().sum() + (weights.std() if self.reads else 0)


def attention(model: nn.Module) -> list[Any]:
    x = torch.randn(2, TOKENS, WIDTH)
    return told(ATTENTION, lambda: model(x))


@pytest.mark.parametrize(
    ("model", "causal", "module"),
    [
        (ByHand(), False, ""),
        (ByHand(causal=True), True, ""),
        (ByHand(sums=True), False, ""),
        (Torchs(), False, "nn.MultiheadAttention"),
        (Torchs(causal=True), True, "nn.MultiheadAttention"),
    ],
)
def test_attention_between_two_products_is_told_and_its_kernel_was_tried(
    model: nn.Module, causal: bool, module: str
) -> None:
    (one,) = attention(model)
    assert (one["used"], one["fused"], one["dropout"]) == (False, True, False)
    assert (one["causal"], one["module"]) == (causal, module)
    assert one["shape"] == [2 * HEADS, TOKENS, TOKENS] and one["calls"] == 1
    assert one["instead"] > 0 and 0 < one["whole"] < 1 and 0 < one["products"] < 1 and one["backward"] > 0


def test_weights_that_the_loss_reads_and_dropout_are_said() -> None:
    (one,) = attention(ByHand(reads=True))
    assert one["used"] and one["instead"] is None
    (one,) = attention(Torchs(reads=True))
    assert one["used"]
    (one,) = attention(ByHand(dropout=0.1))
    assert one["dropout"] and not one["used"] and one["fused"] is False  # no kernel of torch's on the CPU


def test_kernels_and_softmax_elsewhere_are_no_composed_attention() -> None:
    class Kernel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.requires_grad_().view(2, TOKENS, HEADS, -1).transpose(1, 2)
            return functional.scaled_dot_product_attention(q, q, q, dropout_p=0.1).sum()

    assert attention(Torchs(weights=False)) == []
    assert attention(Kernel()) == []  # with dropout torch composes it itself
    assert attention(nn.Sequential(nn.Linear(WIDTH, 8), nn.Softmax(-1), nn.Linear(8, 1), nn.Flatten(0), Total())) == []


@pytest.mark.parametrize("causal", [False, True])
def test_torchs_own_attention_is_told_where_its_kernels_are_switched_off(causal: bool) -> None:
    class Own(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = x.requires_grad_().view(2, TOKENS, HEADS, -1).transpose(1, 2)
            return functional.scaled_dot_product_attention(q, q, q, is_causal=causal).sum()

    flags = torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.mem_efficient_sdp_enabled
    assert attention(Own()) == []
    torch.backends.cuda.enable_flash_sdp(False)
    try:
        (one,) = attention(Own())
        assert [flag() for flag in flags] == [False, True]  # as they were
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
    assert one["switched_off"] and one["fused"] and one["causal"] is causal and not one["used"]
    assert one["instead"] is not None and one["calls"] == 1


class Total(nn.Module):
    """A sum."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


def test_what_is_computed_for_the_pairs_alone_goes_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # Each operator takes as long as any other: the shares are numbers of operators.
    monkeypatch.setattr("perf_diagnostics.measure.one_step.dispatch_mode._clock", count().__next__)
    x, c = trained(N, D), trained(M, D)

    def cosines() -> torch.Tensor:
        return functional.cosine_similarity(x.unsqueeze(1), c.unsqueeze(0), dim=-1).sum()

    def views() -> torch.Tensor:
        return (x[:, None].expand(N, M, D) * c[None].expand(N, M, D)).sum()

    def of_rows() -> torch.Tensor:
        return (x.relu()[:, None] * c).sum()

    (cosine,), (expanded,), (rows,) = (told(BLOW_UPS, loss) for loss in (cosines, views, of_rows))
    # The norms of what was expanded, and their clamps, are for nobody else; without them it is 4 operators of 18.
    assert cosine["forward"] > 0.8 and cosine["backward"] > 0.8
    # What backward adds up for the views: without it 30 %.
    assert expanded["forward"] == pytest.approx(1.0) and expanded["backward"] > 0.6
    # What is computed for each row, and not for each pair, is needed by a product as well.
    assert rows["forward"] < 0.9
