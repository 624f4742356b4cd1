"""Steps that go on without end (the evaluation of a night): what is kept of them stays, and what is told is exact."""

from __future__ import annotations

import tracemalloc
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.steps import loop_probe
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, FORWARD, OPTIMIZER, LoopProbe
from perf_diagnostics.integrations.watching import watched_steps
from perf_diagnostics.measure.steps import long_step
from perf_diagnostics.measure.steps.calls import read_calls
from perf_diagnostics.measure.steps.device_clock import DeviceClock
from perf_diagnostics.measure.steps.folding import Folding
from perf_diagnostics.measure.steps.long_step import LongStep
from perf_diagnostics.measure.steps.reading import read_tape
from perf_diagnostics.measure.steps.tape import (
    ASKS,
    DATA_WAIT,
    OTHER,
    TRAINS,
    code_of,
)
from perf_diagnostics.records import ALL_PHASES, StepTable
from tests.integrations.test_first_turns import run_here, table_of
from tests.measure.simulated_device import HostClock, SimulatedDevice

MS = 1_000_000


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few marks are many."""
    monkeypatch.setattr(Trained, "expects_more", False)
    for module in (long_step, loop_probe):
        monkeypatch.setattr(module, "MOST_MARKS", 256)
    monkeypatch.setattr(long_step, "KEPT_MARKS", 64)
    monkeypatch.setattr(long_step, "_LEAST", 128)
    monkeypatch.setattr(watched_steps, "_MOST_BATCHES", 40)


@pytest.fixture
def whole(soon: None, monkeypatch: pytest.MonkeyPatch) -> list[array[int]]:
    """What goes off the tape, fold by fold, as it would stand there."""
    gone: list[array[int]] = []
    fold = LongStep.fold

    def kept(self: LongStep, marks: array[int], folds: list[Folding], **how: bool) -> int:
        gone.append(marks[self.goes_from + self.again : self.goes_until])
        return fold(self, marks, folds, **how)

    monkeypatch.setattr(LongStep, "fold", kept)
    return gone


class Compared:
    """Reads a tape of which marks of one step went, and the same tape with these marks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, gone: list[array[int]]) -> None:
        self.steps = self.folds = 0
        self.most = 0
        take = LoopProbe.take

        def compared(probe: LoopProbe) -> StepTable:
            everything = array(probe._marks.typecode)
            for mark in probe._marks:
                if code_of(mark) == long_step.FOLDED:
                    for one in gone:
                        everything.extend(one)
                    gone.clear()
                else:
                    everything.append(mark)
            self.folds += len(probe._folds)
            self.most = max(self.most, len(everything) - len(probe._marks))
            expected = read_tape(everything, bridged=probe.bridged, recomputes=True)
            calls = read_calls(everything, marked=not probe.bridged)
            table = take(probe)
            assert table.wall_ns.tolist() == expected.wall_ns.tolist()
            for index, phase in enumerate(ALL_PHASES[:-1]):
                assert table.columns[f"host_{phase}_ns"].tolist() == expected.phases_ns[:, index].tolist()
            assert table.columns["prepare_ns"].tolist() == expected.prepare_ns.tolist()
            if probe.bridged:
                assert table.columns["before_update_ns"].tolist() == expected.before_update_ns.tolist()
            assert {name: table.columns[name].tolist() for name in calls} == {n: v.tolist() for n, v in calls.items()}
            self.steps += len(table)
            return table

        monkeypatch.setattr(LoopProbe, "take", compared)


@pytest.fixture
def compared(whole: list[array[int]], monkeypatch: pytest.MonkeyPatch) -> Compared:
    return Compared(monkeypatch, whole)


class Training:
    """A small one, with a loader; ``longest`` is the longest that its tape and its list of batches ever were."""

    def __init__(self) -> None:
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = DataLoader([torch.randn(4) for _ in range(24)], batch_size=4)
        self.held_out = DataLoader([torch.randn(4) for _ in range(80)], batch_size=4)
        self.longest = (0, 0)

    def look(self, watch: Any) -> None:
        self.longest = max(self.longest[0], len(watch.probe.marks)), max(self.longest[1], len(watch.batches))

    def step(self, x: torch.Tensor) -> None:
        self.model(x).mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def evaluates(one: Training, look: Callable[[], None]) -> None:
    one.model.eval()
    with torch.no_grad():
        for _ in range(20):
            for x in one.held_out:
                one.model(x)
                look()
    one.model.train()


