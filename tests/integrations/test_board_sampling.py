"""The board beside a training that is not ours: sampled from a thread, ever more rarely, its energy counted."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from perf_diagnostics.integrations import board_sampling
from perf_diagnostics.integrations.board_sampling import BoardSampling, _Slowing, devices_of
from perf_diagnostics.measure import boards
from perf_diagnostics.measure.devices import DeviceInfo
from perf_diagnostics.measure.gpu import GpuInstrument, gpu_instruments
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Series
from tests.measure.simulated_device import HostClock

S = 1_000_000_000


class Board:
    """A board of 300 W whose energy counter moves at every reading."""

    name, signals = "board", ("gpu_energy",)

    def __init__(self, clock: HostClock) -> None:
        self.clock, self.times = clock, []

    def start(self, pid: int) -> None:
        self.began = self.clock.now_ns

    def sample(self, now_ns: int) -> None:
        self.times.append(now_ns)

    def stop(self):
        joules = [300.0 * (at - self.began) / S for at in self.times]
        return (Series("gpu_energy", "J", "NVML GPU-1", self.times, joules),), ()


def test_a_cpu_has_no_board() -> None:
    observations = Observations()
    assert devices_of("cpu") == ()
    nothing = BoardSampling("cpu", observations, clock=HostClock())
    nothing.start()
    assert nothing.stop(10, 5) == ((), ()) and observations.gaps == ()
    assert nothing.described == ()


def test_the_device_is_described_with_its_boards_driver_and_limits() -> None:
    board = boards.Board(uuid="GPU-bb", driver="550.54", power_limit_w=300.0, default_power_limit_w=400.0)
    reader: Any = SimpleNamespace(boards=lambda: (board,), unlisted=())

    def instruments(devices: Sequence[DeviceInfo], observations: Observations) -> tuple[GpuInstrument, ...]:
        return gpu_instruments(devices, observations, open_reader=lambda: reader)

    a100 = DeviceInfo(name="cuda:0", kind="cuda", model="NVIDIA A100-SXM4-80GB", uuid="bb")
    sampling = BoardSampling(
        "cuda:0", Observations(), clock=HostClock(), instruments=instruments, devices=lambda _name: (a100,)
    )
    (described,) = sampling.described
    assert (described["name"], described["model"], described["uuid"]) == ("cuda:0", a100.model, "bb")
    assert (described["driver"], described["power_limit_w"], described["default_power_limit_w"]) == ("550.54", 300, 400)


def test_an_accelerator_without_a_board_is_described_all_the_same() -> None:
    m2 = DeviceInfo(name="mps", kind="mps", model="Apple M2 Pro")
    sampling = BoardSampling("mps", Observations(), clock=HostClock(), devices=lambda _name: (m2,))
    assert [one["model"] for one in sampling.described] == ["Apple M2 Pro"]


def test_the_energy_of_the_steps_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    host, observations = HostClock(), Observations()
    board = Board(host)
    sampling = BoardSampling("cuda:0", observations, clock=host, instruments=lambda *_: (board,))
    monkeypatch.setattr(sampling._thread._thread, "run", lambda: None)  # the test samples itself
    sampling.start()
    for _ in range(100):
        host.spend(200)
        sampling._thread._sampler.tick()
    series, quantities = sampling.stop(50, host.now_ns)
    found = {quantity.name: quantity.value for quantity in quantities}
    assert found["energy_device"] == pytest.approx(300 * 20, rel=0.02), observations.gaps  # 300 W for 20 s
    assert found["energy_device_steps"] == 50 and series[0].name == "gpu_energy"


def test_sampling_grows_rarer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_sampling, "SAMPLINGS_A_RATE", 100)
    host = HostClock()
    sampler = _Slowing((), Observations(), clock=host)
    sampler.start(1)
    for _ in range(24 * 3600):
        host.spend(1000)
        sampler.tick()
    # A rate's samplings last twice as long each time: 100 a doubling, and a day has some ten of them.
    assert 500 < sampler.samplings < 1300
