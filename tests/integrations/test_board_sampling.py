"""The board beside a training that is not ours: sampled from a thread, ever more rarely, its energy counted."""

from __future__ import annotations

import pytest

from perf_diagnostics.integrations import board_sampling
from perf_diagnostics.integrations.board_sampling import BoardSampling, _Slowing, instruments_of
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
    assert instruments_of("cpu", observations) == ()
    nothing = BoardSampling("cpu", observations, clock=HostClock())
    nothing.start()
    assert nothing.stop(10, 5) == ((), ()) and observations.gaps == ()


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
