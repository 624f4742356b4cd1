"""CMP039 in traces: functions that are written out, by the names and sizes that torch's own profiler shows."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp039_written_out import WrittenOut
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp039_written_out import FunctionsWrittenOut
from perf_diagnostics.diagnose.trace.written_out import written_out
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "functions written out, beyond calling them"
WIDTH = 64
WEIGHT, BIAS = torch.ones(WIDTH, requires_grad=True), torch.zeros(WIDTH, requires_grad=True)

Function = Callable[[torch.Tensor], torch.Tensor]


def training(function: Function, rows: int = 256) -> Callable[[], None]:
    first, last = nn.Linear(32, WIDTH), nn.Linear(WIDTH, 8)
    given = torch.rand(rows, 32)

    def step() -> None:
        last(function(first(given))).square().mean().backward()

    return step


def layer_norm(x: torch.Tensor) -> torch.Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = (x - mean).pow(2).mean(-1, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5) * WEIGHT + BIAS


def layer_norm_of_var(x: torch.Tensor) -> torch.Tensor:
    mean, variance = x.mean(dim=1, keepdim=True), x.var(dim=1, keepdim=True, unbiased=False)
    return (x - mean) * torch.rsqrt(variance + 1e-5) * WEIGHT + BIAS


def layer_norm_of_std(x: torch.Tensor) -> torch.Tensor:
    mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)
    return WEIGHT * (x - mean) / (deviation + 1e-6) + BIAS


def standardised(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(dim=-1, keepdim=True)) / (x.std(dim=-1, keepdim=True) + 1e-6)


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * WEIGHT


def gelu_by_tanh(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def gelu(x: torch.Tensor) -> torch.Tensor:
    return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))


def softmax(x: torch.Tensor) -> torch.Tensor:
    each = torch.exp(x - x.max(dim=-1, keepdim=True).values)
    return each / each.sum(dim=-1, keepdim=True)


def log_softmax(x: torch.Tensor) -> torch.Tensor:
    return x - x.exp().sum(1, keepdim=True).log()


WRITTEN: dict[Function, str] = {
    layer_norm: "F.layer_norm",
    layer_norm_of_var: "F.layer_norm",
    layer_norm_of_std: "F.layer_norm",
    standardised: "F.layer_norm",
    rms_norm: "F.rms_norm",
    gelu_by_tanh: 'F.gelu(x, approximate="tanh")',
    gelu: "F.gelu",
    softmax: "softmax",
    log_softmax: "log_softmax",
}


@pytest.mark.parametrize("function", [*WRITTEN], ids=lambda one: one.__name__)
def test_functions_that_are_written_out_are_told(function: Function, tmp_path: Path) -> None:
    facts = recorded(training(function), tmp_path)
    (one,) = written_out(facts)
    assert one.function.call == WRITTEN[function]
    assert (one.calls, one.size) == (1, (256, WIDTH)) and one.nodes.total_ns > 0
    finding = found(ask(FunctionsWrittenOut(WrittenOut(info_share=1e-9)), facts))
    says = finding.remedies[0].says
    assert f"call {WRITTEN[function]} instead" in says
    assert ("divides by one less" in says) is (function in (layer_norm_of_std, standardised))


def test_what_needs_no_gradient_has_no_nodes_whatever_follows(tmp_path: Path) -> None:
    """An operator that makes no node has the number of the next one, which may be a costly layer's."""
    layer, given = nn.Linear(WIDTH, 512), torch.rand(256, WIDTH)
    mean_and_scale = WEIGHT.detach(), BIAS.detach()

    def step() -> None:
        mean = given.mean(-1, keepdim=True)
        variance = (given - mean).pow(2).mean(-1, keepdim=True)
        normed = (given - mean) / torch.sqrt(variance + 1e-5) * mean_and_scale[0] + mean_and_scale[1]
        layer(normed).square().mean().backward()

    (one,) = written_out(recorded(step, tmp_path))
    assert one.function.call == "F.layer_norm" and one.nodes.total_ns == 0


def gated(x: torch.Tensor) -> torch.Tensor:
    return x * x.sigmoid() + x.tanh()


def centred(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / x[:, :1]


def by_the_spread_of_columns(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(0, keepdim=True) + 1e-6)


def of_columns(x: torch.Tensor) -> torch.Tensor:
    """A norm over the batch is another one."""
    mean = x.mean(0, keepdim=True)
    variance = (x - mean).pow(2).mean(0, keepdim=True)
    return (x - mean) / torch.sqrt(variance + 1e-5)


def contrastive(x: torch.Tensor) -> torch.Tensor:
    each = x.exp()
    return (each[:, 0] / each.sum(1))[:, None] * x


def unbiased(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 1e-5).sqrt()


def density(x: torch.Tensor) -> torch.Tensor:
    return (x.exp().sum(-1) / 64)[:, None] * x


@pytest.mark.parametrize(
    "function",
    [
        unbiased,
        density,
        gated,
        of_columns,
        centred,
        by_the_spread_of_columns,
        contrastive,
        lambda x: functional.layer_norm(x, (WIDTH,), WEIGHT, BIAS),
        lambda x: functional.gelu(x, approximate="tanh").softmax(-1),
        lambda x: x.square().mean(-1, keepdim=True) * x,
        functional.normalize,
    ],
)
def test_other_functions_and_torchs_own_are_not_told(function: Function, tmp_path: Path) -> None:
    facts = recorded(training(function), tmp_path)
    assert written_out(facts) == ()
    clear(ask(FunctionsWrittenOut(), facts))


def test_on_few_numbers_it_makes_no_difference(tmp_path: Path) -> None:
    assert written_out(recorded(training(layer_norm, rows=127), tmp_path)) == ()
    assert written_out(recorded(training(layer_norm, rows=128), tmp_path)) != ()


def test_one_after_the_other_each_is_told(tmp_path: Path) -> None:
    facts = recorded(training(lambda x: gelu(rms_norm(x)) + softmax(rms_norm(x))), tmp_path)
    assert {one.function.call: one.calls for one in written_out(facts)} == {"F.gelu": 1, "softmax": 1, "F.rms_norm": 2}


def test_without_sizes_nobody_knows(tmp_path: Path) -> None:
    facts = recorded(training(gelu), tmp_path, shapes=False)
    assert missing(ask(FunctionsWrittenOut(), facts)).signal == "input_dims"


def gelu_for(takes: float, node: float) -> TraceBuilder:
    """Steps of 1 ms: five operators of GELU for so many µs together, and as many nodes."""
    sizes = {"Input Dims": [[128, 64], []], "Input type": ["float", "Scalar"]}

    def fill(builder: TraceBuilder, start: float) -> None:
        place = int(start) // 100
        for n, name in enumerate(("mul", "div", "erf", "add", "mul")):
            begin = start + n * takes / 5
            builder.operator(f"aten::{name}", begin, begin + takes / 5, **sizes, **{"Sequence number": place + n})
        for n, name in enumerate(("Mul", "Add", "Erf", "Div", "Mul")):
            begin = start + 500 + n * node / 5
            builder.operator(f"{ENGINE}{name}Backward0", begin, begin + node / 5, **{"Sequence number": place + 4 - n})
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("takes", "node", "severity"), [(10, 20, None), (20, 40, Severity.INFO), (40, 90, Severity.WARNING)]
)
def test_what_the_one_operator_takes_stays(
    takes: float, node: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(FunctionsWrittenOut(), gelu_for(takes, node).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx((takes + node) * 0.87 / 10, rel=0.01)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity
