"""What is sampled around a trial, by the devices it runs on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perf_diagnostics.measure.boards.boards import Board
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.gpu import GpuInstrument
from perf_diagnostics.measure.boards.numa import Nearness
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.trials.launch import instruments


def test_each_board_is_watched_from_near_and_far(monkeypatch: pytest.MonkeyPatch) -> None:
    board: Any = SimpleNamespace(board=SimpleNamespace(pci_bus_id="0000:3b:00.0"))
    monkeypatch.setattr(instruments, "gpu_instruments", lambda *_arguments, **_named: (board,))
    found = instruments.trial_instruments([], Observations())
    assert board in found
    assert sum(isinstance(one, Nearness) for one in found) == 1


def test_a_trial_on_the_cpu_is_near_to_nothing() -> None:
    assert not any(isinstance(one, Nearness) for one in instruments.trial_instruments([], Observations()))


def test_devices_are_described_with_the_boards_that_are_sampled() -> None:
    reader: Any = SimpleNamespace()
    board = Board(uuid="GPU-bb", driver="550.54", power_limit_w=60.0, pcie_width_max=16)
    gpu = DeviceInfo(name="cuda:1", kind="cuda", model="Tesla T4", uuid="bb")
    (found,) = instruments.described([gpu], [Nearness(None), GpuInstrument(reader, board, Observations())])
    assert (found["name"], found["model"], found["driver"]) == ("cuda:1", "Tesla T4", "550.54")
    assert (found["power_limit_w"], found["pcie_width_max"]) == (60.0, 16)
    (unread,) = instruments.described([gpu], [])
    assert unread["model"] == "Tesla T4" and "driver" not in unread
    assert instruments.described([], []) == ()
