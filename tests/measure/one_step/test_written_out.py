"""Which rows of operators are told as a function of torch that is written out, and which only look like one."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.measure.one_step import written_out
from perf_diagnostics.measure.one_step.written_out import SIGNAL
from tests.measure.one_step.looking import Loss
from tests.measure.one_step.test_needless_operators import told, trained

ROWS, WIDTH = 128, 96
BATCH = (4, 32)

Function = Callable[[torch.Tensor], torch.Tensor]


def _loss(function: Function, *, keeps: bool = False) -> Loss:
    """Of what a layer gives, in a batch of sequences; it goes through the function, and through something else."""
    layer, x = nn.Linear(24, WIDTH), torch.randn(*BATCH, 24)

    def loss() -> torch.Tensor:
        made = layer(x) * 2 if keeps else layer(3 * x)
        return (function(made) ** 2).mean()

    return loss


def gelu_by_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))


def gelu_by_erf(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def swish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def swish_by_exp(x: torch.Tensor) -> torch.Tensor:
    return x / (1 + torch.exp(-x))


def mish(x: torch.Tensor) -> torch.Tensor:
    return x * torch.tanh(functional.softplus(x))


def softmax(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x - x.max(-1, keepdim=True).values)
    return e / e.sum(-1, keepdim=True)


def log_of_softmax(x: torch.Tensor) -> torch.Tensor:
    return torch.log(functional.softmax(x, dim=-1))


def minus_logsumexp(x: torch.Tensor) -> torch.Tensor:
    return x - torch.logsumexp(x, -1, keepdim=True)


def sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + torch.exp(-x))


def tanh(x: torch.Tensor) -> torch.Tensor:
    return (torch.exp(x) - torch.exp(-x)) / (torch.exp(x) + torch.exp(-x))


def softplus(x: torch.Tensor) -> torch.Tensor:
    return torch.log(1 + torch.exp(x))


def relu(x: torch.Tensor) -> torch.Tensor:
    return x * (x > 0)


def elu(x: torch.Tensor) -> torch.Tensor:
    return torch.where(x > 0, x, torch.exp(x) - 1)


WEIGHT, BIAS = trained(WIDTH), trained(WIDTH)


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return WEIGHT * centred / torch.sqrt(centred.pow(2).mean(-1, keepdim=True) + 1e-5) + BIAS


def layer_norm_by_std(x: torch.Tensor) -> torch.Tensor:
    """As The Annotated Transformer has it: torch's std divides by n - 1, which is a weight like any other."""
    return WEIGHT * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + BIAS


def standardised(x: torch.Tensor) -> torch.Tensor:
    var, mean = torch.var_mean(x, -1, keepdim=True, correction=0)
    return (x - mean) * torch.rsqrt(var + 1e-5)


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * WEIGHT


@pytest.mark.parametrize(
    ("function", "call", "operators"),
    [
        (gelu_by_tanh, 'F.gelu(x, approximate="tanh")', 8),
        (gelu_by_erf, "F.gelu(x)", 5),
        (swish, "F.silu(x)", 2),
        (swish_by_exp, "F.silu(x)", 4),
        (mish, "F.mish(x)", 3),
        (softmax, "F.softmax(x, -1)", 5),
        (log_of_softmax, "F.log_softmax(x, -1)", 2),
        (minus_logsumexp, "F.log_softmax(x, -1)", 2),
        (sigmoid, "torch.sigmoid(x)", 5),
        (tanh, "torch.tanh(x)", 9),
        (softplus, "F.softplus(x)", 3),
        (relu, "F.relu(x)", 2),
        (elu, "F.elu(x)", 4),
        (layer_norm, "F.layer_norm(x, x.shape[-1:], weight, bias)", 9),
        (layer_norm_by_std, "F.layer_norm(x, x.shape[-1:], weight, bias)", 7),
        (standardised, "F.layer_norm(x, x.shape[-1:], weight, bias)", 5),
        (rms_norm, "F.rms_norm(x, x.shape[-1:], weight)", 6),
    ],
)
def test_a_function_is_known_by_what_it_makes(function: Function, call: str, operators: int) -> None:
    (one,) = told(SIGNAL, _loss(function))
    assert one["call"] == call
    assert one["operators"] == pytest.approx(operators, abs=1)  # torch may write a constant or a copy more
    assert (one["calls"], one["shape"]) == (1, [*BATCH, WIDTH])
    assert one["file"].endswith("test_written_out.py") and one["function"] == function.__name__
    assert 0 < one["forward"] < 1 and 0 < one["backward"] < 1
    assert one["instead"] > 0


def quick_gelu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(1.702 * x)


def gated(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x.flip(-1))


def over_rows(x: torch.Tensor) -> torch.Tensor:
    e = torch.exp(x)
    return e / e.sum(-2, keepdim=True)


def normed_over_rows(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-5)


def with_another_constant(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.05 * torch.pow(x, 3.0))))


def residual(x: torch.Tensor) -> torch.Tensor:
    return x + functional.layer_norm(x, x.shape[-1:])


def called(x: torch.Tensor) -> torch.Tensor:
    return functional.silu(functional.layer_norm(functional.gelu(x), x.shape[-1:])).softmax(-1)


def constant(x: torch.Tensor) -> torch.Tensor:
    zeros = x * 0
    return zeros * torch.sigmoid(zeros)


