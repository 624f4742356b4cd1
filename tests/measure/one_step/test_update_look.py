"""Which updates are looked through, and what is told of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.record import flush_times
from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.store.find import list_runs

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
    inside: list[str] = []
    looks = StepLook(
        LoopObservations(),
        lambda: [model],
        optimizers=lambda: [optimizer],
        elsewhere=lambda: bool(inside),
        updates=lambda: inside == ["update"],
    )
    looks.begin(several=False)

    def loss() -> torch.Tensor:
        made: torch.Tensor = model(x).square().sum()
        made.backward()
        return made

    if not with_closure:
        loss()
    inside.append("update")
    with contextlib.suppress(ArithmeticError):
        optimizer.step(*([loss] if with_closure else []))
    inside[:] = ["data"]
    torch.rand(4) + 1  # the loader's: nobody is shown it
    inside.clear()
    looks.end()
    assert not torch._C._len_torch_dispatch_stack() and not looks._observations.gaps
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


def test_of_an_update_with_a_closure_the_loss_is_seen_as_any_other() -> None:
    facts = looked_through(lambda parameters: Whitened(parameters, larger=True), with_closure=True).facts
    assert facts["operator_seconds_forward"] > 0 and facts["operator_seconds_backward"] > 0


def test_an_update_that_fails_leaves_nothing_behind() -> None:
    assert looked_through(lambda parameters: NoUpdates(parameters, larger=True)).facts["operators"]


@pytest.mark.parametrize("larger", [True, False])
def test_the_parameters_are_the_same_bits(larger: bool) -> None:
    def updated(*, looked: bool) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        model, x = nn.Linear(8, 128), torch.randn(16, 8)
        optimizer = Whitened(model.parameters(), larger=larger)
        update: list[bool] = []
        looks = StepLook(
            LoopObservations(),
            lambda: [model],
            optimizers=lambda: [optimizer],
            elsewhere=lambda: bool(update),
            updates=lambda: bool(update),
        )
        if looked:
            looks.begin(several=False)
        model(x).square().sum().backward()
        update.append(True)
        optimizer.step()
        update.clear()
        looks.end()
        assert (ORDERS in looks.facts) is looked
        return model.weight.detach().clone(), torch.rand(1)

    assert all(map(torch.equal, updated(looked=False), updated(looked=True)))


def test_in_a_watched_loop_a_named_optimizer_of_ones_own_steps_on_while_its_update_is_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch goes through an optimizer's hooks while a step ends, and so while a look begins or ends."""
    monkeypatch.setattr(flush_times, "FIRST_FLUSH_NS", 0)
    torch.manual_seed(0)
    model, x = nn.Linear(8, 128), torch.randn(16, 8)
    optimizer = Whitened(model.parameters(), larger=True)
    seen: list[int] = []
    optimizer.register_step_post_hook(lambda *_given: seen.append(1))
    with attach(model, optimizer, results_dir=tmp_path, quiet=True):
        for _ in range(60):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    ((result,),) = (folder.read().results for folder in list_runs(tmp_path))
    assert len(seen) == 60
    (one,) = result.facts[ORDERS]  # type: ignore[union-attr]
    assert one["optimizer"] > 0  # type: ignore[index, call-overload, operator]