def asks_without_a_loader(one: Training, look: Callable[[], None]) -> None:
    with torch.no_grad():
        for _ in range(600):
            one.model(torch.randn(4, 4))
            look()


def reads_only(one: Training, look: Callable[[], None]) -> None:
    for _ in range(20):
        for _ in one.held_out:
            look()


def reads_and_then_evaluates_on_it(one: Training, look: Callable[[], None]) -> None:
    reads_only(one, look)
    with torch.no_grad():
        for x in one.held_out:
            one.model(x)


def trains_by_hand(one: Training, look: Callable[[], None]) -> None:
    """Another kind of optimizer than torch's, of which nobody knows."""
    for _ in range(8):
        for x in one.held_out:
            one.model(x).mean().backward()
            with torch.no_grad():
                for parameter in one.model.parameters():
                    parameter.sub_(parameter.grad, alpha=0.01)
                    parameter.grad = None
            look()


def calls_backward_only(one: Training, look: Callable[[], None]) -> None:
    x = torch.zeros(3, requires_grad=True)
    for _ in range(800):
        x.sum().backward()
        look()


def asks_again_on_one_batch(one: Training, look: Callable[[], None]) -> None:
    x = torch.randn(4, 4)
    for _ in range(400):
        one.model(x)
        look()
    with torch.no_grad():
        for _ in range(400):
            one.model(x)
            look()


