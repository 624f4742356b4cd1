"""CMP053 in traces: inverses that are multiplied, as torch's own profiler shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp053_inverse_for_products import InverseForProducts
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.rules.cmp053_inverse_for_products import InversesMultiplied
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import recorded

CALLS, SHARE = "inverses a step", "inverting beyond solving"
SIZE = 24

Use = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def training(use: Use) -> Callable[[], None]:
    layer, given, column = nn.Linear(4, SIZE * SIZE), torch.rand(3, 4), torch.rand(3, SIZE, 1)

    def step() -> None:
        matrix = layer(given).view(3, SIZE, SIZE) + 9 * torch.eye(SIZE)
        use(matrix, column).square().mean().backward()

    return step


@pytest.mark.parametrize("shapes", [True, False])
@pytest.mark.parametrize(
    "use",
    [
        lambda a, b: torch.inverse(a) @ b,
        lambda a, b: torch.linalg.inv(a).matmul(b) * 2,
        lambda a, b: b.mT @ torch.linalg.inv(a) @ b,
        lambda a, b: torch.bmm(a.inverse(), b),
    ],
)
def test_inverses_that_are_multiplied_are_told(use: Use, shapes: bool, tmp_path: Path) -> None:
    facts = recorded(training(use), tmp_path, shapes=shapes)
    finding = found(ask(InversesMultiplied(InverseForProducts(info_share=1e-9)), facts))
    assert number(finding, CALLS).value == 1 and "torch.linalg.solve" in finding.remedies[0].says


@pytest.mark.parametrize(
    "use",
    [
        torch.linalg.solve,
        lambda a, b: torch.linalg.inv(a).diagonal(dim1=1, dim2=2).log(),
        lambda a, b: a @ b,
    ],
)
def test_what_is_solved_or_read_otherwise_is_not_told(use: Use, tmp_path: Path) -> None:
    clear(ask(InversesMultiplied(InverseForProducts(info_share=1e-9)), recorded(training(use), tmp_path)))


def inverted(takes: float, node: float) -> TraceBuilder:
    """Steps of 1 ms with an inverse and its node for so many µs, and a product."""

    def fill(builder: TraceBuilder, start: float) -> None:
        place = int(start) // 100
        builder.operator("aten::linalg_inv", start, start + takes, **{"Sequence number": place})
        builder.operator("aten::matmul", start + takes, start + takes + 5, **{"Sequence number": place + 1})
        builder.operator(f"{ENGINE}MmBackward0", start + 500, start + 510, **{"Sequence number": place + 1})
        builder.operator(f"{ENGINE}LinalgInvExBackward0", start + 510, start + 510 + node, **{"Sequence number": place})
        builder.operator("aten::mm", start + 900, start + 990)

    return repeated(1000, 5, fill, deviceProperties=[])


@pytest.mark.parametrize(
    ("takes", "node", "severity"), [(30, 30, None), (50, 50, Severity.INFO), (100, 100, Severity.WARNING)]
)
def test_two_thirds_of_inverse_and_node_count(
    takes: float, node: float, severity: Severity | None, tmp_path: Path
) -> None:
    answer = ask(InversesMultiplied(), inverted(takes, node).facts(tmp_path))
    assert number(answer, SHARE).value == pytest.approx((takes + node) * 2 / 3 / 10, rel=0.01)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity
