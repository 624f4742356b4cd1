"""One step is looked through operator by operator: which products have an operand of zeros, and what is left alone."""

from __future__ import annotations

import gc
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.record import flush_times
from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.module_calls import TimedCalls
from perf_diagnostics.measure.one_step import dataflow_storages, dispatch_mode, operand_zeros
from perf_diagnostics.measure.one_step import look as look_module
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.measure.one_step.operand_zeros import Operands
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.measure.one_step.watcher import Ran
from perf_diagnostics.measure.one_step.zero_products import SIGNAL, ZeroProducts

ROWS, CLASSES, WIDTH = 64, 200, 8


class OneHot(torch.nn.Module):
    """Rows of 200 classes are looked up by a product, and a head of 4 follows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Linear(CLASSES, WIDTH, bias=False)
        self.head = torch.nn.Linear(WIDTH, 4)
        self.again = False

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        rows = torch.nn.functional.one_hot(ids, CLASSES).float()
        found = self.table(rows)  # the line that is told
        return checkpoint(self.head, found, use_reentrant=False) if self.again else self.head(found)


class Healthy(torch.nn.Module):
    """ReLU and dropout leave zeros, weights begin as zeros, and only the first of 32 positions has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Dropout(0.5))
        self.adapter, self.head = torch.nn.Linear(16, 16), torch.nn.Linear(16, 2)
        torch.nn.init.zeros_(self.adapter.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.adapter(self.body(x)))[:, 0]


def look(model: torch.nn.Module, *given: Any) -> tuple[StepLook, LoopObservations]:
    """One step of a model is looked through."""
    observations = LoopObservations()
    looks = StepLook(observations, lambda: [model])
    assert not looks.may_begin(look_module.STEADY_STEPS - 1) and looks.may_begin(look_module.STEADY_STEPS)
    looks.begin(several=False)
    try:
        model(*given).sum().backward()
    finally:
        looks.end()
    return looks, observations


def why(observations: LoopObservations, signal: str = SIGNAL) -> str:
    return "; ".join(gap.why for gap in observations.gaps if gap.signal == signal)


def test_a_one_hot_product_is_told_with_its_operations_and_its_line() -> None:
    looks, observations = look(OneHot(), torch.arange(ROWS))
    table, head = 2 * ROWS * CLASSES * WIDTH, 2 * ROWS * WIDTH * 4
    assert looks.facts["product_flops_forward"] == table + head
    assert looks.facts["product_flops_backward"] == table + 2 * head  # the rows need no gradient
    (one,) = looks.facts[SIGNAL]  # type: ignore[misc, union-attr]
    assert isinstance(one, dict)
    assert one["zeros"] == pytest.approx(1 - 1 / CLASSES) and one["shape"] == [ROWS, CLASSES]
    assert one["most_in_a_row"] == 1
    assert (one["calls"], one["flops_forward"], one["flops_backward"]) == (1, table, table)
    assert (one["function"], one["text"]) == ("OneHot.forward", "found = self.table(rows)  # the line that is told")
    assert why(observations) == ""


def test_products_with_zeros_are_told_with_their_seconds_and_what_made_their_operand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticks = itertools.count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))
    looked, _ = look(OneHot(), torch.arange(ROWS).repeat(2))
    (one,) = looked.facts[SIGNAL]  # type: ignore[misc]
    # Zeros of all classes, the ones in them, and the cast; then the product, and that for the table's gradient.
    assert one["seconds_making"] == pytest.approx(3)
    assert one["seconds_forward"] == pytest.approx(1) and one["seconds_backward"] == pytest.approx(1)


def test_on_a_device_products_have_no_seconds() -> None:
    watcher = ZeroProducts((), OperatorLines())
    operand = torch.nn.functional.one_hot(torch.arange(ROWS), CLASSES).float()
    result = operand @ torch.ones(CLASSES, WIDTH)
    watcher.see(Ran(torch.ops.aten.mm, (operand, torch.ones(CLASSES, WIDTH)), {}, result, False, None))
    (one,) = watcher.told[SIGNAL]  # type: ignore[misc]
    assert one["calls"] == 1 and "seconds_forward" not in one


class Neighbours(torch.nn.Module):
    """Sums over neighbours, of which ``each`` node has so many, with the nodes before or behind the features."""

    def __init__(self, each: int, *, left: bool) -> None:
        super().__init__()
        self.layer, self.left = torch.nn.Linear(WIDTH, WIDTH), left
        self.graph = torch.zeros(CLASSES, CLASSES)
        self.graph[torch.arange(CLASSES).repeat_interleave(each), torch.arange(each).repeat(CLASSES)] = 1.0
        if not left:
            self.graph = self.graph.T

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.layer(x)
        return self.graph @ made if self.left else made.T @ self.graph


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("each", [1, 5])
def test_the_most_numbers_of_a_row_are_counted_on_either_side(each: int, left: bool) -> None:
    """All choose the first few, so that along the other dimension a row is full."""
    looks, _ = look(Neighbours(each, left=left), torch.randn(CLASSES, WIDTH))
    (one,) = looks.facts[SIGNAL]  # type: ignore[misc, union-attr]
    assert isinstance(one, dict)
    assert one["most_in_a_row"] == each


