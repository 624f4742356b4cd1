"""Which updates are looked through, and what is told of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step.look import StepLook

ORDERS = "dearer_orders_of_updates"


class Whitened(torch.optim.Optimizer):
    """Steps along a polynomial of each gradient, by its products with itself on the larger side, or the smaller one."""

    def __init__(self, parameters: Any, *, larger: bool) -> None:
        super().__init__(parameters, {"lr": 0.1})
        self.larger = larger

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        if closure is not None:
            with torch.enable_grad():
                closure()
        for group in self.param_groups:
            for one in group["params"]:
                if one.grad is not None and one.dim() == 2:
                    one.sub_(self._polynomial(one.grad), alpha=group["lr"])
        return None

    def _polynomial(self, gradient: torch.Tensor) -> torch.Tensor:
        if not self.larger and len(gradient) > gradient.shape[1]:
            return self._polynomial(gradient.T).T
        x = gradient / (gradient.norm() + 1e-6)
        gram = x @ x.T
        return 3.4 * x + (-4.7 * gram + 2.0 * gram @ gram) @ x


class NoUpdates(Whitened):
    """Fails before it has done anything."""

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        raise ArithmeticError("no update")


def looked_through(optimizer_of: Callable[[Any], torch.optim.Optimizer], *, with_closure: bool = False) -> StepLook:
    torch.manual_seed(0)
    model, x = nn.Linear(8, 128), torch.randn(16, 8)
    optimizer = optimizer_of(model.parameters())
    hooks = optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks
    looks = StepLook(LoopObservations(), lambda: [model], optimizers=lambda: [optimizer])
    looks.begin(several=False)

    def loss() -> torch.Tensor:
        made: torch.Tensor = model(x).square().sum()
        made.backward()
        return made

    if with_closure:
        optimizer.step(loss)
    else:
        loss()
        with contextlib.suppress(ArithmeticError):
            optimizer.step()
    looks.end()
    assert not any(hooks) and not torch._C._len_torch_dispatch_stack()
    assert not looks._observations.gaps
    return looks


def test_what_an_optimizer_multiplies_on_the_larger_side_is_told_as_a_part_of_the_updates() -> None:
    facts = looked_through(lambda parameters: Whitened(parameters, larger=True)).facts
    (one,) = facts[ORDERS]
    assert one["shape"] == [128, 128] and one["function"].endswith("_polynomial")
    assert 0 < one["optimizer"] < 1 and one["forward"] == one["backward"] == 0
    assert facts["operator_seconds_optimizer"] > 0 and facts["around_operators_seconds_optimizer"] > 0
    assert facts["dearer_orders"] == []  # of forward


def test_on_the_smaller_side_nothing_is_told() -> None:
    assert looked_through(lambda parameters: Whitened(parameters, larger=False)).facts[ORDERS] == []


@pytest.mark.parametrize("optimizer_of", [torch.optim.SGD, torch.optim.Adam])
def test_updates_of_torchs_own_are_not_looked_through(optimizer_of: Any) -> None:
    assert ORDERS not in looked_through(optimizer_of).facts


def test_an_update_that_computes_a_loss_itself_is_left_alone() -> None:
    facts = looked_through(lambda parameters: Whitened(parameters, larger=True), with_closure=True).facts
    assert ORDERS not in facts and facts["operators"]


def test_an_update_that_fails_leaves_nothing_behind() -> None:
    assert looked_through(lambda parameters: NoUpdates(parameters, larger=True)).facts["operators"]


@pytest.mark.parametrize("larger", [True, False])
def test_the_parameters_are_the_same_bits(larger: bool) -> None:
    def updated(*, looked: bool) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        model, x = nn.Linear(8, 128), torch.randn(16, 8)
        optimizer = Whitened(model.parameters(), larger=larger)
        looks = StepLook(LoopObservations(), lambda: [model], optimizers=lambda: [optimizer])
        if looked:
            looks.begin(several=False)
        model(x).square().sum().backward()
        optimizer.step()
        looks.end()
        return model.weight.detach().clone(), torch.rand(1)

    assert all(map(torch.equal, updated(looked=False), updated(looked=True)))
