"""Which products are told as over more rows than they need: copies of fewer, or rows that are only added up."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import dispatch_mode
from perf_diagnostics.measure.one_step.more_rows import SIGNAL
from tests.measure.one_step.test_needless_operators import told, trained

N, E, D, OUT = 24, 240, 12, 10

#: What is made of the inputs, how many rows are multiplied, and how many would do.
Case = tuple[Callable[[], torch.Tensor], int, float]


def _layers() -> tuple[nn.Linear, nn.Linear, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return nn.Linear(D, OUT), nn.Linear(2 * D, OUT), trained(N, D), torch.randint(N, (E,))


def _copies() -> dict[str, Case]:
    layer, wide, nodes, index = _layers()
    conv, maps = nn.Conv2d(D, OUT, 1), trained(2, D, 4, 4)
    table, words = nn.Embedding(N, D), torch.randint(N, (4, 60))
    norm = nn.LayerNorm(D)

    def pairs() -> torch.Tensor:
        first, second = nodes[:, None].expand(N, N, D), nodes[None].expand(N, N, D)
        return wide(torch.cat([first, second], -1)).tanh()

    def edges() -> torch.Tensor:
        attributes = torch.ones(E, 1)
        joined = torch.cat([nodes[index], nodes.index_select(0, index.flip(0)), attributes], 1)
        return functional.linear(joined, weight).tanh()

    weight = trained(OUT, 2 * D + 1)

    def differences() -> torch.Tensor:
        here = nodes[index]
        return wide(torch.cat([here, nodes[index.flip(0)] - here], 1)).tanh()

    return {
        "gathered": (lambda: layer(nodes[index]).tanh(), E, N),
        "by index_select": (lambda: layer(nodes.index_select(0, index)).tanh(), E, N),
        "by gather": (lambda: layer(nodes.gather(0, index[:, None].expand(E, D))).tanh(), E, N),
        "of a table": (lambda: layer(table(words)).tanh(), E, N),
        "after a function of each row": (lambda: layer(norm(nodes[index].relu() * 2 + 1).softmax(1)).tanh(), E, N),
        "repeated": (lambda: layer(nodes.repeat(10, 1)).tanh(), E, N),
        "repeated one by one": (lambda: layer(nodes.repeat_interleave(10, 0)).tanh(), E, N),
        "expanded": (lambda: layer(nodes[:, None].expand(N, 10, D)).tanh(), E, N),
        "expanded, and then made other numbers": (lambda: layer(nodes[:, None].expand(N, 10, D).sin()).tanh(), E, N),
        "interpolated": (
            lambda: conv(functional.interpolate(maps, scale_factor=2, mode="bilinear")).tanh(), 2 * 64, 2 * 16
        ),
        "nearest, and a nonlinearity": (lambda: conv(functional.interpolate(maps, scale_factor=2).relu()), 128, 32),
        "all pairs": (pairs, N * N, N),
        "differences": (lambda: layer(nodes[index] - nodes[index.flip(0)]).tanh(), E, 2 * N),
        "ends and differences": (differences, E, 1.5 * N),
        # The edges' own number is one of 25.
        "ends of edges": (edges, E, E * (2 * D * N / E + 1) / (2 * D + 1)),
    }  # fmt: skip


def _sums() -> dict[str, Case]:
    layer, _, _, index = _layers()
    rows, batch, conv, maps = trained(E, D), trained(4, 60, D), nn.Conv2d(D, OUT, 1), trained(2, D, 8, 8)
    into = index[:, None].expand(E, OUT)
    weights = trained(E, 1)

    def twice() -> torch.Tensor:
        out = layer(batch)
        return out.mean(1).tanh() + out.sum(1)

    return {
        "a mean": (lambda: layer(batch).mean(1).tanh(), E, 4),
        "a sum, scaled": (lambda: (layer(batch) * 0.5).double().sum(1).tanh(), E, 4),
        "with a weight before it": (lambda: (weights * layer(rows)).view(4, 60, OUT).sum(1).tanh(), E, 4),
        "with a weight for each row": (lambda: (layer(rows) * weights).view(4, 60, OUT).sum(1).tanh(), E, 4),
        "two of them": (twice, E, 8),
        "pooled": (lambda: functional.adaptive_avg_pool2d(conv(maps), 2).tanh(), 128, 8),
        "pooled to one": (lambda: functional.adaptive_avg_pool2d(conv(maps), 1).tanh(), 128, 2),
        "onto nodes": (lambda: torch.zeros(N, OUT).index_add(0, index, layer(rows)).tanh(), E, N),
        "scattered onto nodes": (lambda: torch.zeros(N, OUT).scatter_add(0, into, layer(rows)).tanh(), E, N),
    }


@pytest.mark.parametrize("name", [*_copies()])
def test_rows_that_are_copies_are_told(name: str) -> None:
    make, rows, left = _copies()[name]
    (one,) = told(SIGNAL, lambda: make().sum())
    assert not one["sums"] and one["rows"] == rows and one["rows_left"] == pytest.approx(left)
    assert one["parts"] == {"all pairs": 2, "ends and differences": 2, "ends of edges": 3}.get(name, 1)
    assert one["copied"]["file"].endswith("test_more_rows.py")
    assert 0 < one["whole"] < 1


@pytest.mark.parametrize("name", [*_sums()])
def test_rows_that_are_only_added_up_are_told(name: str) -> None:
    make, rows, left = _sums()[name]
    (one,) = told(SIGNAL, lambda: make().sum())
    assert one["sums"] and one["rows"] == rows and one["rows_left"] == left and one["copied"] == {}


def _needed() -> dict[str, Callable[[], torch.Tensor]]:
    layer, _, nodes, index = _layers()
    square, conv3, conv = nn.Linear(D, D), nn.Conv2d(D, OUT, 3, padding=1), nn.Conv2d(D, OUT, 1)
    rows, batch, maps = trained(E, D), trained(4, 60, D), trained(2, D, 4, 4)
    norm, few = nn.BatchNorm1d(D), torch.randint(N, (N + 4,))
    as_many, wide_rows = nn.Embedding(4, E), nn.Linear(E, OUT)
    padded, gru = nn.Embedding(N, D, padding_idx=0), nn.GRU(D, OUT)
    other = trained(E, D)

    def read_by_others() -> torch.Tensor:
        out = layer(batch)
        return out.mean(1).tanh().sum() + out.relu().sum()

    def attention() -> torch.Tensor:
        """The weights of a graph attention layer come of what they weigh."""
        sent = layer(rows)
        weighed = sent * sent.sum(1, keepdim=True).sigmoid()
        return torch.zeros(N, OUT).index_add(0, index, weighed).tanh()

    def read_as_array() -> torch.Tensor:
        out = layer(batch)
        return out.mean(1).tanh() + float(out.detach().numpy().max())

    def changed() -> torch.Tensor:
        copies = nodes.detach()[index]
        torch._foreach_mul_([copies], [torch.rand(E, 1)])
        return layer(copies).tanh()

    def interpolated_and_bent() -> torch.Tensor:
        return conv(functional.interpolate(maps, scale_factor=2, mode="bilinear").relu())

    return {
        "a factor for each row, of as many rows as features": lambda: wide_rows(
            as_many(index % 4) * torch.rand(E, 1)
        ).tanh(),
        "a number for each row, of as many rows as features": lambda: wide_rows(
            as_many(index % 4) + torch.rand(E)[:, None]
        ).tanh(),
        "a row for padding": lambda: layer(padded(index)).tanh(),
        "in a recurrent layer": lambda: torch.tanh(gru(nodes[index].view(60, 4, D))[0]),
        "pooled over a border": lambda: functional.avg_pool2d(conv(maps), 3, 2, 1).tanh(),
        "rounded before the mean": lambda: torch.div(layer(batch), 0.1, rounding_mode="floor").mean(1).tanh(),
        "read as an array as well": read_as_array,
        "changed by what gives nothing": changed,
        "hardly more rows": lambda: layer(nodes[few]).tanh(),
        "columns": lambda: functional.linear(nodes[:, torch.arange(D).repeat(4)], trained(OUT, 4 * D)).tanh(),
        "dropout between": lambda: layer(functional.dropout(nodes[index], 0.5)).tanh(),
        "a norm over the batch": lambda: layer(norm(nodes[index])).tanh(),
        "different numbers for each": lambda: layer(nodes[index] + other).tanh(),
        "a factor for each row": lambda: layer(nodes[index] * torch.rand(E, 1)).tanh(),
        "gathered again, to be no copies": lambda: layer(nodes[index][:N]).tanh(),
        "a convolution of three by three": lambda: conv3(functional.interpolate(maps, scale_factor=2)).tanh(),
        "interpolated and bent": interpolated_and_bent,
        "a nonlinearity before the mean": lambda: layer(batch).relu().mean(1),
        "a mean of features": lambda: layer(batch).mean(2).tanh(),
        "a mean of pairs": lambda: square(rows.view(E, D)).view(E // 2, 2, D).amax(1),
        "read by others": read_by_others,
        "attention": attention,
        "of all numbers": lambda: layer(batch).mean(),
        "layer first": lambda: torch.tanh(layer(nodes)[index]),
        "mean first": lambda: layer(batch.mean(1)).tanh(),
    }


@pytest.mark.parametrize("name", [*_needed()])
def test_what_is_needed_is_not_told(name: str) -> None:
    assert told(SIGNAL, lambda: _needed()[name]().sum()) == []


def test_a_layer_that_follows_copies_is_one_too_and_what_lies_in_between_goes_with_it() -> None:
    first, second, nodes, index = nn.Linear(D, D), nn.Linear(D, OUT), trained(N, D), torch.randint(N, (E,))

    def loss() -> torch.Tensor:
        hidden = first(nodes[index])
        return second(hidden.relu()).tanh().sum()

    found = told(SIGNAL, loss)
    assert {one["text"] for one in found} == {
        "hidden = first(nodes[index])",
        "return second(hidden.relu()).tanh().sum()",
    }


def test_a_product_that_is_added_to_other_rows_makes_no_copies() -> None:
    layer, _, nodes, index = _layers()
    other, weight = trained(E, D), trained(D, D)

    def loss() -> torch.Tensor:
        hidden = torch.addmm(other, nodes[index], weight)
        return layer(hidden.relu()).tanh().sum()

    assert all("layer(" not in one["text"] for one in told(SIGNAL, loss))


def ticking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each operator takes a second."""
    ticks = count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


