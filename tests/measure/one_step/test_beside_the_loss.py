"""What is made of the model's results beside the loss is told, and nothing that the training may need.

Every operator counts as taking a second, so that seconds are numbers of operators.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import dispatch_mode
from perf_diagnostics.measure.one_step.operator_traits import traits_of
from tests.measure.one_step.test_dataflow import looked, quiet

ROWS, WIDTH, KINDS = 16, 32, 6

TOLD = "beside_the_loss"


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


class Kept:
    """What a training keeps between its steps."""

    def __init__(self) -> None:
        self.codes, self.seen = torch.randn(KINDS, WIDTH), torch.zeros(KINDS)
        self.number: Any = 0.0


Step = Callable[[nn.Module, torch.Tensor, torch.Tensor, Kept], torch.Tensor]


def told(step: Step) -> list[Any]:
    """Of a step whose forward and loss these are."""
    model, x, y, kept = nn.Linear(WIDTH, KINDS), torch.randn(ROWS, WIDTH), torch.randint(KINDS, (ROWS,)), Kept()

    def whole() -> Any:
        loss = step(model, x, y, kept)
        loss.backward()
        return loss, kept

    return list(looked(whole, model)[TOLD])


def accuracy(out: torch.Tensor, y: torch.Tensor) -> float:
    return (out.argmax(1) == y).float().mean().item()


def test_a_metric_of_the_logits_is_told_at_its_own_function() -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        kept.number = accuracy(out, y)
        return functional.cross_entropy(out, y)

    (one,) = told(step)
    assert one["function"] == "accuracy" and "argmax" in one["text"]
    # argmax, ==, float and mean; reading the number is none of them.
    assert one["operators"] == one["seconds_forward"] == 4 and one["seconds_backward"] == 0


@pytest.mark.parametrize("grads", [True, False])
def test_statistics_that_are_kept_for_a_log_are_told(grads: bool) -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        with torch.set_grad_enabled(grads):
            kept.seen += torch.histc(out.detach(), KINDS)
            kept.number = torch.quantile(out.detach().flatten(), 0.99)
        return functional.cross_entropy(out, y)

    sites = told(step)
    assert sum(one["operators"] for one in sites) >= 4 and any("quantile" in one["text"] for one in sites)


def test_what_the_loss_is_made_of_is_not_beside_it() -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        hard = out.detach().topk(2).indices  # picked without gradients, and read by the loss
        weights = functional.softmax(out.detach(), 1).amax(1)
        return (weights * functional.cross_entropy(out, y, reduction="none")).mean() + out.gather(1, hard).mean()

    assert told(step) == []


def test_several_backwards_are_all_the_loss() -> None:
    second = nn.Linear(WIDTH, KINDS)

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        fake = model(x)
        second(functional.pad(fake.detach().exp(), (0, WIDTH - KINDS))).square().mean().backward()
        return functional.cross_entropy(fake, y)

    assert told(step) == []


@pytest.mark.parametrize("anew", [True, False])
def test_state_that_the_loss_reads_is_not_beside_it(anew: bool) -> None:
    """The codes of a quantiser follow what it is given: by writing into them, or as a tensor made anew."""

    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        near = torch.cdist(out, kept.codes[:, :KINDS]).argmin(1)
        loss = functional.mse_loss(out, kept.codes[near, :KINDS])
        with torch.no_grad():
            chosen = functional.one_hot(near, KINDS).float()
            moved = 0.9 * kept.codes + 0.1 * functional.pad(chosen.T @ out, (0, WIDTH - KINDS))
            if anew:
                kept.codes = moved
            else:
                kept.codes.copy_(moved)
        return loss

    assert told(step) == []


def test_drawn_actions_are_not_beside_the_loss() -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        kept.number = torch.multinomial(functional.softmax(out.detach(), 1), 1).flatten().tolist()
        return functional.cross_entropy(out, y)

    assert told(step) == []


@pytest.mark.parametrize("by", ["array", "list", "number"])
def test_what_python_may_make_the_loss_of_is_not_beside_it(by: str) -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        costs = out.detach().exp().cumsum(0)
        if by == "number":
            return out.mean() * costs.sum().item()
        if by == "list":
            return functional.cross_entropy(out, torch.tensor([int(one[0]) % KINDS for one in costs.tolist()]))
        matched = np.argmax(costs.numpy(), axis=1)
        return functional.cross_entropy(out, torch.as_tensor(matched))

    assert told(step) == []


def test_a_metric_after_the_loss_by_numpy_is_told() -> None:
    def step(model: nn.Module, x: torch.Tensor, y: torch.Tensor, kept: Kept) -> torch.Tensor:
        out = model(x)
        loss = functional.cross_entropy(out, y)
        kept.number = np.sort(out.detach().softmax(1).sort(1).values.numpy())
        return loss

    (one,) = told(step)
    assert one["operators"] == 2


def test_what_nobody_reads_is_told_as_that_alone() -> None:
    model, x, y = nn.Linear(WIDTH, KINDS), torch.randn(ROWS, WIDTH), torch.randint(KINDS, (ROWS,))

    def step() -> Any:
        out = model(x)
        out.detach().exp().sum()
        loss = functional.cross_entropy(out, y)
        loss.backward()
        return loss

    found = looked(step, model)
    assert found["never_used"] != []
    quiet(found, TOLD)


def test_without_a_backward_nothing_is_beside_it() -> None:
    model, x = nn.Linear(WIDTH, KINDS), torch.randn(ROWS, WIDTH)
    quiet(looked(lambda: accuracy(model(x), torch.zeros(ROWS)), model), TOLD)


def test_sort_gives_its_result_and_writes_nothing() -> None:
    """TorchScript's sort of lists has the same name, and sorts in place."""
    assert not {0, "self"} & traits_of(torch.ops.aten.sort).written
    assert 0 in traits_of(torch.ops.aten.add_).written and 0 in traits_of(torch.ops.aten._foreach_add_).written