@pytest.mark.parametrize("loader", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("gap", [
    evaluates, asks_without_a_loader, reads_only, reads_and_then_evaluates_on_it, trains_by_hand, calls_backward_only,
    asks_again_on_one_batch,
])  # fmt: skip
def test_what_is_told_of_a_step_with_a_long_gap_is_exact_and_its_tape_stays_short(
    tmp_path: Path, compared: Compared, gap: Callable[[Training, Callable[[], None]], None], loader: bool
) -> None:
    one = Training()
    batches: Any = one.loader if loader else [torch.randn(4, 4) for _ in range(6)]
    with attach(one.model, one.optimizer, results_dir=tmp_path, quiet=True) as seen:
        for number, x in enumerate(batches):
            if number == 4:
                gap(one, lambda: one.look(seen._watch))
            one.step(x)
    assert compared.folds == 1 and compared.most > 500
    assert one.longest[0] < 700 and one.longest[1] < 300
    table = seen.run.results[0].steps[0]
    assert compared.steps >= len(table) == 6


def test_while_the_first_optimizer_may_be_one_of_several_a_long_gap_settles_it(
    tmp_path: Path, compared: Compared
) -> None:
    """Nobody named one, and the first step is not told before the second one."""
    one = Training()
    with run_here(tmp_path) as session:
        for number, x in enumerate(one.loader):
            one.step(x)
            if number == 0:
                assert not session.watch.turns.cycle.decided
                evaluates(one, lambda: one.look(session.watch))
                assert session.watch.turns.cycle.decided
    table = table_of(session)
    assert compared.folds == 1 and one.longest[0] < 700
    assert table.samples.tolist() == [4] * 6
    assert table.columns["forwards_without_gradients"].tolist() == [0, 400, 0, 0, 0, 0]


def test_batches_that_were_read_are_all_counted(tmp_path: Path, compared: Compared) -> None:
    one = Training()
    with attach(one.model, one.optimizer, results_dir=tmp_path, quiet=True) as seen:
        for number, x in enumerate(one.loader):
            if number == 4:
                for x in DataLoader([torch.randn(4) for _ in range(1000)], batch_size=2):  # noqa: B007, PLW2901
                    one.look(seen._watch)
                one.model(x).mean()
                one.look(seen._watch)
            one.step(x)
    assert compared.folds == 1 and one.longest[1] < 300
    result = seen.run.results[0]
    assert result.steps[0].columns["samples"].tolist() == [4, 4, 4, 4, 4 + 1000, 4]
    assert result.facts["accumulation_steps"] == 1
    assert seen._watch.trained.micro_steps == {1: 5, 2: 1}  # of 501 batches two were called


def a_day(probe: LoopProbe, host: HostClock, calls: int) -> list[int]:
    """A step, and then an evaluation of 24 hours: waits, calls of the model, and the rest; gives the bytes kept."""
    probe.enter(TRAINS)
    host.spend(5)
    probe.leave()
    probe.end_step(samples=8)
    held = []
    call_ns = 86_400_000 * MS // calls
    for number in range(calls):
        for code, part in ((OTHER, 5), (ASKS, 10)):
            probe.enter(code)
            host.now_ns += call_ns // part
            probe.leave()
        host.now_ns += call_ns - call_ns // 5 - call_ns // 10
        if number % (calls // 24) == calls // 24 - 1:  # each hour
            held.append(probe._marks.buffer_info()[1] * 8 + sum(folding._sums.nbytes for folding in probe._folds))
    probe.enter(DATA_WAIT)
    host.spend(3)
    probe.leave()
    for code, took_ms in ((TRAINS, 7), (BACKWARD, 11), (OPTIMIZER, 13)):
        host.spend(1)
        probe.enter(code)
        host.spend(took_ms)
        if code != OPTIMIZER:
            probe.leave()
    probe.end_step(samples=8)
    probe.end_block()
    return held


@pytest.mark.slow
def test_the_evaluation_of_a_day_is_kept_in_as_much_as_that_of_an_hour() -> None:
    calls = 240_000
    host = HostClock()
    probe = LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0)
    tracemalloc.start()
    held = a_day(probe, host, calls)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # At most the first marks of the step, and as many again before it is looked.
    most = 8 * (long_step.KEPT_MARKS + 2 * long_step.MOST_MARKS)
    assert max(held) < most and max(held[12:]) <= max(held[:12])  # all of the 960,000 marks take 7.7 MB
    assert peak < 7_000_000
    table = probe.take()
    assert table.wall_ns.tolist() == [5 * MS, 86_400_000 * MS + 37 * MS]
    # Waiting and the day are other; between wait and forward the loop prepares; the loss and clipping are bridged.
    told = {name: table.columns[name].tolist()[1] for name in table.columns}
    assert [told[f"host_{phase}_ns"] / MS for phase in ("data_wait", "forward", "backward", "optimizer")] == [
        *(3, 7 + 1, 11, 13 + 1)
    ]
    assert told["prepare_ns"] == MS and told["before_update_ns"] == MS
    assert (told["forwards"], told["forwards_without_gradients"], told["backwards"]) == (1, calls, 1)
    assert probe._folds == [] and probe.state.full_at == long_step.MOST_MARKS


@pytest.mark.usefixtures("soon")
def test_moments_in_a_long_gap_lie_where_the_time_of_the_gap_does() -> None:
    host = HostClock()
    probe = LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0)
    began = host.now_ns
    a_day(probe, host, 2400)
    last = host.now_ns
    assert len(probe._folds) == 1
    noon, end = began + 43_200_000 * MS, last - 6 * MS
    assert probe.phases_at([began + MS, noon, end, last + 1]) == [
        ("forward", ""),
        ("other", ""),
        ("optimizer", ""),
        None,
    ]
    # Where the gap holds other phases as well nobody knows.
    probe.take()
    probe.start()
    for _ in range(400):
        for code in (TRAINS, BACKWARD):
            probe.enter(code)
            host.spend(1)
            probe.leave()
    middle = host.now_ns - 400 * MS
    probe.end_step(samples=1)
    probe.end_block()
    assert len(probe._folds) == 1 and probe.phases_at([middle, host.now_ns]) == [None, ("backward", "")]
    assert probe.take().columns["backwards"].tolist() == [400]


class Counted(SimulatedDevice):
    """Knows how many of its events are held."""

    def __init__(self, host: HostClock) -> None:
        super().__init__(host)
        self.held = 0

    def record(self) -> Any:
        self.held += 1
        return super().record()

    def recycle(self, event: Any) -> None:
        super().recycle(event)
        self.held -= 1


def on_a_device(calls: int) -> tuple[StepTable, int, LoopProbe]:
    """Steps with an evaluation between them; the table, and the most events that were held."""
    host = HostClock()
    device = Counted(host)
    probe = LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0)
    probe.use_events(device)
    most = 0
    for number in range(4):
        for _ in range(calls if number == 2 else 0):
            probe.enter(ASKS)
            device.launch(1, enqueue_ms=0.25)
            probe.leave()
            host.spend(1)
            most = max(most, device.held)
        for code, took_ms in ((DATA_WAIT, 0), (FORWARD, 10), (BACKWARD, 20), (OPTIMIZER, 5)):
            probe.enter(code)
            device.launch(took_ms, enqueue_ms=0.5)
            probe.leave()
        probe.end_step(samples=1)
    probe.end_block()
    drift = probe.clock_drift
    assert drift is not None and abs(drift) < 1e-9
    return probe.take(), most, probe


def test_on_a_device_the_events_of_an_evaluation_are_free_again(monkeypatch: pytest.MonkeyPatch, soon: None) -> None:
    monkeypatch.setattr(loop_probe, "_IN_FLIGHT", 32)
    table, most, probe = on_a_device(1500)
    monkeypatch.setattr(long_step, "_LEAST", 1 << 40)
    whole, without, _ = on_a_device(1500)
    assert most < 700 < 3000 < without
    assert table.columns.keys() == whole.columns.keys()
    for name, values in whole.columns.items():
        np.testing.assert_allclose(table.columns[name], values, rtol=1e-12, atol=0.01, err_msg=name)
    assert probe.forced_syncs == 0
    device_ms = [float(table.columns[f"device_{phase}_ns"][2]) / MS for phase in ALL_PHASES]
    assert device_ms[1:5] == pytest.approx([0, 10, 20, 5], abs=1.5)


@pytest.mark.usefixtures("soon")
def test_a_watch_that_never_sees_a_step_still_says_what_it_saw(tmp_path: Path) -> None:
    one = Training()
    with attach(one.model, one.optimizer, results_dir=tmp_path, quiet=True) as seen:
        trains_by_hand(one, lambda: one.look(seen._watch))
    assert one.longest[0] < 700
    (gap,) = [gap for gap in seen._watch.observations.gaps if gap.signal == "steps"]
    assert "no optimizer stepped; backward was called 160 times" in gap.why


def test_what_a_device_does_after_the_last_step_is_no_drift_of_its_clock() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = LoopProbe(bridged=True, clock=host, thread_cpu=lambda: 0)
    probe.use_events(device)
    for code in (FORWARD, BACKWARD, OPTIMIZER):
        probe.enter(code)
        device.launch(50)
        probe.leave()
    probe.end_step(samples=1)
    for _ in range(20):  # an evaluation at the end of the training
        probe.enter(ASKS)
        device.launch(10)
        probe.leave()
    probe.end_block()
    assert probe.clock_drift == pytest.approx(0, abs=1e-9)
    assert float(probe.take().wall_ns[0]) / MS == pytest.approx(150, abs=1)


def test_borders_that_the_device_has_not_passed_yet_are_not_read() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    clock = DeviceClock(device, host, lambda _: None)
    clock.open_block()
    for _ in range(4):
        device.launch(10)
        clock.border()
    assert clock.fold(3) is None  # it does the first of them
    host.spend(25)
    assert clock.fold(3) is None and clock.fold(2) == pytest.approx([10e6, 10e6], abs=1e5)
    assert clock.fold(1) is None and device.recycled == 1  # the first border's; the anchor and the second one stay
    host.spend(20)
    device.captures = True
    assert clock.fold(1) is None
    device.captures = False
    assert clock.fold(1) == pytest.approx([10e6], abs=1e5) and device.recycled == 2