def test_several_layers_of_the_same_copies_save_these_once(monkeypatch: pytest.MonkeyPatch) -> None:
    heads, nodes, index = nn.ModuleList(nn.Linear(D, 1) for _ in range(8)), trained(N, D), torch.randint(N, (E,))
    ticking(monkeypatch)

    def loss() -> torch.Tensor:
        sent = nodes[index]
        return torch.stack([head(sent) for head in heads]).tanh().sum()

    assert 0 < sum(one["whole"] for one in told(SIGNAL, loss)) < 1


def test_copies_that_others_read_stay_and_cost_more_where_they_are_made_of_the_product(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer, nodes, index = nn.Linear(D, D), trained(N, D), torch.randint(N, (E,))
    ticking(monkeypatch)

    def share(reads_both: bool) -> float:
        def loss() -> torch.Tensor:
            sent = nodes[index]
            out = layer(sent).tanh()
            return (out * sent if reads_both else out * 2).sum()

        found = told(SIGNAL, loss)
        return float(found[0]["forward"] + found[0]["backward"]) if found else 0.0

    assert share(True) < share(False) / 1.5


def test_wider_copies_are_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds are of operators, whatever their size: gathering 40 times the numbers takes more than the product."""
    nodes, index, pair = trained(N, D), torch.randint(N, (E,)), torch.randint(N, (E,))
    ticking(monkeypatch)
    for out, tells in ((D, True), (40 * D, False)):
        layer, both = nn.Linear(D, out), nn.Linear(2 * D, out)
        assert bool(told(SIGNAL, lambda layer=layer: layer(nodes[index]).tanh().sum())) is tells
        joined = told(SIGNAL, lambda both=both: both(torch.cat([nodes[index], nodes[pair]], 1)).tanh().sum())
        assert bool(joined) is tells


def test_the_line_that_makes_the_copies_is_named() -> None:
    layer, _, nodes, index = _layers()

    def loss() -> torch.Tensor:
        sent = nodes[index]
        return layer(sent).tanh().sum()

    (one,) = told(SIGNAL, loss)
    assert one["copied"]["text"] == "sent = nodes[index]" and one["text"] == "return layer(sent).tanh().sum()"


def test_the_alternatives_give_the_same() -> None:
    """What the remedies say."""
    layer, wide, nodes, index = _layers()
    torch.testing.assert_close(layer(nodes[index]), layer(nodes)[index])
    joined = wide(torch.cat([nodes[index], nodes[index.flip(0)]], 1))
    parts: Any = functional.linear(nodes, wide.weight[:, :D]), functional.linear(nodes, wide.weight[:, D:], wide.bias)
    torch.testing.assert_close(joined, parts[0][index] + parts[1][index.flip(0)])
    batch, conv, maps = trained(4, 60, D), nn.Conv2d(D, OUT, 1), trained(2, D, 4, 4)
    torch.testing.assert_close(layer(batch).mean(1), layer(batch.mean(1)))
    up = {"scale_factor": 2, "mode": "bilinear"}
    torch.testing.assert_close(
        conv(functional.interpolate(maps, **up)),
        functional.interpolate(conv(maps), **up),  # type: ignore[arg-type]
    )
