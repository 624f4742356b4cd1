"""What made an operand is told once, and only as far as nobody else reads it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import dispatch_mode
from perf_diagnostics.measure.one_step.making import Making
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran
from perf_diagnostics.measure.one_step.zero_products import SIGNAL, ZeroProducts
from tests.measure.one_step.looking import Loss, looked_at

ROWS, WIDE = 64, 128


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = itertools.count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


def told(loss: Loss) -> list[dict[str, Any]]:
    facts, gaps = looked_at([ZeroProducts((), OperatorLines())], loss)
    assert gaps == {}
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found  # type: ignore[return-value]


def few(x: torch.Tensor) -> torch.Tensor:
    """All but the first number of each row become zeros: one operator."""
    return torch.where(torch.arange(WIDE) < 1, x, torch.zeros(()))


@pytest.fixture
def weight() -> torch.Tensor:
    return torch.ones(WIDE, 4, requires_grad=True)


def test_paths_that_meet_again_count_once(weight: torch.Tensor) -> None:
    x = torch.rand(ROWS, WIDE)

    def apart() -> torch.Tensor:
        return (few(x.exp() + x.exp().relu()) @ weight).sum()

    (one,) = told(apart)
    # Two exponentials, a ReLU, their sum, and what picks of it.
    assert one["seconds_making"] == pytest.approx(5)

    def twice() -> torch.Tensor:
        made = x.exp()
        return (few(made * made.neg()) @ weight).sum()

    (one,) = told(twice)
    assert one["seconds_making"] == pytest.approx(4)


def test_what_several_products_share_counts_once(weight: torch.Tensor) -> None:
    x = torch.rand(ROWS, WIDE)

    def shared() -> torch.Tensor:
        made = few(x.exp())
        return (made.mul(2) @ weight).sum() + (made.mul(3) @ weight).sum()

    (one,) = told(shared)  # of one line
    assert one["calls"] == 2 and one["seconds_forward"] == pytest.approx(2)
    assert one["seconds_making"] == pytest.approx(4)


def test_what_others_read_as_well_is_needed_anyway(weight: torch.Tensor) -> None:
    x = torch.rand(ROWS, WIDE)

    def needed() -> torch.Tensor:
        normed = x.exp().log1p()
        return (few(normed) @ weight).sum() + normed.sum()

    (one,) = told(needed)
    assert one["seconds_making"] == pytest.approx(1)  # what picks


def test_a_products_result_has_a_history_of_its_own(weight: torch.Tensor) -> None:
    x, before = torch.rand(ROWS, 8), torch.rand(8, WIDE)

    def after_a_product() -> torch.Tensor:
        return (few((x @ before).relu()) @ weight).sum()

    (one,) = told(after_a_product)
    assert one["seconds_making"] == pytest.approx(2)


def test_memory_that_somebody_unseen_may_have_written_has_no_history() -> None:
    making = Making()
    tensor = torch.zeros(ROWS, WIDE)
    number = making.see(Ran(torch.ops.aten.zeros, ([ROWS, WIDE],), {}, tensor, False, 1.0), product=False)
    assert making.maker_of(tensor.t()) == number == 0
    making.forget_memory()
    assert making.maker_of(tensor) is None


def test_sums_of_the_operand_itself_come_of_what_it_has(weight: torch.Tensor) -> None:
    """Counts of classes, or degrees: whoever keeps the places of the numbers has them as well."""
    x = torch.rand(ROWS, WIDE)

    def counted() -> torch.Tensor:
        made = few(x.exp())
        return (made @ weight).sum() + made.sum(0).square().sum()

    (one,) = told(counted)
    assert one["seconds_making"] == pytest.approx(2)
