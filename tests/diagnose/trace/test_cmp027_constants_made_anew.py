"""CMP027 in traces: grids, masks and tables that are computed of numbers alone, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp027_constants_made_anew import ConstantsMadeAnew
from perf_diagnostics.diagnose.trace.constants_anew import constants_anew
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp027_constants_made_anew import MadeOfNumbers
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

BATCH, LENGTH, WIDTH = 3, 50, 16
MAKING, AGAIN = "making constants", "looking up rows by them again, and back"


class Model(nn.Module):
    """Three layers, each of which adds what a function makes; with a table of relative positions for all of them."""

    def __init__(self, adds: Callable[[Model], torch.Tensor]) -> None:
        super().__init__()
        self.adds = adds
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.table = nn.Embedding(2 * LENGTH, WIDTH)
        self.tables = nn.ModuleList(nn.Embedding(2 * LENGTH, WIDTH) for _ in range(3))
        self.called = 0
        self.register_buffer("mask", torch.ones(LENGTH, LENGTH).tril() == 0)
        self.ids = torch.randint(0, LENGTH, (BATCH, LENGTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x) + self.adds(self)
        return x


def relative() -> torch.Tensor:
    at = torch.arange(LENGTH)
    return (at[None, :] - at[:, None]).clamp(-20, 20) + LENGTH


def sines(_: Model) -> torch.Tensor:
    table = torch.zeros(LENGTH, WIDTH)
    angle = torch.arange(LENGTH).unsqueeze(1) / 10_000 ** (torch.arange(0, WIDTH, 2) / WIDTH)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table


def masked(model: Model) -> torch.Tensor:
    mask = torch.tril(torch.ones(LENGTH, LENGTH)) == 0
    return torch.zeros(LENGTH, LENGTH).masked_fill(mask, -1e9).exp()[:, :WIDTH]


def looked_up(model: Model) -> torch.Tensor:
    return model.table(relative()).mean(0)


def in_own_tables(model: Model) -> torch.Tensor:
    model.called += 1
    return model.tables[model.called % 3](relative()).mean(0)


def training(adds: Callable[[Model], torch.Tensor]) -> Callable[[], None]:
    model = Model(adds)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.rand(BATCH, LENGTH, WIDTH)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


@pytest.mark.parametrize(
    ("adds", "least", "first"), [(sines, 8, "zeros"), (masked, 5, "ones"), (looked_up, 4, "arange")]
)
def test_what_each_layer_makes_of_numbers_is_told(
    adds: Callable[[Model], torch.Tensor], least: int, first: str, tmp_path: Path
) -> None:
    made = constants_anew(recorded(training(adds), tmp_path))
    assert made is not None
    assert (made.calls, made.first) == (3, first) and made.operators >= 3 * least


@pytest.mark.parametrize(("adds", "look_ups"), [(looked_up, 3), (in_own_tables, 1)])
def test_rows_of_one_table_that_each_layer_looks_up_again_are_told(
    adds: Callable[[Model], torch.Tensor], look_ups: int, tmp_path: Path
) -> None:
    facts = recorded(training(adds), tmp_path)
    made = constants_anew(facts)
    assert made is not None and made.look_ups == look_ups
    assert (made.looked_up.total_ns > 0) is (look_ups > 1)
    finding = found(ask(MadeOfNumbers(ConstantsMadeAnew(info_share=1e-6)), facts))
    assert any(one.metric == AGAIN for one in finding.evidence) is (look_ups > 1)
    assert "hand the result to each of them" in finding.remedies[0].says


def kept(model: Model) -> torch.Tensor:
    return torch.zeros(LENGTH, WIDTH).masked_fill(model.mask[:, :WIDTH], 1.0)


def of_the_batch(model: Model) -> torch.Tensor:
    """A mask of what the batch holds is its own."""
    padding = torch.arange(LENGTH)[None, :] < model.ids.amax(1)[:, None]
    return (padding.float() * 2 - 1).mean(0)[:, None].expand(LENGTH, WIDTH)


def of_a_layer(model: Model) -> torch.Tensor:
    """From the first node of autograd's on it is no constant."""
    return (torch.arange(LENGTH)[:, None] * model.layers[0].bias).sin().cos().abs()


def around_a_centre(model: Model) -> torch.Tensor:
    """A tensor of a single number is the batch's."""
    centre = model.ids[0].float().mean()
    return (torch.arange(LENGTH) - centre).square().neg().exp()[:, None]


def of_a_batch_of_that_size(model: Model) -> torch.Tensor:
    """As many rows as the grid has numbers may be the batch's own."""
    times = model.ids[0, :BATCH].float()
    return (torch.arange(BATCH).float() * times).sin().cos()[:, None, None]


def indices(model: Model) -> torch.Tensor:
    return model.mask[torch.arange(LENGTH)][:, :WIDTH].float()


@pytest.mark.parametrize(
    "adds", [kept, of_the_batch, of_a_layer, around_a_centre, of_a_batch_of_that_size, indices, lambda model: 0.0]
)
def test_what_is_no_constant_or_no_work_is_not_told(adds: Callable[[Model], torch.Tensor], tmp_path: Path) -> None:
    facts = recorded(training(adds), tmp_path)
    assert constants_anew(facts) is None
    clear(ask(MadeOfNumbers(), facts))


def test_of_several_runs_alike_without_a_table_nothing_is_sure(tmp_path: Path) -> None:
    """Python's numbers in them, which a trace does not tell, may differ from layer to layer."""
    finding = found(ask(MadeOfNumbers(ConstantsMadeAnew(1e-6, 2e-6)), recorded(training(sines), tmp_path)))
    assert finding.severity is Severity.INFO and "if these are the same each time" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.low == 0


def test_what_follows_other_numbers_in_each_step_is_not_told(tmp_path: Path) -> None:
    lengths = iter(range(3, 40))

    def grows(_: Model) -> torch.Tensor:
        return torch.arange(next(lengths)).mul(2).sin().square().mean()

    assert constants_anew(recorded(training(grows), tmp_path)) is None


def test_without_sizes_nobody_knows(tmp_path: Path) -> None:
    assert missing(ask(MadeOfNumbers(), recorded(training(sines), tmp_path, shapes=False))).signal == "input_dims"


def made_in(making: float, look_up: float = 0.0) -> TraceBuilder:
    """Steps of 1 ms with two runs of three operators that take so many µs together, each with a look-up behind it."""

    def fill(builder: TraceBuilder, start: float) -> None:
        grid = {"Input Dims": [[], []], "Input type": ["Scalar", ""], "Concrete Inputs": ["40", ""]}
        each = {"Input Dims": [[40], []], "Input type": ["float", "Scalar"]}
        table = {"Input Dims": [[9, 4], [40]], "Input type": ["float", "long int"]}
        place = int(start) // 100
        for n in range(2):
            at, own = start + n * 300, {"Sequence number": place + n}
            for part, (name, about) in enumerate((("arange", grid), ("mul", each | own), ("sin", each | own))):
                begin = at + part * making / 6
                builder.operator(f"aten::{name}", begin, begin + making / 6, **about)
            behind = at + making / 2 + 1
            builder.operator("aten::embedding", behind, behind + max(look_up, 1), **table, **own)
        builder.operator("aten::mm", start + 700, start + 750, **{"Sequence number": place + 3})
        for n in range(2):
            at = start + 760 + n * 60
            builder.operator(
                f"{ENGINE}EmbeddingBackward0", at, at + max(look_up, 1), **{"Sequence number": place + 1 - n}
            )
            if n:
                builder.operator("aten::add_", at, at + look_up / 2)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("making", "look_up", "severity"),
    [(36, 1, None), (60, 1, Severity.INFO), (120, 1, Severity.WARNING), (36, 40, Severity.WARNING)],
)
def test_all_runs_count_and_of_look_ups_all_but_one(
    making: float, look_up: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(MadeOfNumbers(), made_in(making, look_up).facts(tmp_path))
    assert number(answer, MAKING).value == pytest.approx(making / 10, rel=0.01)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity
    assert number(finding, AGAIN).value == pytest.approx(2 * look_up / 10, rel=0.01)
    assert finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx((making + 2 * look_up) / 1000, rel=0.01)
