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
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.dataflow_storages import Storages
from perf_diagnostics.measure.one_step.dispatch_mode import OperatorMode
from perf_diagnostics.measure.one_step.every_watcher import watchers_of
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.outside_of_torch import OutsideOfTorch
from perf_diagnostics.measure.one_step.watcher import Ran, memory

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
    return clock


def told(loss: Loss, *, teacher: nn.Module | None = None, model: nn.Module | None = None) -> tuple[list[Any], float]:
    """Of a step of a small model whose forward and loss these are."""
    model, x, y = model or nn.Linear(4, 4), torch.randn(8, 4), torch.randn(8, 4)
    watchers = watchers_of(model.parameters())
    (watcher,) = (one for one in watchers if isinstance(one, OutsideOfTorch))
    kept = [*model.buffers(), *([] if teacher is None else teacher.parameters())]
    watcher.also_kept(one.untyped_storage().data_ptr() for one in kept)
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
    assert "numpy" not in vars(torch.Tensor)  # nothing of ours is left in torch
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
    assert (second["of"], second["seconds_forward"]) == ("unclear", pytest.approx(0.003))


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


def test_what_python_did_before_it_read_is_not_made_of_that(clock: Clock) -> None:
    reads: dict[str, Callable[[torch.Tensor], Any]] = {
        "numpy": torch.Tensor.numpy,
        "asarray": np.asarray,
        "tolist": torch.Tensor.tolist,
        "number": lambda tensor: tensor[0, 0].tolist(),
    }
    for name, read in reads.items():

        def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor, read: Any = read) -> torch.Tensor:
            out = model(x)
            clock.works(None, 30)
            read(y)
            return out.sum()

        assert told(loss) == ([], 0.0), name