def test_activations_gradients_and_new_weights_are_no_operands_of_zeros() -> None:
    looks, _ = look(Healthy(), torch.randn(8, 32, 16))
    assert looks.facts[SIGNAL] == [] and looks.facts["product_flops_forward"] == 2 * 8 * 32 * 16 * (16 + 16 + 2)


def test_nothing_is_left_behind_and_nothing_is_changed() -> None:
    """Gradients and random draws are those of a step that nobody looked through."""
    backward = torch.autograd.backward
    outcomes = []
    for looked in (False, True):
        torch.manual_seed(1)
        model, x = Healthy(), torch.randn(8, 32, 16)
        if looked:
            look(model, x)
        else:
            model(x).sum().backward()
        outcomes.append([*(p.grad for p in model.parameters()), torch.rand(4)])
        assert "_compiled_call_impl" not in model.__dict__ and torch.autograd.backward is backward
    for one, other in zip(*outcomes, strict=True):
        assert torch.equal(one, other)


def test_checkpoints_and_autocast_are_looked_through() -> None:
    model = OneHot()
    model.again = True
    with torch.autocast("cpu", dtype=torch.bfloat16):
        looks, observations = look(model, torch.arange(ROWS))
    (one,) = looks.facts[SIGNAL]  # type: ignore[misc, union-attr]
    assert isinstance(one, dict) and one["function"] == "OneHot.forward" and why(observations) == ""
    assert looks.facts["product_flops_backward"] > looks.facts["product_flops_forward"]  # type: ignore[operator]


class Spread(torch.nn.Parameter):
    """A parameter of a type of its own."""


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (lambda model: model.register_parameter("more", Spread(torch.ones(1))), "type of their own"),
        (lambda model: model.add_module("_orig_mod", torch.nn.ReLU()), "torch.compile"),
        (lambda model: model.to("meta"), "device that is not looked at"),
    ],
)
def test_what_must_not_be_touched_is_left_alone_and_said(change: Any, because: str) -> None:
    model, observations = OneHot(), LoopObservations()
    change(model)
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    assert not looks.under_way and "_compiled_call_impl" not in model.__dict__ and because in why(observations)


@pytest.mark.parametrize("compiled", [False, True])
def test_a_model_that_was_compiled_in_place_is_known_behind_what_stands_in_for_it(compiled: bool) -> None:
    """torch may have made no graph of it yet, and would trace what looks."""
    model, observations = OneHot(), LoopObservations()
    if compiled:
        model.__dict__["_compiled_call_impl"] = model._call_impl  # as model.compile() does
    timed = TimedCalls(model, lambda *args: None)
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    assert looks.under_way is not compiled
    if compiled:
        assert "torch.compile" in why(observations)
    looks.training_ended()
    timed()


def test_ranks_and_an_unknown_model_are_left_alone() -> None:
    observations = LoopObservations()
    StepLook(observations, lambda: [OneHot()]).begin(several=True)
    assert "several processes" in why(observations)
    observations = LoopObservations()
    StepLook(observations, list).begin(several=False)
    assert "not known what is trained" in why(observations)


def test_a_mode_of_the_users_own_and_torch_func_are_left_alone() -> None:
    model = OneHot()
    observations = LoopObservations()
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    with FlopCounterMode(display=False) as own:
        model(torch.arange(ROWS)).sum().backward()
    torch.func.vmap(model)(torch.arange(ROWS).reshape(2, -1))
    looks.end()
    table, head = 2 * ROWS * CLASSES * WIDTH, 2 * ROWS * WIDTH * 4
    assert own.get_total_flops() == 2 * table + 3 * head
    assert SIGNAL not in looks.facts and "no product was seen" in why(observations)


def test_nothing_comes_into_the_capture_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """The usual way: steps that warm up, and then one that is captured, which may be the one to be looked through."""
    model, observations = OneHot(), LoopObservations()
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    monkeypatch.setattr(look_module, "captures", lambda _device: True)
    seen: list[Any] = []
    monkeypatch.setattr(ZeroProducts, "see", lambda *given, **named: seen.append(given))
    model(torch.arange(ROWS)).sum().backward()
    looks.end()
    assert seen == [] and "no product was seen" in why(observations)
    StepLook(observations := LoopObservations(), lambda: [model]).begin(several=False)
    assert "being captured" in why(observations)


