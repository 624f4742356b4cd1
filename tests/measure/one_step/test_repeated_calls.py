"""Loops in Python over small operators are told, and layers, accumulated batches and short loops are none.

Every operator counts as taking a second, so that seconds are numbers of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import dispatch_mode
from tests.measure.one_step.test_dataflow import looked

ROWS, WIDTH = 20, 8


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


def told(loss: Callable[[], torch.Tensor], *modules: nn.Module) -> list[Any]:
    def step() -> torch.Tensor:
        value = loss()
        value.backward()
        return value

    return list(looked(step, *modules)["repeated_calls"])


def by_sample(out: torch.Tensor, passes: int) -> torch.Tensor:
    terms = []
    for at in range(passes):
        terms.append(out[at].exp().sum())
    return torch.stack(terms).mean()


def test_a_loss_that_goes_through_the_samples_is_told() -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)
    (one,) = told(lambda: by_sample(model(x), ROWS), model)
    assert one["function"] == "by_sample" and "terms.append" in one["text"]
    assert one["passes"] == ROWS and one["recurs"] is False
    # A part of the rows, exp, and the sum, of all passes but one; whatever autograd keeps beside them.
    assert one["operators"] >= 3 * ROWS and one["seconds_forward"] == pytest.approx(one["operators"] * 19 / 20)
    assert one["seconds_backward"] > 0 and one["seconds_more"] > 0


@pytest.mark.parametrize("what", ["numbers", "again"])
def test_what_is_made_of_numbers_or_again_is_told_as_that_alone(what: str) -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        mask = torch.zeros(ROWS, ROWS)
        for at in range(ROWS if what == "numbers" else 0):
            mask[at, : at + 1].fill_(1)
        again = torch.stack([x.exp().sum() for _ in range(ROWS if what == "again" else 1)]).mean()
        return again * (mask @ model(x)).sum()

    assert told(loss, model) == []


@pytest.mark.parametrize("passes", [4, 15])
def test_a_short_loop_is_none(passes: int) -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)
    assert told(lambda: by_sample(model(x), passes), model) == []


class Swish(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.act = nn.Linear(WIDTH, WIDTH), Swish()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = x + self.act(self.layer(x))
        return out


@pytest.mark.parametrize("own", [True, False])
def test_layers_are_no_loop_and_neither_is_what_stands_between_them(own: bool) -> None:
    blocks = [Block() if own else nn.Sequential(nn.Linear(WIDTH, WIDTH), Swish()) for _ in range(24)]
    model, x = nn.Sequential(*blocks, nn.Linear(WIDTH, WIDTH)), torch.randn(ROWS, WIDTH)
    assert told(lambda: model(x).square().mean(), model) == []


class Member(nn.Module):
    """Two layers, with what stands between them in one line or in another function."""

    def __init__(self, *, own: bool, width: int = WIDTH) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, width), nn.Linear(width, WIDTH)
        self.act = Swish() if own else nn.SiLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.last(self.act(self.first(x)))
        return out


@pytest.mark.parametrize("own", [True, False])
def test_layers_beside_each_other_are_a_loop(own: bool) -> None:
    members, x = nn.ModuleList([Member(own=own) for _ in range(16)]), torch.randn(ROWS, WIDTH)
    (one, *others) = told(lambda: torch.stack([member(x) for member in members]).square().mean(), members)
    assert one["function"] == "Member.forward" and one["passes"] == 16
    assert one["layers"] is True and one["recurs"] is False
    assert all(other["function"] == "Swish.forward" and other["layers"] for other in others) and len(others) == own
    # addmm, with the transposed weight, twice; what Swish or SiLU do beside.
    assert one["seconds_forward"] >= 4 * 15


def test_heads_of_layers_one_after_another_are_as_many_as_one_layer_has() -> None:
    layers = nn.ModuleList([nn.ModuleList([Member(own=False) for _ in range(6)]) for _ in range(4)])

    def loss() -> torch.Tensor:
        x = torch.randn(ROWS, WIDTH)
        for heads in layers:
            x = torch.stack([head(x) for head in heads]).sum(0)  # type: ignore[union-attr]
        return x.square().mean()

    (one,) = told(loss, layers)
    assert one["layers"] is True and one["passes"] == 6


@pytest.mark.parametrize("what", ["sizes", "few", "calls"])
def test_of_unlike_sizes_few_or_one_model_they_are_no_loop_of_layers(what: str) -> None:
    count, x = {"sizes": 16, "few": 3, "calls": 8}[what], torch.randn(ROWS, WIDTH)
    members = nn.ModuleList([Member(own=False, width=8 + 4 * at * (what == "sizes")) for at in range(count)])
    rounds = 6 if what == "few" else 1

    def loss() -> torch.Tensor:
        called = [members[0]] * 4 + [*members][:4] if what == "calls" else [*members]
        total = torch.zeros(())
        for _ in range(rounds):
            total = total + torch.stack([member(x) for member in called]).square().mean()
        return total

    assert [one for one in told(loss, members) if one["layers"]] == []


def test_a_recurrence_is_told_as_one() -> None:
    cell, x = nn.Linear(WIDTH, WIDTH), torch.randn(24, 4, WIDTH)

    def loss() -> torch.Tensor:
        state = torch.zeros(4, WIDTH)
        for at in range(len(x)):
            state = torch.tanh(cell(state) + x[at])
        return state.square().mean()

    (one,) = told(loss, cell)
    assert one["passes"] == 24 and one["recurs"] is True and one["together"] == 1


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_torchs_own_recurrence_is_called_once(kind: type[nn.Module]) -> None:
    model, head, x = kind(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, 1), torch.randn(4, 40, WIDTH)
    assert told(lambda: head(model(x)[0]).mean(), model, head) == []
    (one,) = told(lambda: by_sample(head(model(x)[0])[0], 40), model, head)
    assert one["passes"] == 40 and one["function"] == "by_sample"


@pytest.mark.parametrize("kind", [nn.RNN, nn.LSTM, nn.GRU])
def test_torchs_own_recurrence_that_is_called_step_by_step_is_a_loop(kind: type[nn.Module]) -> None:
    model, head, x = kind(WIDTH, WIDTH, batch_first=True), nn.Linear(WIDTH, 1), torch.randn(4, 40, WIDTH)

    def step_by_step() -> torch.Tensor:
        state, outs = None, []
        for at in range(40):
            out, state = model(x[:, at : at + 1], state)
            outs.append(out)
        return head(torch.cat(outs, 1)).mean()

    (one,) = told(step_by_step, model, head)
    assert one["function"].endswith("step_by_step") and one["passes"] >= 39


def test_a_loop_in_a_recurrence_is_one_of_which_some_passes_can_be_one() -> None:
    """A conditional random field's forward algorithm, tag by tag: those of a position need nothing of each other."""
    tags, positions = 6, 24
    emit, x = nn.Linear(WIDTH, tags), torch.randn(positions, WIDTH)
    moves = nn.Parameter(torch.randn(tags, tags))

    def loss() -> torch.Tensor:
        scores = emit(x)
        alpha = scores[0]
        for at in range(1, positions):
            following = []
            emitted = scores[at]
            for tag in range(tags):
                following.append((alpha + moves[tag] + emitted[tag]).logsumexp(0))
            alpha = torch.stack(following)
        return alpha.logsumexp(0)

    one, *_ = told(loss, emit)
    assert "following.append" in one["text"] and one["passes"] == tags * (positions - 1)
    assert one["recurs"] is False and one["together"] == pytest.approx(tags)
    # All but one of the tags of each position.
    assert one["seconds_forward"] == pytest.approx(one["operators"] * (tags - 1) / tags, rel=0.02)


def test_a_sum_in_the_loop_makes_it_no_recurrence() -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        out, total = model(x), torch.zeros(())
        for at in range(ROWS):
            row = out[at]
            total = total + functional.softplus(row.exp()).log().sum()
        return total

    (one,) = told(loss, model)
    assert one["recurs"] is False


def test_accumulated_batches_are_no_loop() -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(24, 4, WIDTH)

    def loss() -> torch.Tensor:
        for at in range(23):
            model(x[at]).square().mean().backward()
        return model(x[23]).square().mean()

    assert told(loss, model) == []


def test_large_operators_count_with_their_call_alone() -> None:
    model, x = nn.Linear(WIDTH, 4096), torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        out = model(x)
        return torch.stack([out[at].exp().sum() for at in range(ROWS)]).mean()

    (one,) = told(loss, model)
    # In backward none of exp's and sum's, which work on 4,096 numbers each, and all of the part's.
    few = told(lambda: by_sample(model(x)[:, :WIDTH], ROWS), model)[0]
    assert 0 < one["seconds_backward"] < few["seconds_backward"]
    assert one["seconds_more"] > few["seconds_more"]