@pytest.mark.parametrize(
    "function", [quick_gelu, gated, over_rows, normed_over_rows, with_another_constant, residual, called, constant]
)
def test_what_only_looks_like_one_is_left_out(function: Function) -> None:
    assert told(SIGNAL, _loss(function)) == []


def test_each_layer_of_one_line_counts_and_the_next_function_is_another() -> None:
    layers = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
    x = torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        made = x
        for layer in layers:
            made = layer_norm(gelu_by_tanh(layer(made)))
        return made.square().mean()

    found = {one["call"]: one["calls"] for one in told(SIGNAL, loss)}
    assert found == {'F.gelu(x, approximate="tanh")': 3, "F.layer_norm(x, x.shape[-1:], weight, bias)": 3}


def test_a_function_does_not_swallow_the_end_of_the_one_before() -> None:
    """The norm's bias is next to nothing, so that GELU makes the same of what comes before it."""
    layer, x, small = nn.Linear(24, WIDTH), torch.randn(ROWS, 24), torch.full((WIDTH,), 1e-7, requires_grad=True)

    def loss() -> torch.Tensor:
        return gelu_by_tanh(standardised(layer(x)) + small).square().mean()

    found = {one["call"]: one["operators"] for one in told(SIGNAL, loss)}
    assert found == {'F.gelu(x, approximate="tanh")': 8, "F.layer_norm(x, x.shape[-1:], weight, bias)": 6}


def test_a_view_with_other_rows_does_not_hide_what_goes_in() -> None:
    layer, x = nn.Linear(24, 3 * WIDTH), torch.randn(ROWS, 24)

    def loss() -> torch.Tensor:
        return layer_norm(gelu_by_tanh(layer(x).view(3 * ROWS, WIDTH))).square().mean()

    assert {one["call"] for one in told(SIGNAL, loss)} == {
        *('F.gelu(x, approximate="tanh")', "F.layer_norm(x, x.shape[-1:], weight, bias)")
    }


def test_what_something_else_makes_use_of_does_not_count() -> None:
    layer, x = nn.Linear(24, WIDTH), torch.randn(ROWS, 24)

    def loss() -> torch.Tensor:
        made = layer(x)
        gate = torch.sigmoid(made)
        return (made * gate).sum() + gate.square().sum()

    (one,) = told(SIGNAL, loss)
    assert one["call"] == "F.silu(x)" and one["operators"] == 1


def test_what_is_given_for_its_shape_only_is_not_made_use_of() -> None:
    layer, x = nn.Linear(24, WIDTH), torch.randn(ROWS, 24)

    def loss() -> torch.Tensor:
        likely = softmax(layer(x))
        wanted = torch.full_like(likely, 0.1)
        return -(wanted * torch.log(likely)).sum(1).mean()

    (one,) = told(SIGNAL, loss)
    assert one["call"] == "F.log_softmax(x, -1)" and one["operators"] == 6


def test_few_numbers_are_not_looked_at() -> None:
    layer, x = nn.Linear(24, WIDTH), torch.randn(8, 24)
    assert told(SIGNAL, lambda: gelu_by_tanh(layer(x)).sum()) == []


def test_a_norm_of_few_rows_is_not_told_for_its_weights_could_make_anything() -> None:
    layer, x = nn.Linear(24, 4096), torch.randn(3, 24)
    assert told(SIGNAL, lambda: layer_norm_of(layer(x)).sum()) == []


def layer_norm_of(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6)


def test_a_norm_over_groups_of_an_images_channels_has_a_call_of_its_own() -> None:
    layer, x = nn.Conv2d(3, 8, 3, padding=1), torch.randn(6, 3, 40, 40)

    def loss() -> torch.Tensor:
        groups = layer(x).reshape(6, 2, -1)
        middle = groups.mean(-1, keepdim=True)
        spread = ((groups - middle) ** 2).mean(-1, keepdim=True)
        groups = (groups - middle) / torch.sqrt(spread + 1e-5)
        return groups.reshape(6, 8, 40, 40).exp().mean()

    (one,) = told(SIGNAL, loss)
    assert (one["call"], one["shape"]) == ("F.group_norm(x, 2, weight, bias)", [6, 8, 40, 40])
    assert one["instead"] > 0
    assert one["operators"] == 8  # what goes in is centred twice, and both belong to it


@pytest.mark.parametrize("turned", [False, True])
def test_rows_are_the_first_ones_whatever_the_shape(turned: bool) -> None:
    layer, x = nn.Linear(24, WIDTH), torch.randn(ROWS, 24)

    def loss() -> torch.Tensor:
        made = layer(x)
        rows = made.view(8, 16, WIDTH).transpose(0, 1) + 1.0 if turned else made.view(ROWS, 1, WIDTH) + 1.0
        return standardised(rows).exp().sum()

    assert [one["call"] for one in told(SIGNAL, loss)] == ["F.layer_norm(x, x.shape[-1:], weight, bias)"]


def test_without_time_nothing_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(written_out, "_BUDGET_S", 0.0)
    assert told(SIGNAL, _loss(gelu_by_tanh)) == []


def test_a_forward_alone_is_tried_without_gradients() -> None:
    layer, x = nn.Linear(24, WIDTH), torch.randn(ROWS, 24)

    def loss() -> torch.Tensor:
        with torch.no_grad():
            target = gelu_by_tanh(layer(x))
        return (layer(x) - target).square().sum()

    (one,) = told(SIGNAL, loss)
    assert one["backward"] == 0 and one["instead"] > 0
