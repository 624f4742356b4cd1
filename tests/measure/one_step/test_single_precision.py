"""What a step in float64 computes is tried in float32 once it is over, and nobody notices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import single_precision, tried_again
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.single_precision import SIGNAL, SinglePrecision
from perf_diagnostics.measure.one_step.tried_again import Left, Tried
from perf_diagnostics.measure.one_step.watcher import Ran
from tests.measure.one_step.looking import Loss, looked_at


def told(loss: Loss) -> Any:
    """What is told of a loss, forward and backward; None where there is nothing in float64."""
    facts, gaps = looked_at([SinglePrecision(OperatorLines())], loss)
    assert not gaps
    return facts.get(SIGNAL)


def doubles(*shape: int) -> torch.Tensor:
    return torch.ones(*shape, dtype=torch.float64)


@pytest.fixture
def a_quarter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is tried takes a quarter in float32, and is run in both types."""

    def left(tried: Tried, _once_s: float) -> Left:
        tried.before(), tried.other()
        return Left(0.25, 0.0)

    monkeypatch.setattr(tried_again, "left_of", left)


def _losses() -> dict[str, Loss]:
    linear, convolution = nn.Linear(4, 3).double(), nn.Conv2d(2, 3, 3).double()
    table, lstm, single = nn.Embedding(9, 4).double(), nn.LSTM(3, 4).double(), nn.Linear(4, 3)
    return {
        "products": lambda: linear(doubles(5, 4)).tanh().sum(),
        "convolutions": lambda: functional.max_pool2d(convolution(doubles(1, 2, 6, 6)), 2).sum(),
        "places": lambda: table(torch.tensor([[1, 8], [3, 3]])).square().mean(),
        "classes": lambda: functional.cross_entropy(linear(doubles(5, 4)), torch.tensor([2] * 5)),
        "lstm": lambda: functional.mse_loss(lstm(doubles(6, 2, 3))[0], doubles(6, 2, 4)),
        "cast": lambda: single(doubles(5, 4).float()).double().sum(),
    }


@pytest.mark.usefixtures("a_quarter")
@pytest.mark.parametrize("name", ["products", "convolutions", "places", "classes", "lstm", "cast"])
def test_all_of_a_step_in_float64_is_tried(name: str) -> None:
    found = told(_losses()[name])
    for phase in ("forward", "backward"):
        assert found[phase] > 0
        assert found[f"tried_{phase}"] == pytest.approx(found[phase])
        assert found[f"single_{phase}"] == pytest.approx(0.25 * found[phase])


def test_a_step_in_float32_has_nothing_to_try() -> None:
    layer = nn.Linear(4, 3)
    assert told(lambda: layer(torch.ones(5, 4)).sum()) is None


@pytest.mark.usefixtures("a_quarter")
def test_beside_a_device_what_the_host_computes_is_not_told() -> None:
    watcher = SinglePrecision(OperatorLines())
    weights = doubles(4)
    watcher.see(Ran(torch.ops.aten.add, (weights, weights), {}, weights, in_backward=False, seconds=0.001))
    watcher.see(Ran(torch.ops.aten.mm, (), {}, None, in_backward=False, seconds=None))
    assert "on a device" in watcher.why_not


def test_what_draws_random_numbers_is_not_tried() -> None:
    weights = doubles(40, 40).requires_grad_()
    found = told(lambda: functional.dropout(weights, 0.5).sum())
    assert 0 < found["tried_forward"] < found["forward"]


@pytest.mark.usefixtures("a_quarter")
def test_an_operator_that_is_not_torchs_own_is_not_run_again() -> None:
    """It may count, write a file, or meet other processes, which would wait for ever."""
    calls: list[torch.dtype] = []

    @torch.library.custom_op("tests_single_precision::noted", mutates_args=())
    def noted(x: torch.Tensor) -> torch.Tensor:
        calls.append(x.dtype)
        return x * 2

    noted.register_autograd(lambda _context, grad: 2 * grad)
    weights = doubles(40, 40).requires_grad_()
    noted(weights)  # the first call imports, which takes longer than may be tried at all
    calls.clear()
    found = told(lambda: noted(weights).sum())
    assert calls == [torch.float64]
    assert 0 < found["tried_forward"] < found["forward"]


@pytest.mark.usefixtures("a_quarter")
def test_beyond_the_budget_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_precision, "_BUDGET_S", 0.0)
    found = told(lambda: doubles(5, 4).requires_grad_().sum())
    assert found["forward"] > 0 and found["tried_forward"] == found["tried_backward"] == 0


@pytest.mark.usefixtures("a_quarter")
def test_tensors_beyond_the_memory_are_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tried_again, "_MOST_BYTES", 100)
    found = told(lambda: doubles(5, 4).requires_grad_().sum())
    assert found["tried_forward"] == 0


def test_the_first_line_is_named() -> None:
    found = told(lambda: doubles(5, 4).requires_grad_().sum())
    assert found["file"].endswith("test_single_precision.py")
    assert "told(lambda: doubles(5, 4)" in found["text"]


def test_a_decomposition_in_float64_may_need_its_digits() -> None:
    rows = doubles(6, 4).requires_grad_()
    solved = told(lambda: torch.linalg.cholesky(rows.T @ rows + torch.eye(4, dtype=torch.float64)).sum())
    assert solved["wants_digits"] == "linalg_cholesky_ex"
    assert told(lambda: doubles(5, 4).requires_grad_().sum())["wants_digits"] == ""
