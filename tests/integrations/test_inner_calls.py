"""Loops that call a part of the model, or compile it in one way or another: forward is seen, and graphs stay whole."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed
from torch._dynamo.utils import counters
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.measure.module_calls import COMPILED_CALL
from perf_diagnostics.records import StepTable, TrialResult
from tests.integrations.test_first_turns import run_here

STEPS = 24

Call = Callable[[torch.Tensor], torch.Tensor]


class Net(torch.nn.Module):
    """An encoder and a head, which may be called one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)
        self.pause_s = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pause_s:
            time.sleep(self.pause_s)
        return self.head(torch.tanh(self.encoder(x)))


@pytest.fixture(autouse=True)
def _as_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Trained, "expects_more", False)
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


@contextlib.contextmanager
def attached(model: torch.nn.Module, optimizer: torch.optim.Optimizer, folder: Path) -> Iterator[list[TrialResult]]:
    found: list[TrialResult] = []
    with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
        yield found
    assert seen.run is not None
    found += seen.run.results


@contextlib.contextmanager
def run(_model: torch.nn.Module, _optimizer: torch.optim.Optimizer, folder: Path) -> Iterator[list[TrialResult]]:
    found: list[TrialResult] = []
    with run_here(folder) as session:
        yield found
    assert session.watch is not None and session.watch.recording.run is not None
    found += session.watch.recording.run.results


BOTH = pytest.mark.parametrize("how", [attached, run])


def batches() -> DataLoader[torch.Tensor]:
    return DataLoader([torch.randn(4) for _ in range(4 * STEPS)], batch_size=4)  # type: ignore[arg-type]


def train(call: Call, optimizer: torch.optim.Optimizer, *, before_step: Callable[[int], None] | None = None) -> None:
    for number, x in enumerate(batches()):
        if before_step is not None:
            before_step(number)
        optimizer.zero_grad()
        call(x).sum().backward()
        optimizer.step()


def without_forward(result: TrialResult) -> tuple[int, int]:
    """Steps that are not in the record, and steady steps of it of which no forward was seen."""
    told = result.gap("unseen_steps")
    lost = 0 if told is None else int(told.why.split()[0])
    table: StepTable = result.steps[0]
    assert len(table) + lost == STEPS
    return lost, int((table.steady.columns["host_forward_ns"] == 0).sum())


def nothing_is_left(*models: torch.nn.Module) -> bool:
    return all(COMPILED_CALL not in module.__dict__ for model in models for module in model.modules())


@BOTH
def test_parts_that_are_called_one_by_one(tmp_path: Path, how) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    with how(net, optimizer, tmp_path) as found:
        train(lambda x: net.head(torch.tanh(net.encoder(x))), optimizer)
    lost, unseen = without_forward(found[0])
    assert (lost, unseen) == (1, 0) and nothing_is_left(net)


@BOTH
def test_the_module_inside_of_a_wrapper_is_called(tmp_path: Path, how) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        wrapped = torch.nn.parallel.DistributedDataParallel(Net())
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
        with how(wrapped, optimizer, tmp_path) as found:
            train(wrapped.module, optimizer)
    finally:
        torch.distributed.destroy_process_group()
    lost, unseen = without_forward(found[0])
    assert (lost, unseen) == (1, 0) and nothing_is_left(wrapped)


@BOTH
def test_a_loop_that_calls_the_whole_at_first_and_then_a_part(tmp_path: Path, how) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    seen: list[torch.Tensor] = []

    def call(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return net(x) if len(seen) <= STEPS // 2 else net.encoder(x)

    with how(net, optimizer, tmp_path) as found:
        train(call, optimizer)
    lost, unseen = without_forward(found[0])
    assert (lost, unseen) == (1, 0) and nothing_is_left(net)


@BOTH
@pytest.mark.parametrize("inside", [False, True])
def test_an_average_of_the_weights_is_asked_before_the_model(tmp_path: Path, how, inside: bool) -> None:
    """A mean teacher; ``average.module(x)`` is how many a loop calls it."""
    net = Net()
    average = AveragedModel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    average.module.pause_s = 0.003
    asked = average.module if inside else average

    def call(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            soft = asked(x)
        return (net(x) - soft).square()

    with how(net, optimizer, tmp_path) as found:
        train(call, optimizer, before_step=lambda _: average.update_parameters(net))
        assert any(COMPILED_CALL in module.__dict__ for module in average.modules())
    lost, unseen = without_forward(found[0])
    assert (lost, unseen) == (0, 0) and nothing_is_left(net, average)
    table = found[0].steps[0]
    assert (table.columns["host_forward_ns"] >= 3_000_000).all()  # what it says about the batch is a part of the loss
    assert table.columns["prepare_ns"].sum() < STEPS * 3_000_000 / 2


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
def test_a_compiled_model_keeps_its_one_graph(tmp_path: Path, how, backend: str, in_place: bool) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    call: Call
    if in_place:
        net.compile(backend=backend, fullgraph=True)
        call = net
    else:
        call = torch.compile(net, backend=backend, fullgraph=True)
    compiled = net.__dict__.get(COMPILED_CALL)
    with how(net, optimizer, tmp_path) as found:
        train(call, optimizer)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"] and not counters["recompiles"]
    lost, unseen = without_forward(found[0])
    assert (lost, unseen) == (0, 0)
    assert net.__dict__.get(COMPILED_CALL) is compiled


@pytest.mark.slow
@BOTH
@pytest.mark.parametrize("at", [0, STEPS // 2])
@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
def test_a_model_that_is_compiled_in_place_while_it_is_watched_is_watched_on(tmp_path: Path, how, at: int) -> None:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def compile_once(number: int) -> None:
        if number == at:
            net.compile(backend="eager", fullgraph=True)

    with how(net, optimizer, tmp_path) as found:
        train(net, optimizer, before_step=compile_once)
    assert counters["stats"]["unique_graphs"] == 1 and not counters["graph_break"] and not counters["recompiles"]
    lost, unseen = without_forward(found[0])
    assert (lost, unseen) == (1, 0)
    compiled = net.__dict__.pop(COMPILED_CALL)
    assert "timed" not in compiled.__qualname__ and nothing_is_left(net)
