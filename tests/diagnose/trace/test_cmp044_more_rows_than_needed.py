"""CMP044 in traces: layers over rows that were copied before, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp044_more_rows_than_needed import MoreRowsThanNeeded
from perf_diagnostics.diagnose.trace.gathered_rows import gathered_rows
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp044_more_rows_than_needed import LayersOverCopies
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "layers over copies of rows"
NODES, EDGES, WIDTH = 30, 150, 16
INDEX = torch.randint(0, NODES, (EDGES,))

Message = Callable[[torch.Tensor, nn.Linear], torch.Tensor]


def training(message: Message) -> Callable[[], None]:
    first, layer, given = nn.Linear(8, WIDTH), nn.Linear(WIDTH, 12), torch.rand(NODES, 8)

    def step() -> None:
        message(first(given), layer).square().mean().backward()

    return step


@pytest.mark.parametrize(
    ("message", "rows", "copies"),
    [
        (lambda x, layer: layer(x.index_select(0, INDEX)), EDGES, "index_select"),
        (lambda x, layer: layer(x[INDEX]), EDGES, "index"),
        (lambda x, layer: layer(x.repeat(4, 1)), 4 * NODES, "repeat"),
        (lambda x, layer: layer(x.repeat_interleave(3, 0)), 3 * NODES, "repeat_interleave"),
        (lambda x, layer: layer(x[None].expand(5, NODES, WIDTH)), 5 * NODES, "expand"),
        (lambda x, layer: layer(x[None].expand(5, NODES, WIDTH).reshape(-1, WIDTH)), 5 * NODES, "expand"),
        (lambda x, layer: x[INDEX] @ layer.weight.t(), EDGES, "index"),
    ],
)
def test_a_layer_over_copies_is_told_with_its_backward(
    message: Message, rows: int, copies: str, tmp_path: Path
) -> None:
    facts = recorded(training(message), tmp_path)
    over = gathered_rows(facts)
    assert over is not None
    assert (over.rows, over.different, over.copies, over.calls) == (rows, NODES, copies, 1)
    assert over.needless == pytest.approx(1 - NODES / rows)
    # The gradients' products have their time in nodes.
    engine = facts.require_nodes().rows
    products = facts.trace.named(lambda name: name.endswith(("AddmmBackward0", "MmBackward0")))[engine.name]
    last = engine.where(products & (over.nodes.containing(engine.start_ns) >= 0))
    assert len(last) == 3  # one a step: of the other layer none
    assert (
        "layer(x)[index]" in found(ask(LayersOverCopies(MoreRowsThanNeeded(info_share=1e-9)), facts)).remedies[0].says
    )


Image = Callable[[torch.Tensor, nn.Conv2d], torch.Tensor]


def segmenting(head: Image, kernel: int = 1, channels: int = 4) -> Callable[[], None]:
    first, last = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, channels, kernel)
    given = torch.rand(2, 3, 8, 8)

    def step() -> None:
        head(first(given), last).square().mean().backward()

    return step


def enlarged(x: torch.Tensor, last: nn.Conv2d) -> torch.Tensor:
    made: torch.Tensor = last(functional.interpolate(x, scale_factor=4, mode="bilinear"))
    return made


def to_a_size(x: torch.Tensor, last: nn.Conv2d) -> torch.Tensor:
    made: torch.Tensor = last(functional.interpolate(x, size=(32, 32)))
    return made


@pytest.mark.parametrize(("head", "copies"), [(enlarged, "upsample_bilinear2d"), (to_a_size, "upsample_nearest2d")])
def test_a_convolution_of_single_places_behind_an_interpolation_is_told_with_it(
    head: Image, copies: str, tmp_path: Path
) -> None:
    facts = recorded(segmenting(head), tmp_path)
    over = gathered_rows(facts)
    assert over is not None
    assert (over.rows, over.different, over.copies, over.calls) == (2 * 32 * 32, 2 * 8 * 8, copies, 1)
    assert over.needless == pytest.approx(15 / 16 * (1 - 4 / 16))  # to a fourth of the channels
    engine = facts.require_nodes().rows
    both = facts.trace.named(lambda name: "Upsample" in name)[engine.name]
    assert (over.nodes.containing(engine.start_ns[both]) >= 0).all()
    finding = found(ask(LayersOverCopies(MoreRowsThanNeeded(info_share=1e-9)), facts))
    assert "interpolate(conv1x1(x))" in finding.remedies[0].says


@pytest.mark.parametrize(
    "training",
    [
        segmenting(enlarged, kernel=3),  # which sees the neighbours
        segmenting(enlarged, channels=32),  # then more would be interpolated
        segmenting(lambda x, last: functional.interpolate(last(x), scale_factor=4)),
        segmenting(lambda x, last: last(functional.interpolate(x, scale_factor=4).relu())),
    ],
)
def test_other_convolutions_are_not_told(training: Callable[[], None], tmp_path: Path) -> None:
    assert gathered_rows(recorded(training, tmp_path)) is None


@pytest.mark.parametrize(
    "message",
    [
        lambda x, layer: layer(x)[INDEX],
        lambda x, layer: layer(x[INDEX[: 2 * NODES - 1]]),  # less than twice as many
        lambda x, layer: layer(functional.dropout(x[INDEX], 0.5)),
        lambda x, layer: layer(torch.cat([x[INDEX][:, :8], x[INDEX.flip(0)][:, 8:]], 1)),
        lambda x, layer: layer(x).repeat(4, 1),
    ],
)
def test_layers_over_other_rows_are_not_told(message: Message, tmp_path: Path) -> None:
    facts = recorded(training(message), tmp_path)
    assert gathered_rows(facts) is None
    clear(ask(LayersOverCopies(), facts))


POSITIONS = nn.Parameter(torch.rand(1, 6, WIDTH))
BATCHES = torch.rand(5, 6, WIDTH)


@pytest.mark.parametrize(
    "message",
    [
        # Expanded positions, beside a layer over the batch.
        lambda x, layer: (POSITIONS.expand(5, -1, -1), layer(BATCHES))[1] + layer(POSITIONS) + x.mean(),
        # A second factor of each sample's own: the expanded one is what all of them are multiplied with.
        lambda x, layer: torch.rand(1, 6, 6).expand(5, 6, 6) @ BATCHES[..., :6] * layer(x).mean(),
        lambda x, layer: POSITIONS.expand(5, -1, -1) @ BATCHES.mT * layer(x).mean(),
    ],
)
def test_what_is_copied_for_something_else_is_not_told(message: Message, tmp_path: Path) -> None:
    assert gathered_rows(recorded(training(message), tmp_path)) is None


def test_where_a_layer_makes_wider_rows_less_goes(tmp_path: Path) -> None:
    wide, given = nn.Linear(WIDTH, 4 * WIDTH), torch.rand(NODES, WIDTH, requires_grad=True)
    over = gathered_rows(recorded(lambda: wide(given[INDEX]).sum().backward(), tmp_path))
    assert over is not None and over.needless == pytest.approx((1 - NODES / EDGES) / 4)


def test_without_sizes_nobody_knows(tmp_path: Path) -> None:
    step = training(lambda x, layer: layer(x[INDEX]))
    assert missing(ask(LayersOverCopies(), recorded(step, tmp_path, shapes=False))).signal == "input_dims"


def over_copies(takes: float, node: float) -> TraceBuilder:
    """Steps of 1 ms: a layer of so many µs over ten times the rows, and so many of its nodes."""
    about = {"Input type": ["float", "float"]}

    def fill(builder: TraceBuilder, start: float) -> None:
        place = int(start) // 100
        gather = about | {"Input Dims": [[50, 8], []], "Sequence number": place}
        builder.operator("aten::index", start, start + 5, **gather)
        builder.operator(
            "aten::linear",
            start + 5,
            start + 5 + takes,
            **about,
            **{"Input Dims": [[500, 8], [4, 8]], "Sequence number": place + 1},
        )
        builder.operator("aten::zeros_like", start + 300, start + 301)
        builder.operator("aten::mean", start + 301, start + 302, **{"Sequence number": place + 3})
        builder.operator(f"{ENGINE}MeanBackward0", start + 400, start + 401, **{"Sequence number": place + 3})
        builder.operator(f"{ENGINE}AddmmBackward0", start + 401, start + 401 + node, **{"Sequence number": place + 2})
        builder.operator(f"{ENGINE}IndexBackward0", start + 700, start + 790, **{"Sequence number": place})
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("takes", "node", "severity"), [(20, 30, None), (30, 40, Severity.INFO), (50, 100, Severity.WARNING)]
)
def test_the_rows_that_are_copies_count(takes: float, node: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = ask(LayersOverCopies(), over_copies(takes, node).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx(0.9 * (takes + node) / 10, rel=0.01)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity
