"""The processors' energy over the steady steps of an own loop, by a pretended /sys/class/powercap."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.readings import processor_energy, steady_readings
from perf_diagnostics.integrations.readings.processor_energy import ProcessorEnergy
from perf_diagnostics.measure.host.rapl import RaplDomain, RaplInstrument
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.records import Gap, TrialResult
from tests.measure.host.test_rapl import RANGE_UJ, Powercap
from tests.measure.simulated_device import HostClock

S = 1_000_000_000
DOMAINS = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram"}
NO_COUNTERS = "no RAPL counters in /sys/class/powercap: a virtual machine, or a processor or system without them"


class Machine:
    """A package of 100 W whose counter is about to wrap, and 10 W of memory; time and readings are the test's."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PausingThread, "start", lambda _thread: None)
        self.host, self.observations = HostClock(), Observations()
        self.powercap = Powercap(folder, DOMAINS)
        self.began_ns = self.host.now_ns
        self.energy = ProcessorEnergy(
            self.observations,
            clock=self.host,
            instrument=RaplInstrument(folder),
            wall_clock=lambda: self.host.now_ns + 7 * S,
        )
        self.set()

    def set(self) -> None:
        seconds = (self.host.now_ns - self.began_ns) / S
        self.powercap.set_uj("intel-rapl:0", round(RANGE_UJ - 300e6 + 100e6 * seconds) % RANGE_UJ)
        self.powercap.set_uj("intel-rapl:0:0", round(10e6 * seconds))

    def run(self, seconds: float, *, looks: bool = True) -> None:
        for _ in range(round(seconds * 5)):
            self.host.spend(200)
            self.set()
            if looks:
                self.energy._sampler.tick()  # type: ignore[union-attr]


def test_the_energy_is_that_of_the_steady_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.run(3, looks=False)  # imports and warm-up
    machine.energy.begin()
    machine.run(8)
    ended_ns = machine.host.now_ns
    machine.run(4)  # what the script does after its last step
    (power,), quantities = machine.energy.stop(ended_ns)
    values = {one.name: (one.value, one.unit, one.source) for one in quantities}
    assert values == {
        "energy_cpu": (pytest.approx(110 * 8), "J", "RAPL package + dram, whole machine"),
        "energy_cpu_window_s": (8, "s", "RAPL package + dram, whole machine"),
    }
    assert power.name == "cpu_power" and power.values.tolist() == pytest.approx([110.0] * len(power.values))
    assert machine.observations.gaps == ()


def test_what_was_used_so_far_is_known_to_the_last_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.energy.begin()
    began_ns = machine.host.now_ns
    machine.run(6)
    machine.run(0.6, looks=False)  # and the thread has not looked since
    used = machine.energy.used(machine.host.now_ns)
    assert used is not None and not isinstance(used.domains, Gap)
    assert [(one.domain, float(one.curve.joules[-1])) for one in used.domains] == [
        ("intel-rapl:0 package-0", pytest.approx(660)),
        ("intel-rapl:0:0 dram", pytest.approx(66)),
    ]
    assert (used.began.host_ns, used.began.wall_ns) == (began_ns, began_ns + 7 * S)
    assert used.ended.host_ns - began_ns == round(6.6 * S)
    with machine.energy._sampler._reading:  # type: ignore[union-attr]
        assert machine.energy.used(machine.host.now_ns) is None  # a reading under way is not waited for


def test_a_window_that_is_too_short_is_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.energy.begin()
    machine.run(4)
    series, quantities = machine.energy.stop(machine.host.now_ns)
    assert [one.name for one in series] == ["cpu_power"] and quantities == ()
    (gap,) = machine.observations.gaps
    assert gap.signal == "energy_cpu"
    assert gap.why.startswith("insufficient_window: the window of 4 s is shorter than 5 s")


def test_counters_that_cannot_be_read_any_more_are_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    machine.energy.begin()
    machine.run(6)
    machine.powercap.remove("intel-rapl:0")
    machine.host.spend(6000)
    _, quantities = machine.energy.stop(machine.host.now_ns)
    assert quantities == ()
    whys = {gap.signal: gap.why for gap in machine.observations.gaps}
    assert whys["energy_cpu"].startswith("energy_uj of intel-rapl:0: No such file or directory")


def test_without_counters_there_is_no_thread(tmp_path: Path) -> None:
    observations = Observations()
    energy = ProcessorEnergy(observations, clock=HostClock(), instrument=RaplInstrument(tmp_path / "none"))
    energy.begin()
    assert not energy.readable and energy.used(9 * S) is None and energy.stop(9 * S) == ((), ())
    assert observations.gaps == (Gap("cpu_power", NO_COUNTERS), Gap("energy_cpu", NO_COUNTERS))


def trained(folder: Path, *, steps: int = 12, step_s: float = 0.0) -> TrialResult:
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, results_dir=folder, quiet=True) as watched:
        for _ in range(steps):
            time.sleep(step_s)
            model(torch.ones(2, 4)).mean().backward()
            optimizer.step()
    assert watched.run is not None
    return watched.run.results[0]


def test_an_own_loop_records_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Powercap(tmp_path / "powercap", DOMAINS)
    watts = {"package-0": 100, "dram": 10}
    monkeypatch.setattr(RaplDomain, "read_uj", lambda domain: time.perf_counter_ns() * watts[domain.name] // 1000)
    monkeypatch.setattr(processor_energy, "LEAST_WINDOW_S", 0.0)
    monkeypatch.setattr(processor_energy, "RaplInstrument", lambda: RaplInstrument(tmp_path / "powercap"))
    result = trained(tmp_path / "results", step_s=0.02)
    joules, window_s = result.value("energy_cpu"), result.value("energy_cpu_window_s")
    assert joules is not None and window_s is not None, result.gap("energy_cpu")
    assert 9 * 0.02 <= window_s < 10  # the first three of the steps are warm-up
    assert joules == pytest.approx(110 * window_s, rel=0.1)  # a reading may come some ms after its time was taken
    assert result.gap("energy_cpu") is None and result.series_named("cpu_power") is not None


def test_an_own_loop_says_why_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object, **named: object) -> ProcessorEnergy:
        return ProcessorEnergy(*given, instrument=RaplInstrument(tmp_path / "none"), **named)  # type: ignore[arg-type]

    monkeypatch.setattr(steady_readings, "ProcessorEnergy", none)
    assert trained(tmp_path / "a").gap("energy_cpu") == Gap("energy_cpu", NO_COUNTERS)
    too_short = trained(tmp_path / "b", steps=2)
    assert too_short.gap("energy_cpu") == Gap(
        "energy_cpu", "no steady step was seen, over which the processors' counters are read"
    )
