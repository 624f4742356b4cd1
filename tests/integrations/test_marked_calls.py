"""What a loop that marks its phases itself calls inside of them: counted, and no phase takes any notice of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations import OwnLoop, marked
from perf_diagnostics.integrations.record import not_shown
from perf_diagnostics.measure.module_calls import stands_in
from perf_diagnostics.measure.steps.calls import COUNTS, TIMES, read_calls
from perf_diagnostics.measure.steps.device_clock import HostTimeEvents
from perf_diagnostics.measure.steps.tape import (
    AT,
    BACKWARD,
    CALLED,
    END,
    FORWARD,
    KEEPS,
    LEAVE,
    NEXT_BATCH,
    OPTIMIZER,
    START,
    STEPPED,
    TRAINS,
    new_tape,
)
from perf_diagnostics.records import ALL_PHASES, StepTable, TrialResult
from tests.integrations.test_called_masks import IDS, MASK, Tagger, counted
from tests.integrations.test_plain_steps import Calls
from tests.measure.simulated_device import HostClock, SimulatedDevice

MS = 1_000_000
STEPS = 8


def table_of(loop: OwnLoop) -> StepTable:
    assert loop.run is not None
    return loop.run.results[0].steps[0]


class Working(torch.nn.Linear):
    """A line whose forward and backward take their time on a clock."""

    def __init__(self, host: HostClock) -> None:
        super().__init__(4, 1)
        self.host = host

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.host.spend(10)
        y = super().forward(x)
        if y.requires_grad:
            y.register_hook(lambda _: self.host.spend(20))
        return y


def test_calls_are_counted_and_timed_inside_of_phases_that_stay_what_they_are(tmp_path: Path) -> None:
    host = HostClock()
    model = Working(host)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, clock=host, quiet=True) as loop:
        for x in loop.batches(torch.randn(STEPS, 4, 4)):
            with loop.step():
                with loop.forward():
                    loss = model(x).mean()
                    host.spend(1)
                model(x)  # in no phase; no backward follows
                with loop.backward():
                    loss.backward(retain_graph=True)
                    host.spend(2)
                    loss.backward()
                with loop.optimizer():
                    host.spend(3)
                    optimizer.step()
                with torch.no_grad():
                    model(x)
    columns = table_of(loop).columns
    expected = {"data_wait": 0, "forward": 11, "backward": 42, "optimizer": 3, "other": 20}
    spent = {str(phase): table_of(loop).host_ns(phase) for phase in ALL_PHASES}
    assert {name: ns.tolist() for name, ns in spent.items() if ns is not None} == {
        name: [ms * MS] * STEPS for name, ms in expected.items()
    }
    assert [set(columns[name].tolist()) for name in COUNTS] == [{2}, {1}, {1}, {2}, {1}, {1}, {1}]
    # The call that no backward follows has one that follows it: the second of the same loss.
    assert [set(columns[name].tolist()) for name in TIMES] == [{10 * MS}, {0}, {20 * MS}]


def accumulated(folder: Path, micro: Callable[[OwnLoop, Any, torch.Tensor], None]) -> StepTable:
    """Steps of three batches, each of them trained on so."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(3 * 4 * STEPS, 4)), batch_size=4)
    with OwnLoop(model=model, optimizer=optimizer, results_dir=folder, quiet=True) as loop:
        for number, (x,) in enumerate(loop.batches(loader)):
            micro(loop, model, x)
            if number % 3 == 2:
                with loop.optimizer():
                    optimizer.step()
                    optimizer.zero_grad()
    return table_of(loop)


def plain(loop: OwnLoop, model: Any, x: torch.Tensor) -> None:
    with loop.forward():
        loss = model(x).mean()
    with loop.backward():
        loss.backward()


def asking_again(loop: OwnLoop, model: Any, x: torch.Tensor) -> None:
    plain(loop, model, x)
    model(x)


def two_passes(loop: OwnLoop, model: Any, x: torch.Tensor) -> None:
    plain(loop, model, x)
    plain(loop, model, x)


@pytest.mark.parametrize(
    ("micro", "forwards", "backwards", "again"), [(plain, 3, 3, 0), (asking_again, 6, 3, 3), (two_passes, 6, 6, 0)]
)
def test_each_batch_of_an_accumulation_is_judged_by_itself(
    tmp_path: Path, micro: Callable[..., None], forwards: int, backwards: int, again: int
) -> None:
    columns = accumulated(tmp_path, micro).columns
    names = ("forwards", "backwards", "forwards_again", "backwards_again", "updates")
    assert [set(columns[name].tolist()) for name in names] == [{forwards}, {backwards}, {again}, {0}, {1}]


