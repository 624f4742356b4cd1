"""What of a step's operators does not grow with the rows of a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step.fixed_work import FixedWork
from perf_diagnostics.measure.one_step.watcher import Ran

ATEN = torch.ops.aten
TABLE = torch.nn.Parameter(torch.zeros(500, 8))
LARGE = torch.zeros(500, 8)
VIEW = Ran(ATEN.view, [LARGE], {}, LARGE.view(-1), False, 2e-6)


def ran(operator: Any, *args: Any, result: Any, backward: bool = True, seconds: float | None = 100e-6) -> Ran:
    return Ran(operator, args, {}, result, backward, seconds)


def fixed(*more: Ran) -> dict[str, float]:
    """In µs, beside that of a view of 2 µs in forward."""
    watcher = FixedWork([TABLE])
    for one in (VIEW, *more):
        watcher.see(one)
    assert not watcher.why_not
    return {str(name): 1e6 * value for name, value in watcher.told.items()}  # type: ignore[operator]


def test_adding_up_a_parameters_gradient_does_not_grow_with_the_rows() -> None:
    TABLE.grad = torch.zeros_like(TABLE)
    whole = fixed(ran(ATEN.add_, TABLE.grad, LARGE, result=TABLE.grad))
    assert whole == pytest.approx({"fixed_seconds_forward": 2.0, "fixed_seconds_backward": 100.0})
    # Another tensor of that shape, such as an activation: only its call is fixed, which takes as long as a view.
    other = torch.zeros_like(TABLE)
    assert fixed(ran(ATEN.add_, other, LARGE, result=other))["fixed_seconds_backward"] == pytest.approx(2.0)
    TABLE.grad = None


def test_a_tables_gradient_is_as_large_as_the_table_for_few_rows() -> None:
    rows, where = torch.zeros(100, 8), torch.zeros(100, dtype=torch.long)
    found = fixed(ran(ATEN.embedding_dense_backward, rows, where, 500, -1, False, result=LARGE))
    # 4,000 numbers of 4,900 are the table's.
    assert found["fixed_seconds_backward"] == pytest.approx(100 * 4000 / 4900)


def test_an_operator_on_few_numbers_is_all_call_and_a_product_only_its_call() -> None:
    few = torch.zeros(10)
    assert fixed(ran(ATEN.mul, few, few, result=few.clone()))["fixed_seconds_backward"] == pytest.approx(100.0)
    product = ran(ATEN.mm, LARGE, torch.zeros(8, 64), result=torch.zeros(500, 64), backward=False)
    assert fixed(product)["fixed_seconds_forward"] == pytest.approx(4.0)


def test_without_operators_on_the_cpu_nothing_is_told() -> None:
    watcher = FixedWork([TABLE])
    watcher.see(ran(ATEN.mm, LARGE, torch.zeros(8, 64), result=torch.zeros(500, 64), seconds=None))
    assert watcher.why_not
