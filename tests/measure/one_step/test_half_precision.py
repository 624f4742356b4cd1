"""What the products of a step in float32 would take in bfloat16 is tried once it is over."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import every_watcher, tried_again
from perf_diagnostics.measure.one_step.half_precision import SIGNAL, HalfPrecision
from perf_diagnostics.measure.one_step.tried_again import Left, Tried
from perf_diagnostics.measure.one_step.watcher import Ran
from tests.measure.one_step.looking import Loss, looked_at


def told(loss: Loss) -> tuple[Any, dict[str, str]]:
    """What is told of a loss, forward and backward, and why it is not; what its first operators set up is over."""
    loss().backward()  # type: ignore[no-untyped-call]
    facts, gaps = looked_at([HalfPrecision()], loss)
    return facts.get(SIGNAL), gaps


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """Whatever is tried takes half in bfloat16 and a tenth in casts; the types of what it gives in both."""
    types: list[tuple[Any, Any]] = []

    def left(tried: Tried, _once_s: float) -> Left:
        types.append((_types(tried.before()), _types(tried.other())))
        assert _types(tried.casts()) <= {torch.bfloat16}
        return Left(0.5, 0.1)

    monkeypatch.setattr(tried_again, "left_of", left)
    return types


def _types(given: Any) -> set[torch.dtype]:
    return {one.dtype for one in torch.utils._pytree.tree_leaves(given) if isinstance(one, torch.Tensor)}


def _losses() -> dict[str, Loss]:
    linear, convolution, lstm = nn.Linear(4, 3), nn.Conv2d(2, 3, 3), nn.LSTM(3, 4)
    query = torch.ones(1, 2, 5, 4, requires_grad=True)
    return {
        "linear": lambda: linear(torch.ones(5, 4)).tanh().sum(),
        "convolution": lambda: convolution(torch.ones(1, 2, 6, 6)).relu().sum(),
        "attention": lambda: functional.scaled_dot_product_attention(query, query, query).sum(),
        "batched": lambda: torch.matmul(query, query.transpose(-1, -2)).sum(),
        "lstm": lambda: functional.mse_loss(lstm(torch.ones(6, 2, 3))[0], torch.ones(6, 2, 4)),
    }


@pytest.mark.parametrize("name", ["linear", "convolution", "attention", "batched", "lstm"])
def test_products_and_their_gradients_are_tried(name: str, given: list[tuple[Any, Any]]) -> None:
    found, gaps = told(_losses()[name])
    assert not gaps and given
    assert {torch.bfloat16} == set().union(*(other for _, other in given)) - {torch.float32}
    assert torch.bfloat16 not in set().union(*(before for before, _ in given))
    for phase in ("forward", "backward"):
        assert found[phase] > 0
        assert found[f"tried_{phase}"] == pytest.approx(found[phase])
        assert found[f"half_{phase}"] == pytest.approx(0.5 * found[phase])
        assert found[f"casts_{phase}"] == pytest.approx(0.1 * found[phase])


@pytest.mark.usefixtures("given")
def test_what_multiplies_nothing_is_left_out() -> None:
    found, _ = told(lambda: torch.ones(50, requires_grad=True).exp().cumsum(0).sum())
    assert set(found.values()) == {0}


@pytest.mark.usefixtures("given")
def test_what_is_computed_in_bfloat16_by_now_is_left_out() -> None:
    linear = nn.Linear(4, 3)

    def loss() -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return linear(torch.ones(5, 4)).float().sum()

    found, _ = told(loss)
    assert found["forward"] == found["backward"] == 0


@pytest.mark.parametrize("units", [True, False, None])
def test_only_a_processor_with_units_is_asked(monkeypatch: pytest.MonkeyPatch, units: bool | None) -> None:
    monkeypatch.setattr(every_watcher, "bfloat16_units", lambda: units)
    assert any(isinstance(one, HalfPrecision) for one in every_watcher.watchers_of([])) is bool(units)


def test_products_on_a_device_are_not_told() -> None:
    watcher = HalfPrecision()
    watcher.see(Ran(torch.ops.aten.mm, (), {}, None, in_backward=False, seconds=None))
    assert "on a device" in watcher.why_not
