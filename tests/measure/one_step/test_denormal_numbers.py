"""Denormal numbers among what a step computes with are told with what they take, and other small ones are not.

Not every processor takes longer for them (an AMD EPYC does not), so what calls take here is made up.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.measure.one_step import denormal_numbers, dispatch_mode
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.dataflow_storages import Storages
from perf_diagnostics.measure.one_step.denormal_numbers import (
    SIGNAL,
    STATES,
    UNTRIED,
    DenormalNumbers,
    denormal_part,
    denormal_states,
)
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.tried_again import Kind, TriedAgain
from perf_diagnostics.measure.one_step.watcher import Ran, memory
from tests.measure.one_step.looking import Loss, looked_at

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS = 64

#: What a call takes in s, and one that meets denormal numbers.
CALL_S, SLOW_S = 1e-5, 1e-3


def of(value: float, *shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Not by arithmetic, which may take denormal numbers for 0."""
    numbers = np.full(shape, value, dtype=np.float32 if dtype is torch.float32 else np.float64)
    return torch.from_numpy(numbers)


@pytest.fixture(autouse=True)
def slowed_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    def ran(*args: Any, **named: Any) -> Ran:
        one = Ran(*args, **named)
        places = {memory(tensor) for tensor in one.given()}
        computes = any(memory(tensor) not in places for tensor in one.made())
        met = any(denormal_part(tensor) > 0 for tensor in (*one.given(), *one.made()))
        return one._replace(seconds=SLOW_S if computes and met else CALL_S)

    def again_s(_again: TriedAgain, _kind: Kind) -> float:
        return CALL_S

    monkeypatch.setattr(dispatch_mode, "Ran", ran)
    monkeypatch.setattr(TriedAgain, "again_s", again_s)


def told(loss: Loss) -> list[dict[str, object]]:
    facts, gaps = looked_at([DenormalNumbers(OperatorLines())], loss)
    assert gaps == {}
    found = facts[SIGNAL]
    assert isinstance(found, list)
    return found  # type: ignore[return-value]


def loss_of(scale: float) -> Loss:
    weight = torch.ones(256, 256, requires_grad=True)
    rows = of(scale, ROWS, 256)

    def loss() -> torch.Tensor:
        return (rows @ weight).sum()

    return loss


def test_products_of_denormal_numbers_are_told_with_what_they_take_longer() -> None:
    found = told(loss_of(1e-40))
    lines = [one for one in found if "rows @ weight" in str(one["text"])]
    assert len(lines) == 1
    # As long as a hundred such products of other numbers is usual.
    assert lines[0]["part"] == 1 and float(str(lines[0]["forward"])) > 0.5
    assert sum(float(str(one["whole"])) for one in found) > 0.5


@pytest.mark.parametrize(("last", "slowed"), [(True, True), (False, False)])
def test_gradients_that_fade_through_a_recurrent_layer_are_told(last: bool, slowed: bool) -> None:
    """As torch makes it, over 400 steps of which the last output alone is read: 61 ms in place of 9."""
    torch.manual_seed(0)
    layer = torch.nn.LSTM(16, 64, batch_first=True)
    x = torch.randn(8, 400, 16)

    def loss() -> torch.Tensor:
        out = layer(x)[0]
        return (out[:, -1] if last else out).sum()

    whole = sum(float(str(one["whole"])) for one in told(loss))
    assert (whole > 0.3) is slowed and (slowed or whole < 0.1)


def test_small_numbers_and_zeros_are_none() -> None:
    assert told(loss_of(1e-30)) == [] and told(loss_of(0.0)) == []


def test_a_single_one_is_not_told() -> None:
    weight = torch.ones(256, 256, requires_grad=True)
    rows = torch.ones(ROWS, 256)
    rows[0, 0] = of(1e-40, 1)[0]

    def loss() -> torch.Tensor:
        return (rows @ weight).sum()

    assert told(loss) == []


@pytest.mark.parametrize(
    ("tensor", "part"),
    [
        (of(1e-40, 64, 64), 1.0),
        (of(1e-40, 64, 64).t(), 1.0),
        (of(1e-310, 64, 64, dtype=torch.float64), 1.0),
        (of(-1e-40, 64, 64), 1.0),
        (of(1e-37, 64, 64), 0.0),
        (of(1e-40, 8, 8), 0.0),  # too small to matter
        (of(1e-40, 64, 64)[:, :32], 0.0),  # not in one piece
        (of(1e-40, 1, 64).expand(64, 64), 0.0),
        (torch.ones(64, 64, dtype=torch.int32), 0.0),
    ],
)
def test_the_part_of_a_tensor_that_is_denormal(tensor: torch.Tensor, part: float) -> None:
    assert denormal_part(tensor) == part