def test_the_same_tensor_in_each_step_is_no_batch_that_is_asked_again(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.randn(4, 4)
    with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        for _ in range(STEPS):
            with loop.step(samples=4):
                with loop.forward():
                    loss = model(x).mean()
                with loop.optimizer():  # as frameworks do, between forward and backward
                    optimizer.zero_grad()
                with loop.backward():
                    loss.backward()
                with loop.optimizer():
                    optimizer.step()
    assert set(table_of(loop).columns["forwards_again"].tolist()) == {0}


def test_a_graph_that_another_optimizer_has_stepped_in_between_is_not_gone_through_again(tmp_path: Path) -> None:
    """A contest whose losses share one graph; nobody has told the loop of the second model and its optimizer."""
    model, other = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.0) for one in (model, other)]
    with OwnLoop(model=model, optimizer=optimizers[0], results_dir=tmp_path, quiet=True) as loop:
        for _ in range(STEPS):
            with loop.step(samples=4):
                made = model(torch.randn(4, 4))
                made.sum().backward(retain_graph=True)
                optimizers[1].step()
                made.mean().backward()
                optimizers[0].step()
    columns = table_of(loop).columns
    names = ("backwards", "backwards_keeping", "backwards_again", "updates")
    assert [set(columns[name].tolist()) for name in names] == [{2}, {1}, {0}, {2}]


@pytest.mark.parametrize(("callable_", "first"), [(True, 0), (False, 2)])
def test_a_model_that_is_never_called_as_a_whole_is_seen_in_its_parts(
    tmp_path: Path, callable_: bool, first: int
) -> None:
    """Once a step has shown that, where it could be called; at once where it could not."""
    body, head = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)
    model = torch.nn.Sequential(body, head) if callable_ else torch.nn.ModuleList([body, head])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        for _ in range(STEPS):
            with loop.step(samples=4):
                head(body(torch.randn(4, 4))).mean().backward()
                optimizer.step()
                optimizer.zero_grad()
    assert table_of(loop).columns["forwards"].tolist() == [first] + [2] * (STEPS - 1)
    assert all(stands_in(part) is None for part in (body, head))


def test_a_module_that_a_list_holds_twice_is_called_as_often_as_it_is(tmp_path: Path) -> None:
    shared = torch.nn.Linear(4, 4)
    model = torch.nn.ModuleList([shared, shared])
    with OwnLoop(model=model, results_dir=tmp_path, quiet=True) as loop:
        for _ in range(STEPS):
            with loop.step(samples=4):
                shared(torch.randn(4, 4)).mean().backward()
    assert table_of(loop).columns["forwards"].tolist() == [1] * STEPS
    assert stands_in(shared) is None


def test_a_call_before_the_first_mark_begins_no_step(tmp_path: Path) -> None:
    host = HostClock()
    model = torch.nn.Linear(4, 1)
    with OwnLoop(model=model, results_dir=tmp_path, clock=host, quiet=True) as loop:
        model(torch.randn(4, 4)).mean().backward()
        host.spend(1000)
        for _ in range(STEPS):
            with loop.step(samples=4):
                host.spend(5)
                model(torch.randn(4, 4)).mean().backward()
    assert table_of(loop).wall_ns.tolist() == [5 * MS] * STEPS
    assert table_of(loop).columns["forwards"].tolist() == [1] * STEPS


def test_a_loop_that_is_let_go_without_an_end_takes_everything_off(tmp_path: Path) -> None:
    backward, model = torch.autograd.backward, torch.nn.Linear(4, 1)
    loop = OwnLoop(model=model, results_dir=tmp_path, quiet=True)
    assert torch.autograd.backward is not backward and stands_in(model) is not None
    del loop
    assert torch.autograd.backward is backward and stands_in(model) is None
    assert not import_module("torch.optim.optimizer")._global_optimizer_post_hooks


def test_a_call_has_no_border_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = []
    for calls in (0, 2):
        host = HostClock()
        device = SimulatedDevice(host)
        monkeypatch.setattr(marked, "event_source", lambda *_, device=device: device)
        model = torch.nn.Linear(4, 1)
        with OwnLoop(model=model, results_dir=tmp_path, clock=host, quiet=True) as loop:
            for _ in range(STEPS):
                with loop.step(samples=4):
                    with loop.forward():
                        for _ in range(calls):
                            model(torch.randn(4, 4)).mean().backward()
                        device.launch(30)
                    with loop.backward():
                        device.launch(50)
        tables.append(table_of(loop).columns)
    without, seen = tables
    assert set(seen["backwards"].tolist()) == {2} and "backwards" not in without
    for name in ("device_forward_ns", "device_backward_ns", "device_other_ns", "borders"):
        assert seen[name].tolist()[-2:] == without[name].tolist()[-2:]  # at first its parts are looked for
    assert seen["device_forward_ns"][-1] == 30 * MS