def as_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators have no seconds of their own, and their numbers must not be read."""
    monkeypatch.setattr(dispatch_mode, "Ran", lambda *given, **named: Ran(*given, **named)._replace(seconds=None))
    monkeypatch.setattr(dataflow_storages, "_tolist", lambda _tensor: pytest.fail("a number of the device's was read"))


def test_on_a_device_nothing_of_ours_stays_in_torch_when_the_step_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that ask a tensor for its address at each launch would be slowed down until the collector comes."""
    as_on_a_device(monkeypatch)
    before = {name: torch.Tensor.__dict__.get(name) for name in ("data_ptr", "tolist", "numpy", "__deepcopy__")}
    model, observations = OneHot(), LoopObservations()
    looks = StepLook(observations, lambda: [model], elsewhere=lambda: False)
    gc.disable()
    try:
        looks.begin(several=False)
        model(torch.arange(ROWS)).sum().backward()
        model(torch.arange(ROWS)).sum().backward()  # a second micro-batch
        looks.end()
        assert {name: torch.Tensor.__dict__.get(name) for name in before} == before
    finally:
        gc.enable()
    assert "never_used" not in looks.facts and "on a device" in why(observations, "never_used")


@pytest.mark.parametrize("kind", [RuntimeError, NameError, ImportError, MemoryError])
def test_a_fault_of_ours_becomes_a_gap_and_the_training_goes_on(
    monkeypatch: pytest.MonkeyPatch, kind: type[Exception]
) -> None:
    def fails(*_given: Any) -> float:
        raise kind("made up")

    monkeypatch.setattr(Operands, "zeros", fails)
    model = OneHot()
    looks, observations = look(model, torch.arange(ROWS))
    assert SIGNAL not in looks.facts and "made up" in why(observations)
    assert looks.facts["broadcast_blow_ups"] == []  # who has no fault goes on
    assert model.table.weight.grad is not None


def test_an_error_of_the_models_passes_and_all_comes_off() -> None:
    model, observations = OneHot(), LoopObservations()
    looks = StepLook(observations, lambda: [model])
    looks.begin(several=False)
    with pytest.raises(RuntimeError):
        model(torch.full((4,), CLASSES))
    looks.training_ended()
    assert "_compiled_call_impl" not in model.__dict__ and "training ended" in why(observations)


@pytest.mark.parametrize("rows", [1, 3])
def test_of_a_large_operand_some_rows_are_counted(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(operand_zeros, "COUNTED", 4 * rows * 1000)
    operand = torch.zeros(200, 1000)
    operand[:, 7] = 1.0
    assert Operands(1 << 20).zeros(operand) == pytest.approx(0.999)
    assert Operands(1 << 20).zeros(operand.t()) is not None
    assert Operands(1 << 20).zeros(torch.ones(4, 8, 16)) == 0
    assert Operands(100).zeros(operand) is None and Operands(1 << 20).zeros(torch.zeros(3)) is None
    assert Operands(1 << 20).zeros(torch.zeros(3, 3, dtype=torch.int64)) is None


@pytest.mark.parametrize("how", ["attach", "marks"])
@pytest.mark.parametrize("steady", [1, 5])  # the second: steps are so long that few have ended when it is time to write
def test_the_step_that_was_looked_through_is_none_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, steady: int
) -> None:
    monkeypatch.setattr(flush_times, "FIRST_FLUSH_NS", 0)
    monkeypatch.setattr(look_module, "STEADY_STEPS", steady)
    model = OneHot()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        model(torch.arange(ROWS)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    if how == "attach":
        with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
            for _ in range(10):
                step()
        run = seen.run
    else:
        with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
            for _ in range(10):
                with loop.step():
                    step()
        run = loop.run
    assert run is not None
    (result,) = run.results
    (one,) = result.facts[SIGNAL]  # type: ignore[misc]
    assert one["function"] == "OneHot.forward"
    warmup = result.steps[0].columns["warmup"].tolist()
    assert len(warmup) == 10 and warmup[:3] == [True] * 3 and sum(warmup) == 4 and not warmup[-1]
    assert warmup[3:].index(True) >= steady
    assert "_compiled_call_impl" not in model.__dict__


def test_what_an_inner_loop_has_put_in_a_parameters_place_is_not_asked_for_its_gradient(recwarn) -> None:
    """As torchopt's MetaSGD and learn2learn's update_module do: torch warns who asks such a tensor."""
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    given = model.weight
    model._parameters["weight"] = given - 0.1 * torch.ones_like(given)  # type: ignore[assignment]
    looks = StepLook(LoopObservations(), lambda: [model], optimizers=lambda: [optimizer])
    looks.begin(several=False)
    try:
        model(torch.randn(4, 4)).sum().backward()
    finally:
        looks.end()
    assert given.grad is not None and [str(one.message) for one in recwarn] == []