def test_of_some_columns_the_part_is_nearly_right() -> None:
    tensor = torch.ones(512, 256)
    tensor[:, :64] = of(1e-40, 512, 64)
    assert denormal_part(tensor) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(("fused", "rooted"), [(False, 1), (True, 0)])
def test_what_an_optimizer_keeps_is_counted_and_operations_on_it_timed(
    monkeypatch: pytest.MonkeyPatch, fused: bool, rooted: int
) -> None:
    def once_ns(operation: object, numbers: torch.Tensor, _into: torch.Tensor) -> int:
        longer = 20 if operation is torch.sqrt else 5
        return numbers.numel() * (longer if denormal_part(numbers) else 1)

    monkeypatch.setattr(denormal_numbers, "_once", once_ns)
    faded, lives = (torch.nn.Parameter(torch.ones(128, 128)) for _ in range(2))
    optimizer = torch.optim.Adam([faded, lives], fused=fused)
    for one in (faded, lives):
        one.grad = torch.ones_like(one)
    optimizer.step()
    none = {"numbers": 0.0, "numbers_before": 0.0, "roots": 0.0, "roots_before": 0.0}
    states = denormal_states([optimizer])[STATES]
    assert states == {**none, "of": 4 * 128 * 128, "number_s": 0.0, "root_s": 0.0}
    optimizer.state[faded]["exp_avg"].copy_(of(1e-41, 128, 128))
    later = denormal_states([optimizer], states)[STATES]
    assert later == {**states, "numbers": 128 * 128, "number_s": pytest.approx(4e-9)}  # type: ignore[dict-item]
    optimizer.state[faded]["exp_avg_sq"].copy_(of(1e-41, 128, 128))
    last = denormal_states([optimizer], later)[STATES]
    assert isinstance(last, dict)
    assert (last["numbers_before"], last["numbers"]) == (128 * 128, 2 * 128 * 128)
    assert (last["roots_before"], last["roots"]) == (0.0, rooted * 128 * 128)
    assert last["root_s"] == pytest.approx(rooted * 19e-9)


def test_looking_at_numbers_is_no_reading_of_the_scripts() -> None:
    """What follows the data takes what leaves a tensor by no operator for read: nothing would be idle any more."""
    weight = torch.ones(64, 64, requires_grad=True)

    def loss() -> torch.Tensor:
        (weight * 3.0).exp()  # for nobody
        return (weight * 2.0).sum()

    facts, _ = looked_at([DenormalNumbers(OperatorLines()), StepDataflow(Storages([], []))], loss)
    assert [one["text"] for one in facts["never_used"]] == ["(weight * 3.0).exp()  # for nobody"]  # type: ignore[union-attr,index]


def test_calls_that_cannot_be_tried_again_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TriedAgain, "again_s", lambda _self, _kind: None)
    facts, _ = looked_at([DenormalNumbers(OperatorLines())], loss_of(1e-40))
    assert facts[SIGNAL] == [] and float(str(facts[UNTRIED])) > 0.5


def test_an_optimizer_that_keeps_nothing_tells_nothing() -> None:
    assert denormal_states([torch.optim.SGD([torch.nn.Parameter(torch.ones(64, 64))])]) == {}


@pytest.mark.parametrize(
    ("kind", "options", "rooted"),
    [
        (torch.optim.Adam, {}, 1),
        (torch.optim.Adam, {"amsgrad": True}, 1),
        (torch.optim.Adadelta, {}, 0),
        (torch.optim.RMSprop, {}, 1),
        (torch.optim.Adagrad, {}, 1),
    ],
)
def test_only_that_counts_as_rooted_of_which_a_root_is_taken(kind: Any, options: dict[str, bool], rooted: int) -> None:
    parameter = torch.nn.Parameter(torch.ones(128, 128))
    optimizer = kind([parameter], **options)
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    for kept in optimizer.state[parameter].values():
        if kept.numel() > 1:
            kept.copy_(of(1e-41, 128, 128))
    states = denormal_states([optimizer])[STATES]
    assert isinstance(states, dict) and states["roots"] == rooted * 128 * 128