def test_without_a_call_of_a_model_backwards_are_not_taken_for_repeated_ones() -> None:
    def told(*codes: int) -> dict[str, list[int]]:
        tape = new_tape()
        for time, code in enumerate((START, *codes, END)):
            tape.append(time + AT[code])
        return {name: values.tolist() for name, values in read_calls(tape, marked=True).items()}

    keeps, backward, leave = CALLED[KEEPS], CALLED[BACKWARD], CALLED[LEAVE]
    twice = (BACKWARD, keeps, leave, backward, leave, LEAVE)
    assert (told(*twice)["backwards"], told(*twice)["backwards_again"]) == ([2], [0])
    seen = (FORWARD, CALLED[TRAINS], leave, LEAVE, *twice)
    assert (told(*seen)["backwards_again"], told(*seen)["backwards_again_ns"]) == ([1], [1])
    assert told(OPTIMIZER, STEPPED, LEAVE, NEXT_BATCH)["updates"] == [1]


def test_the_loss_that_backward_was_called_on_is_recorded_now_and_then(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    with OwnLoop(model=model, results_dir=tmp_path, quiet=True) as loop:
        for number in range(STEPS):
            with loop.step(samples=4):
                (model(torch.randn(4, 4)).mean() * 0 + number).backward()
            loop._loop._calls.losses.due_ns = 0  # each step is due
    # At the end of a step whose loss was not wanted it is looked whether the next one's is.
    losses = table_of(loop).columns["loss"].tolist()
    assert losses[::2] == [0.0, 2.0, 4.0, 6.0] and all(math.isnan(loss) for loss in losses[1::2])


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize("move", [lambda mask: mask.to("meta"), lambda mask: mask.to("meta").bool()])
def test_on_a_device_a_mask_is_counted_by_what_it_was_copied_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, move: Callable[[torch.Tensor], torch.Tensor], ahead: bool
) -> None:
    monkeypatch.setattr(marked, "event_source", lambda _, clock: HostTimeEvents(lambda: None, clock))
    model = Tagger().to("meta")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    before = torch.Tensor.to

    def moved(loop: OwnLoop, batch: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
        with loop.transfer():
            return batch[0].to("meta"), move(batch[1])

    with OwnLoop("by-hand", model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        rows = [(IDS, MASK.long())] * STEPS
        batches = iter(rows if ahead else loop.batches(rows))  # what is fetched ahead counts a step early
        there = moved(loop, next(batches)) if ahead else None
        for number in range(STEPS - ahead):
            with loop.step(samples=3):
                now = there or moved(loop, next(batches))
                with loop.forward():
                    out = model(*now).sum()
                with loop.backward():  # a list has no loss that could be read, which there has no value
                    torch.autograd.backward([out])
                with loop.optimizer():
                    optimizer.step()
                there = moved(loop, next(batches)) if ahead and number < STEPS - 1 else None
    assert torch.Tensor.to is before and loop.run is not None
    result: TrialResult = loop.run.results[0]
    if move(MASK.long()).dtype is torch.bool:
        assert result.steps[0].get("padding_tokens") is None
    else:
        assert set(counted(result)) == {(3, 18, 5)}


def test_what_is_seen_inside_of_marks_costs_a_call_of_ours_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However busy the machine is, the steps count as too short to read the thread's CPU clock in them.
    monkeypatch.setattr(not_shown, "LEAST_WAIT_NS", 10**15)
    monkeypatch.setattr(not_shown, "LEAST_STEP_NS", 10**15)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(400, 4)), batch_size=4)
    step_ended = Calls()
    with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
        for (x,) in loop.batches(loader):
            with loop.step():
                with loop.forward():
                    loss = model(x).mean()
                with loop.backward():
                    loss.backward()
                with loop.optimizer():
                    optimizer.step()
                    optimizer.zero_grad()
            step_ended()
    usual = step_ended.usual
    seen = {name: usual.get(name, 0) for name in ("called", "backward", "stepped", "look", "forget", "search")}
    # One of the two is the mark's own: loop.backward().
    assert seen == {"called": 1, "backward": 2, "stepped": 1, "look": 0, "forget": 0, "search": 0}
    assert sum(usual.values()) == 50  # 47 of the marks themselves


def test_of_two_loaders_one_call_uses_both_and_the_last_step_may_be_shorter(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for loaders, accumulated, facts in ((2, 1, 1), (1, 3, 3)):
        batches = [torch.randn(4, 4) for _ in range(3 * STEPS - 2)]
        with OwnLoop(model=model, optimizer=optimizer, results_dir=tmp_path, quiet=True) as loop:
            for number, given in enumerate(zip(*(loop.batches(batches) for _ in range(loaders)), strict=True)):
                model(sum(given)).mean().backward()
                if number % accumulated == accumulated - 1 or number == len(batches) - 1:
                    with loop.optimizer():
                        optimizer.step()
        assert loop.run is not None
        assert loop.run.results[0].facts["accumulation_steps"] == facts
