"""CMP023 in traces: one-hot rows that are made and multiplied, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.one_hot_products import one_hot_products
from perf_diagnostics.diagnose.trace.rules.cmp023_products_with_zeros import OneHotMultiplied
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

SHARE = "one-hot rows and their products"
ROWS, CLASSES, WIDTH = 60, 90, 16
IDS = torch.randint(0, CLASSES, (ROWS,))

Uses = Callable[[torch.Tensor, nn.Linear], torch.Tensor]


def training(uses: Uses) -> Callable[[], None]:
    first, table, given = nn.Linear(8, WIDTH), nn.Linear(CLASSES, WIDTH, bias=False), torch.rand(ROWS, 8)

    def step() -> None:
        x = first(given)
        (x.square().mean() + uses(x, table).mean()).backward()

    return step


def sums(x: torch.Tensor, table: nn.Linear) -> torch.Tensor:
    with torch.no_grad():
        assigned = functional.one_hot(IDS, CLASSES).type_as(x)
        return assigned.t() @ x + assigned.sum(0)[:, None]


@pytest.mark.parametrize(
    ("uses", "summed", "size"),
    [
        (lambda x, table: table(functional.one_hot(IDS, CLASSES).float()) * x, False, (ROWS, CLASSES)),
        (lambda x, table: functional.one_hot(IDS, CLASSES).to(x.dtype) @ table.weight.t(), False, (ROWS, CLASSES)),
        (
            lambda x, table: table(functional.one_hot(IDS.view(6, 10), CLASSES).float().view(-1, CLASSES)),
            False,
            (6, 10, CLASSES),
        ),
        (sums, True, (ROWS, CLASSES)),
    ],
)
def test_one_hot_rows_that_are_multiplied_are_told(
    uses: Uses, summed: bool, size: tuple[int, ...], tmp_path: Path
) -> None:
    facts = recorded(training(uses), tmp_path)
    hot = one_hot_products(facts)
    assert hot is not None
    assert (hot.calls, hot.size, hot.summed) == (1, size, summed)
    finding = found(ask(OneHotMultiplied(info_step_share=1e-9), facts))
    assert ("index_add_" in finding.remedies[0].says) is summed
    assert ("nn.Embedding" in finding.remedies[0].says) is not summed


def test_the_gradient_of_the_table_counts(tmp_path: Path) -> None:
    """A layer makes several nodes, of which the product's is not the first."""
    facts = recorded(training(lambda x, table: table(functional.one_hot(IDS, CLASSES).float()) * x), tmp_path)
    hot, engine = one_hot_products(facts), facts.require_nodes().rows
    assert hot is not None
    products = engine.where(facts.trace.named(lambda name: name.endswith("MmBackward0"))[engine.name])
    assert (hot.nodes.containing(products.start_ns) >= 0).sum() == 3  # one a step


@pytest.mark.parametrize(
    "uses",
    [
        lambda x, table: x.new_zeros(()) + functional.one_hot(IDS, CLASSES).sum(),
        lambda x, table: (x @ table.weight).log_softmax(-1) * functional.one_hot(IDS, CLASSES),
        lambda x, table: table.weight.t()[IDS] * x,
    ],
)
def test_what_is_not_multiplied_as_a_matrix_is_not_told(uses: Uses, tmp_path: Path) -> None:
    facts = recorded(training(uses), tmp_path)
    assert one_hot_products(facts) is None
    clear(ask(OneHotMultiplied(), facts))


def test_other_rows_of_as_many_are_not_the_one_hot_ones(tmp_path: Path) -> None:
    """Labels that are kept as whole numbers, before a layer over the batch; and classes so few that it is no matter."""
    layer, given, labels = nn.Linear(70, 8), torch.rand(ROWS, 70), torch.randint(0, 40, (ROWS,))

    def kept() -> None:
        hot = functional.one_hot(labels, 40)
        out = layer(given)
        (out.mean() + (out.sum(1) * hot.argmax(1)).mean()).backward()

    assert one_hot_products(recorded(kept, tmp_path)) is None
    few, rows = nn.Linear(10, 8), torch.randint(0, 10, (ROWS,))
    assert (
        one_hot_products(recorded(lambda: few(functional.one_hot(rows, 10).float()).sum().backward(), tmp_path)) is None
    )


def test_without_sizes_nobody_knows(tmp_path: Path) -> None:
    facts = recorded(training(sums), tmp_path, shapes=False)
    assert missing(ask(OneHotMultiplied(), facts)).signal == "input_dims"


def one_hot_for(made: float, product: float) -> TraceBuilder:
    """Steps of 1 ms: rows that take so many µs to make, and so many to multiply."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator(
            "aten::one_hot", start, start + made / 2, **{"Input Dims": [[60], []], "Input type": ["long int", "Scalar"]}
        )
        cast = {"Input Dims": [[60, 90], []], "Input type": ["long int", "Scalar"]}
        builder.operator("aten::to", start + made / 2, start + made, **cast)
        factors = {"Input Dims": [[60, 90], [90, 16]], "Input type": ["float", "float"]}
        builder.operator("aten::matmul", start + made, start + made + product, **factors)
        builder.operator("autograd::engine::evaluate_function: MeanBackward0", start + 800, start + 801)
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("made", "product", "severity"), [(20, 20, None), (40, 30, Severity.INFO), (60, 80, Severity.WARNING)]
)
def test_making_and_multiplying_count(made: float, product: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = ask(OneHotMultiplied(), one_hot_for(made, product).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx((made + product) / 10, rel=0.01)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity
