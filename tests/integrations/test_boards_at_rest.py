"""The boards before the steps: looked at from torch's initialisation of CUDA on, by a pretended driver."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from perf_diagnostics.integrations.readings.boards_at_rest import INTERVAL_NS, LONGEST_NS, BoardsAtRest
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.nvml import open_nvml
from perf_diagnostics.measure.boards.resting import Rest, rest_of
from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.measure.pausing_thread import PausingThread
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended
from tests.measure.simulated_device import HostClock

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"
S = 1_000_000_000


class Machine:
    """Two boards that rest at 50 and 30 W, and a process that comes to use them; the test moves the time."""

    def __init__(self) -> None:
        self.host = HostClock()
        self.boards = [
            PretendedBoard(uuid=A, bus_id="00000000:01:00.0", utilization=0, instant_mw=50_000),
            PretendedBoard(uuid=B, bus_id="00000000:02:00.0", utilization=0, instant_mw=30_000),
        ]
        self.used = [0]
        self.opened = 0
        self.rest = BoardsAtRest(clock=self.host, devices=self.devices, open_reader=self.open)

    def devices(self) -> tuple[DeviceInfo, ...]:
        names = {index: self.boards[index].uuid.removeprefix("GPU-") for index in self.used}
        return tuple(
            DeviceInfo(name=f"cuda:{index}", kind="cuda", model="Tesla T4", uuid=uuid) for index, uuid in names.items()
        )

    def open(self) -> Any:
        self.opened += 1
        return open_nvml()

    def looks(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            assert self.rest._tick() == INTERVAL_NS
            self.host.spend(100)
            for board in self.boards:
                board.energy_mj += board.instant_mw // 10


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "_queued_calls", [])
    monkeypatch.setattr(PausingThread, "start", lambda _thread: None)  # the test looks itself
    made = Machine()
    with pretended(PretendedLibrary(made.boards)):  # type: ignore[arg-type]
        yield made


def initialise() -> None:
    """What torch.cuda does when it is first used: all that waits for it is called."""
    for call, _ in torch.cuda._queued_calls:  # type: ignore[attr-defined]
        call()


def test_a_rest_before_the_steps_is_seen_on_each_board_from_its_first_use_on(machine: Machine) -> None:
    machine.rest.begin()
    assert machine.opened == 0 and machine.rest._thread is None  # CUDA is not there yet, and nobody looks
    initialise()
    machine.looks(4)
    machine.used.append(1)
    machine.looks(8)
    machine.boards[0].utilization = machine.boards[1].utilization = 90
    machine.looks(1)
    machine.rest.end()
    series = machine.rest.series()
    rests = [rest_of(board, series) for board in (A, B)]
    assert all(isinstance(one, Rest) for one in rests), rests
    assert [(one.power_w, one.seconds) for one in rests if isinstance(one, Rest)] == [
        (pytest.approx(50), pytest.approx(12 - 0.1 - 2)),
        (pytest.approx(30), pytest.approx(8 - 0.1 - 2)),
    ]
    assert machine.opened == 1


def test_a_device_that_works_before_the_steps_shows_no_baseline(machine: Machine) -> None:
    machine.boards[0].utilization = 3
    machine.rest.begin()
    initialise()
    machine.looks(20)
    rest = rest_of(A, machine.rest.series())
    assert not isinstance(rest, Rest) and "for 0 s at most" in rest.why


def test_where_cuda_is_there_already_it_looks_at_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    machine.rest.begin()
    assert machine.rest._thread is not None
    assert torch.cuda._queued_calls == []  # type: ignore[attr-defined]


def test_a_torch_without_cuda_is_not_asked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    machine.rest.begin()
    assert torch.cuda._queued_calls == [] and machine.opened == 0  # type: ignore[attr-defined]


def test_after_the_end_nothing_is_begun(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.rest.begin()
    machine.rest.end()
    initialise()
    assert machine.rest._thread is None
    machine.rest.begin()
    monkeypatch.setattr(os, "getpid", lambda: 1)  # a process that was forked off, which uses CUDA itself
    initialise()
    assert machine.rest._thread is None


def test_nobody_looks_for_hours(machine: Machine) -> None:
    machine.rest.begin()
    initialise()
    machine.looks(1)
    machine.host.now_ns += LONGEST_NS
    assert machine.rest._tick() is None


def test_without_a_driver_the_script_is_none_the_wiser(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_driver() -> Any:
        raise Unreadable("no NVIDIA driver library", lasting=True)

    monkeypatch.undo()
    monkeypatch.setattr(torch.version, "cuda", "12.6")
    monkeypatch.setattr(torch.cuda, "_queued_calls", [])
    rest = BoardsAtRest(clock=machine.host, devices=machine.devices, open_reader=no_driver)
    rest.begin()
    initialise()
    assert rest._thread is not None
    rest._thread._thread.join(10)  # type: ignore[union-attr]
    assert not rest._thread.runs and rest.series() == ()
