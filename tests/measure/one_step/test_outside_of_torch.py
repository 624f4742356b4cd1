"""What Python, NumPy or SciPy work on inside of forward is timed, with the line that hands it over and what it is of.

The clock stands still but for what is worked on.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from perf_diagnostics.measure.one_step import dispatch_mode, outside_of_torch
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.outside_of_torch import OutsideOfTorch

Loss = Callable[[nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]


class Clock:
    def __init__(self) -> None:
        self.ns = 0

    def works(self, given: Any, ms: float) -> Any:
        """It takes so long to make the same of it."""
        self.ns += round(ms * 1e6)
        return given


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: clock.ns)
    monkeypatch.setattr(outside_of_torch, "_clock", lambda: clock.ns * 1e-9)
    return clock


def told(loss: Loss, *, teacher: nn.Module | None = None) -> tuple[list[Any], float]:
    """Of a step of a small model whose forward and loss these are."""
    model, x, y = nn.Linear(4, 4), torch.randn(8, 4), torch.randn(8, 4)
    watchers = watchers_of(model.parameters())
    for one in watchers:
        if isinstance(one, OutsideOfTorch) and teacher is not None:
            one.also_of_models(parameter.untyped_storage().data_ptr() for parameter in teacher.parameters())
    mode = OperatorMode(watchers)
    mode.open()
    try:
        made = loss(model, x, y)
        mode.enter_backward()
        made.backward()
    finally:
        mode.close()
        mode.step_ended()
    mode.in_backward = False
    facts, gaps = mode.conclude()
    assert outside_of_torch.SIGNAL not in gaps
    seconds = facts["outside_seconds_forward"]
    assert isinstance(seconds, float | int)
    return list(facts["outside_of_torch"]), float(seconds)  # type: ignore[arg-type]


def test_what_numpy_makes_of_the_data_is_told_at_the_line_that_hands_it_over(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        rows = [clock.works(row, 2) for row in y.numpy()]  # handed over here
        far = np.stack(rows)
        return (out * torch.from_numpy(far)).sum()

    (one,), seconds = told(loss)
    assert one["text"] == "rows = [clock.works(row, 2) for row in y.numpy()]  # handed over here"
    assert one["of"] == "data" and one["operators"] == 1
    assert one["seconds_forward"] == seconds == pytest.approx(0.016)


def test_what_is_made_of_the_models_results_is_told_apart(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        chosen = clock.works(out.detach().softmax(1).numpy(), 5)
        maps = clock.works(y.numpy(), 3)
        return (out * torch.from_numpy(chosen) * torch.from_numpy(maps)).sum()

    first, second = told(loss)[0]
    assert (first["of"], first["seconds_forward"]) == ("model", pytest.approx(0.005))
    # Whether it is of the batch is not known any more: it could be made of what was read before.
    assert (second["of"], second["seconds_forward"]) == ("model", pytest.approx(0.003))


def test_what_torch_made_of_the_data_is_data_and_a_number_of_the_models_changes_nothing(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        logged = out.mean().item()
        far = clock.works((y * 2).tolist(), 4)
        return (out * torch.tensor(far)).sum() + 0 * logged

    (one,), _ = told(loss)
    assert one["of"] == "data" and "tolist" in one["text"]


def test_numbers_of_the_models_that_python_works_on_one_by_one_are_the_models(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        for row in out:
            clock.works(row.max().item(), 1)
        return out.sum()

    (one,), seconds = told(loss)
    # The last one ends where the sum is asked for.
    assert one["of"] == "model" and one["operators"] == 8 and seconds == pytest.approx(0.008)


@pytest.mark.parametrize("as_array", [True, False])
def test_what_is_made_of_both_is_the_models(clock: Clock, as_array: bool) -> None:
    def numbers(tensor: torch.Tensor) -> Any:
        return tensor.numpy() if as_array else tensor.tolist()

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        clock.works([numbers(y), numbers(out.detach())], 3)
        return out.sum()

    (one,), seconds = told(loss)
    assert one["of"] == "model" and seconds == pytest.approx(0.003)


def test_a_teachers_answers_are_a_models(clock: Clock) -> None:
    teacher = nn.Linear(4, 4).requires_grad_(False)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        clock.works(teacher(x).numpy(), 3)
        return out.sum()

    assert [one["of"] for one in told(loss, teacher=teacher)[0]] == ["model"]
    assert [one["of"] for one in told(loss)[0]] == ["data"]


def test_what_python_makes_of_no_tensor_is_told_where_the_tensor_is_made(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        table = clock.works([1.0] * 4, 2)
        return (out * torch.tensor(table)).sum()

    (one,), _ = told(loss)
    assert one["of"] == "python" and "torch.tensor(table)" in one["text"]


def test_metrics_between_the_loss_and_backward_are_told(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        made = out.sum()
        clock.works(out.detach().numpy(), 3)
        return made

    (one,), _ = told(loss)
    assert one["of"] == "model" and one["seconds_forward"] == pytest.approx(0.003)


def test_calling_operators_and_what_no_tensor_leaves_for_is_not_told(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        clock.works(y.numpy(), 5)  # before the first operator: whose time it is, is not known
        out = model(x)
        clock.works(None, 5)  # Python alone
        out = out + 1
        out = out * clock.works(out.mean().item(), 0.15)
        return (out * torch.tensor(clock.works([1.0] * 4, 0.15))).sum()

    assert told(loss) == ([], 0.0)


def test_another_threads_reads_are_not_the_loops(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        loader = threading.Thread(target=y.numpy)
        loader.start()
        loader.join()
        clock.works(None, 5)
        return out.sum()

    assert told(loss) == ([], 0.0)


def test_looking_for_the_line_is_no_work_of_the_scripts(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    line = outside_of_torch.OperatorLines.line

    def slowly(self: Any) -> Any:
        return clock.works(line(self), 7)

    monkeypatch.setattr(outside_of_torch.OperatorLines, "line", slowly)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        far = clock.works(y.tolist(), 2)
        return (out * torch.tensor(far)).sum()

    (one,), _ = told(loss)
    assert one["seconds_forward"] == pytest.approx(0.002)


def test_what_backward_reads_is_not_forwards(clock: Clock) -> None:
    class Reads(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, *gradients: torch.Tensor) -> torch.Tensor:
            clock.works(gradients[0].numpy(), 5)
            return gradients[0] * 2

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return Reads.apply(model(x)).sum()  # type: ignore[no-any-return]

    assert told(loss) == ([], 0.0)