def test_a_detach_of_the_scripts_own_ends_what_was_worked_on(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        maps = clock.works(y.numpy(), 30)
        near = out.detach()
        clock.works(None, 20)
        return (torch.from_numpy(maps) * out * near).sum()

    first, second = told(loss)[0]
    assert (first["of"], first["seconds_forward"]) == ("data", pytest.approx(0.03))
    # A tensor is made of an array that Python had.
    assert (second["of"], second["seconds_forward"]) == ("python", pytest.approx(0.02))


def test_what_forward_begins_with_counts(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        words = torch.tensor(clock.works([[1.0] * 4] * 8, 6))  # a tokenizer's
        return model(words).sum()  # type: ignore[no-any-return]

    (one,), _ = told(loss)
    assert one["of"] == "python" and one["seconds_forward"] == pytest.approx(0.006)


def test_a_number_that_is_logged_is_not_what_python_works_on_to_make_a_tensor(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        out.mean().item()
        counts = clock.works([1.0] * 4, 4)
        return (out * torch.tensor(counts)).sum()

    (one,), _ = told(loss)
    assert "torch.tensor(counts)" in one["text"] and one["of"] == "unclear" and one["makes"]


def test_numbers_of_the_batch_read_beside_the_models_are_no_sign_of_the_batchs_work(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        scores = out.detach().numpy()
        for row in range(8):
            length = int(y[row, 0])
            clock.works(scores[row, :length], 1)
        return out.sum()

    (one,), _ = told(loss)
    assert one["of"] == "unclear" and "int(y[row, 0])" in one["text"]


@pytest.mark.parametrize(
    "made",
    [
        lambda out, bn: torch.tensor(out.argmax(1).tolist()),
        lambda out, bn: torch.from_numpy(out.detach().numpy() * 2).float(),
        lambda out, bn: torch.stack([torch.from_numpy(out.detach().numpy())]),
        lambda out, bn: bn.running_mean,
        lambda out, bn: out.detach().add_(1),
    ],
)
def test_what_is_a_tensor_again_is_still_the_models(clock: Clock, made: Any) -> None:
    class Normed(nn.Sequential):
        def __init__(self) -> None:
            super().__init__(nn.Linear(4, 4), nn.BatchNorm1d(4))

    def loss(model: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        clock.works(made(out, model[1]).tolist(), 3)
        return out.sum()  # type: ignore[no-any-return]

    assert told(loss, model=Normed())[0][-1]["of"] == "model"


def test_memory_that_the_data_comes_to_lie_in_is_the_models_no_more() -> None:
    weight, batch, first, second = (torch.zeros(4) for _ in range(4))
    watcher = OutsideOfTorch((memory(weight),), OperatorLines())

    def runs(given: torch.Tensor, made: torch.Tensor) -> None:
        watcher.see(Ran(torch.ops.aten.mul, (given, 2), {}, made, False, 0.001))

    def read_is() -> str:
        watcher.see(Ran(torch.ops.aten._local_scalar_dense, (second,), {}, 0.0, False, 0.001))
        watcher.forward_begins()  # nothing is pending
        return "model" if watcher._number_of_model else "data"

    runs(weight, first)
    runs(batch, first)  # what lay there was let go
    runs(first, second)
    assert read_is() == "data"
    runs(weight, first)
    runs(first, second)
    assert read_is() == "model"


def test_a_leaf_that_asks_for_gradients_is_trained(clock: Clock) -> None:
    table = torch.zeros(4, requires_grad=True)

    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        clock.works(table.tolist(), 3)
        return (model(x) * table).sum()

    assert [one["of"] for one in told(loss)[0]] == ["model"]


def test_lines_up_to_the_one_that_goes_on_in_the_same_function_are_the_works(clock: Clock) -> None:
    def loss(model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        rows = y.numpy()
        rows = clock.works(rows, 2)
        rows = rows.copy()
        return (out * torch.from_numpy(rows)).sum()

    (one,), _ = told(loss)
    assert one["text"] == "rows = y.numpy()" and one["until"] == one["line"] + 3 and one["makes"]


def test_what_lies_between_two_calls_of_models_is_not_forwards(clock: Clock) -> None:
    model, x, y = nn.Linear(4, 4), torch.randn(8, 4), torch.randn(8, 4)
    watcher = OutsideOfTorch(map(memory, model.parameters()), OperatorLines())
    mode = OperatorMode([watcher, StepDataflow(Storages(()), watcher)])
    mode.open()
    try:
        for ms in (1, 10, 100):
            mode.model_called(begins=True)
            out = model(x)
            clock.works(y.numpy(), ms / 1000 + 1)  # inside of the call
            out = out + 1
            mode.model_called(begins=False)
            clock.works(out.detach().numpy(), ms)  # an environment's step, but for the last one
            out = out * 1
        mode.enter_backward()
    finally:
        mode.close()
        mode.step_ended()
    entries = {one["of"]: one["seconds_forward"] for one in watcher.told["outside_of_torch"]}  # type: ignore
    assert entries["model"] == pytest.approx(0.1)
    assert sum(entries.values()) == pytest.approx(0.1 + 0.003 + 0.000111)


def test_what_the_loader_does_meanwhile_is_not_forwards(clock: Clock) -> None:
    loading = False
    watcher = OutsideOfTorch((), OperatorLines())
    watcher.elsewhere = lambda: loading
    mode = OperatorMode([watcher, StepDataflow(Storages(()), watcher)])
    x = torch.randn(4)
    mode.open()
    try:
        made = x + 1
        made.mean().item()
        loading = True
        torch.tensor(clock.works([1.0], 5))
        clock.works(x.numpy(), 5)
        x * 2
        loading = False
        clock.works(None, 5)
        x * 3
    finally:
        mode.close()
        mode.step_ended()
    assert watcher.told["outside_of_torch"] == []


def test_what_lies_beside_the_models_calls_is_not_forwards(clock: Clock) -> None:
    watcher = OutsideOfTorch((), OperatorLines())
    mode = OperatorMode([watcher, StepDataflow(Storages(()), watcher)])
    x = torch.randn(4)
    mode.open(beside=True)
    try:
        clock.works((x + 1).numpy(), 5)
        x * 2
        clock.works(x.numpy(), 5)
        mode.open()  # forward begins
        clock.works(x.numpy(), 3)
        x * 3
    finally:
        mode.close()
        mode.step_ended()
    (one,) = watcher.told["outside_of_torch"]  # type: ignore[misc]
    assert one["seconds_forward"] == pytest.approx(0.003)  # type: ignore[call-overload,index]


def test_what_was_passed_over_may_be_the_models(clock: Clock) -> None:
    weight, made = torch.zeros(4), torch.zeros(4)
    watcher = OutsideOfTorch((memory(weight),), OperatorLines())
    watcher.passes_over(Ran(torch.ops.aten.mul, (weight, 2), {}, made, False, 0.001))
    watcher.see(Ran(torch.ops.aten._local_scalar_dense, (made,), {}, 0.0, False, 0.001))
    assert watcher._number_of_model


def test_a_read_that_cannot_be_followed_ends_only_this_look(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(tensor: torch.Tensor) -> int:
        raise RuntimeError("no memory")

    watcher = OutsideOfTorch((), OperatorLines())
    flow = StepDataflow(Storages(()), watcher)
    mode = OperatorMode([watcher, flow])
    mode.open()
    try:
        x = torch.randn(4) + 1
        monkeypatch.setattr(outside_of_torch, "memory", fails)
        assert x.numpy() is not None
        x * 2
    finally:
        mode.close()
        mode.step_ended()
    facts, gaps = mode.conclude()
    assert "no memory" in gaps["outside_of_torch"] and "never_used" in facts


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