# --- gradients that are asked for ----------------------------------------------------------------------------------


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, KINDS))


def told_of(model: nn.Module, step: Callable[[torch.Tensor, torch.Tensor, Kept], Any]) -> list[Any]:
    """Of a step that trains ``model``, whatever it has backward begin with."""
    x, y, kept = torch.randn(ROWS, WIDTH), torch.randint(KINDS, (ROWS,)), Kept()
    return list(looked(lambda: (step(x, y, kept), kept), model)[TOLD])


def test_norms_of_gradients_for_a_log_are_told_with_the_pass_that_they_take() -> None:
    model = network()

    def step(x: torch.Tensor, y: torch.Tensor, kept: Kept) -> Any:
        out = model(x)
        loss = functional.cross_entropy(out, y)
        grads = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
        kept.number = torch.stack([*map(torch.Tensor.norm, grads)]).norm()
        loss.backward()
        return loss

    (one,) = told_of(model, step)
    assert one["function"].endswith("step") and "torch.autograd.grad" in one["text"]
    # The pass itself, and four norms, what stacks them and their norm.
    assert one["seconds_forward"] > 6 and one["operators"] == one["seconds_forward"] and one["seconds_backward"] == 0


def test_a_penalty_that_joins_the_loss_in_some_steps_only_is_told_in_the_others() -> None:
    model = network()

    def step(joins: bool) -> Callable[[torch.Tensor, torch.Tensor, Kept], Any]:
        def of_step(x: torch.Tensor, y: torch.Tensor, kept: Kept) -> Any:
            x.requires_grad_()
            out = model(x)
            loss = functional.cross_entropy(out, y)
            (grad,) = torch.autograd.grad(out.sum(), x, create_graph=True)
            penalty = grad.square().sum()
            if joins:
                loss = loss + penalty
            loss.backward()
            return loss, grad, penalty

        return of_step

    assert told_of(model, step(joins=True)) == []
    (one,) = told_of(model, step(joins=False))
    assert "torch.autograd.grad" in one["text"]


def test_losses_on_the_way_that_only_the_last_of_is_trained_by_are_told() -> None:
    model = network()

    def step(every: bool) -> Callable[[torch.Tensor, torch.Tensor, Kept], Any]:
        def of_step(x: torch.Tensor, y: torch.Tensor, kept: Kept) -> Any:
            weights, losses = dict(model.named_parameters()), []
            for turn in range(4):
                if turn == 3:
                    losses.append(queried(weights, x, y))
                elif every:
                    losses.append(queried(weights, x, y))  # on the way
                if turn < 3:
                    inner = functional.cross_entropy(torch.func.functional_call(model, weights, (x,)), y)
                    grads = torch.autograd.grad(inner, [*weights.values()], create_graph=True)
                    weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), grads, strict=True)}
            losses[-1].backward()
            return losses

        return of_step

    def queried(weights: dict[str, Any], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(torch.func.functional_call(model, weights, (-x,)), y)

    assert told_of(model, step(every=False)) == []
    (one,) = told_of(model, step(every=True))
    # What it runs is run for the last one, too: told is who asks for it.
    assert one["function"].endswith("of_step") and "on the way" in one["text"]


def test_gradients_that_update_parameters_are_not_told() -> None:
    model, other = network(), nn.Linear(WIDTH, KINDS)

    def by_assignment(x: torch.Tensor, y: torch.Tensor, kept: Kept) -> Any:
        loss = functional.cross_entropy(model(x), y)
        grads = torch.autograd.grad(loss, [*model.parameters()], retain_graph=True)
        loss.backward()
        for one, grad in zip(model.parameters(), grads, strict=True):
            one.grad = grad * 2
        return loss

    def of_parameters_without_a_gradient(x: torch.Tensor, y: torch.Tensor, kept: Kept) -> Any:
        first = functional.cross_entropy(other(x), y)
        first.backward(retain_graph=True)
        second = functional.cross_entropy(model(x) * first.detach(), y)
        kept.number = torch.autograd.grad(second, [*model.parameters()])
        return first, second

    def by_a_weight(x: torch.Tensor, y: torch.Tensor, kept: Kept) -> Any:
        out = model(x)
        first, second = functional.cross_entropy(out, y), out.square().mean()
        last = [*model.parameters()][-1]
        norms = [torch.autograd.grad(one, last, retain_graph=True)[0].norm() for one in (first, second)]
        loss = first + (norms[0] / (norms[1] + 1e-6)).detach() * second
        loss.backward()
        return loss

    for step in (by_assignment, of_parameters_without_a_gradient, by_a_weight):
        for one in (*model.parameters(), *other.parameters()):
            one.grad = None
        told = told_of(nn.ModuleList([model, other]), step)
        assert told == [], step.__name__
