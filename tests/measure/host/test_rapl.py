"""Processor energy from a pretended /sys/class/powercap: sums, wraps, refusals."""

from pathlib import Path

import pytest

from perf_diagnostics.measure.host import rapl
from perf_diagnostics.measure.host.rapl import RaplInstrument, rapl_domains
from perf_diagnostics.measure.observation import Guarded, Observations, Unreadable
from perf_diagnostics.records import Gap

RANGE_UJ = 262_143_328_850  # of a real server package


class Powercap:
    """A powercap folder; ``joules`` sets a counter."""

    def __init__(self, folder: Path, domains: dict[str, str]) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._zones: dict[str, Path] = {}
        for zone, name in domains.items():
            (folder / zone).mkdir()
            (folder / zone / "name").write_text(f"{name}\n")
            (folder / zone / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
            self._zones[zone] = folder / zone
            self.set_uj(zone, 0)

    def set_uj(self, zone: str, microjoules: int) -> None:
        (self._zones[zone] / "energy_uj").write_text(f"{microjoules}\n")

    def remove(self, zone: str) -> None:
        (self._zones[zone] / "energy_uj").unlink()


SERVER = {
    "intel-rapl:0": "package-0",
    "intel-rapl:0:0": "dram",
    "intel-rapl:0:1": "core",
    "intel-rapl:1": "package-1",
    "intel-rapl:1:0": "dram",
    "intel-rapl:2": "psys",
    "intel-rapl-mmio:0": "package-0",
}


def s(seconds: float) -> int:
    return int(seconds * 1e9)


def test_packages_and_their_memory_once_each(tmp_path: Path) -> None:
    Powercap(tmp_path, SERVER)
    assert [domain.folder.name for domain in rapl_domains(tmp_path)] == [
        "intel-rapl:0",
        "intel-rapl:0:0",
        "intel-rapl:1",
        "intel-rapl:1:0",
    ]


def test_energy_and_power_of_all_domains_are_summed(tmp_path: Path) -> None:
    powercap = Powercap(tmp_path, SERVER)
    instrument = RaplInstrument(tmp_path)
    instrument.start(1)
    instrument.sample(s(0))
    # in 2 s: packages 100 J and 80 J, memory 10 J each; core, psys and the mmio twin do not count
    for zone, joules in zip(SERVER, (100, 10, 90, 80, 10, 300, 100), strict=True):
        powercap.set_uj(zone, joules * 1_000_000)
    instrument.sample(s(2))
    (power,), (energy, window) = instrument.stop()
    assert power.values.tolist() == [pytest.approx(100.0)]  # 200 J in 2 s
    assert power.times_ns.tolist() == [s(2)]
    assert (energy.name, energy.value, energy.unit) == ("energy_cpu", pytest.approx(200.0), "J")
    assert energy.source == power.source == "RAPL package + dram, whole machine"
    assert (window.name, window.value, window.unit) == ("energy_cpu_window_s", 2.0, "s")


def test_a_processor_without_memory_counter_says_so_in_the_source(tmp_path: Path) -> None:
    Powercap(tmp_path, {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core"})
    instrument = RaplInstrument(tmp_path)
    instrument.start(1)
    assert instrument.source == "RAPL package, whole machine"


def test_a_counter_that_wraps_goes_on(tmp_path: Path) -> None:
    powercap = Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    instrument = RaplInstrument(tmp_path)
    instrument.start(1)
    powercap.set_uj("intel-rapl:0", RANGE_UJ - 30_000_000)
    instrument.sample(s(0))
    powercap.set_uj("intel-rapl:0", 20_000_000)  # 30 J to the end, 20 J from the start
    instrument.sample(s(1))
    (power,), (energy, _) = instrument.stop()
    assert energy.value == pytest.approx(50.0)
    assert power.values.tolist() == [pytest.approx(50.0)]


def test_a_counter_that_starts_again_is_no_wrap_and_no_energy(tmp_path: Path) -> None:
    """Taken for a wrap, a counter that restarts at 0 would add 262 kJ."""
    powercap = Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    observations = Observations()
    instrument = Guarded(RaplInstrument(tmp_path), observations)
    instrument.start(1)
    for second, microjoules in ((0, 5_000_000), (1, 55_000_000), (2, 0), (3, 50_000_000)):
        powercap.set_uj("intel-rapl:0", microjoules)
        instrument.sample(s(second))
    (power,), quantities = instrument.stop()
    assert power.values.tolist() == [pytest.approx(50.0)]
    assert quantities == ()
    why = "package-0: the counter started again during the trial (suspended?)"
    assert observations.gaps == (Gap("cpu_power", why), Gap("energy_cpu", why))


def test_how_the_energy_of_each_domain_came_together_is_known(tmp_path: Path) -> None:
    powercap = Powercap(tmp_path, {"intel-rapl:0": "package-0", "intel-rapl:0:0": "dram"})
    instrument = RaplInstrument(tmp_path)
    instrument.start(1)
    for second, package, memory in (
        (0, RANGE_UJ - 10_000_000, 0),
        (2, 90_000_000, 8_000_000),
        (3, 190_000_000, 8_000_000),
    ):
        powercap.set_uj("intel-rapl:0", package)
        powercap.set_uj("intel-rapl:0:0", memory)
        instrument.sample(s(second))
        assert (instrument.domains() == ()) is (second == 0)  # one reading is no energy
    package, memory = instrument.domains()
    assert (package.domain, memory.domain) == ("intel-rapl:0 package-0", "intel-rapl:0:0 dram")
    assert package.curve.times_ns.tolist() == memory.curve.times_ns.tolist() == [s(0), s(2), s(3)]
    assert package.curve.joules.tolist() == pytest.approx([0, 100, 200])  # over the wrap: 10 J before it and 90 J after
    assert memory.curve.joules.tolist() == pytest.approx([0, 8, 8])


def test_a_counter_that_nobody_read_for_too_long_may_have_wrapped_twice(tmp_path: Path) -> None:
    """262 kJ are 131 s at 2 kW: over less than that a wrap can be told, over more nobody knows how many there were."""
    powercap = Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    for seconds, told in ((130, True), (132, False)):
        observations = Observations()
        instrument = Guarded(RaplInstrument(tmp_path), observations)
        powercap.set_uj("intel-rapl:0", 0)
        instrument.start(1)
        instrument.sample(s(0))
        instrument.sample(s(1))
        powercap.set_uj("intel-rapl:0", 20_000_000_000)
        instrument.sample(s(1 + seconds))
        _, quantities = instrument.stop()
        assert [one.value for one in quantities] == ([pytest.approx(20_000), 1 + seconds] if told else [])
        why = "package-0: nobody read the counter for 132 s, in which it may have wrapped more than once"
        assert [gap.why.startswith(why) for gap in observations.gaps] == ([] if told else [True, True])


def test_a_processor_that_used_nothing_is_a_measured_zero(tmp_path: Path) -> None:
    Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    instrument = RaplInstrument(tmp_path)
    instrument.start(1)
    instrument.sample(s(0))
    instrument.sample(s(1))
    (power,), (energy, _) = instrument.stop()
    assert power.values.tolist() == [0.0]
    assert energy.value == 0.0


def test_one_reading_is_no_energy(tmp_path: Path) -> None:
    Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    instrument = RaplInstrument(tmp_path)
    instrument.start(1)
    instrument.sample(s(0))
    with pytest.raises(Unreadable, match="not read twice"):
        instrument.stop()


def test_a_failed_reading_in_the_middle_loses_no_energy(tmp_path: Path) -> None:
    powercap = Powercap(tmp_path, {"intel-rapl:0": "package-0", "intel-rapl:1": "package-1"})
    observations = Observations()
    instrument = Guarded(RaplInstrument(tmp_path), observations)
    instrument.start(1)
    for second in range(4):
        powercap.set_uj("intel-rapl:0", second * 100_000_000)
        powercap.set_uj("intel-rapl:1", second * 50_000_000)
        if second == 1:
            powercap.remove("intel-rapl:1")
        instrument.sample(s(second))
    (power,), (energy, _) = instrument.stop()
    assert power.times_ns.tolist() == [s(2), s(3)]
    assert power.values.tolist() == [pytest.approx(150), pytest.approx(150)]  # 300 J in 2 s, 150 J in 1 s
    assert energy.value == pytest.approx(450)
    assert observations.gaps[0] == Gap("cpu_power", "energy_uj of intel-rapl:1: No such file or directory")


def test_counters_that_end_early_give_power_but_no_energy_of_the_whole(tmp_path: Path) -> None:
    powercap = Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    instrument = Guarded(RaplInstrument(tmp_path), Observations())
    instrument.start(1)
    instrument.sample(s(0))
    powercap.set_uj("intel-rapl:0", 40_000_000)
    instrument.sample(s(1))
    powercap.remove("intel-rapl:0")
    instrument.sample(s(2))
    (power,), quantities = instrument.stop()
    assert len(power.values) == 1
    assert quantities == ()


@pytest.mark.parametrize("exists", ["no powercap folder", "an empty one", "one with other zones only"])
def test_a_machine_without_counters_is_a_gap(tmp_path: Path, exists: str) -> None:
    folder = tmp_path / "powercap"
    if exists != "no powercap folder":
        Powercap(folder, {"intel-rapl:0": "psys"} if exists == "one with other zones only" else {})
    observations = Observations()
    instrument = Guarded(RaplInstrument(folder), observations)
    instrument.start(1)
    instrument.sample(0)
    assert instrument.stop() == ((), ())
    assert [gap.signal for gap in observations.gaps] == ["cpu_power", "energy_cpu"]
    assert observations.gaps[0].why.startswith("no RAPL counters in /sys/class/powercap: a virtual machine")


def test_counters_that_may_not_be_read_are_a_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Powercap(tmp_path, {"intel-rapl:0": "package-0"})
    read_text = Path.read_text

    def for_root_only(file: Path, **how: str) -> str:
        # These tests may run as root, whom no file mode keeps out.
        if file.name == "energy_uj":
            raise PermissionError(13, "Permission denied")
        return read_text(file, **how)

    monkeypatch.setattr(rapl.Path, "read_text", for_root_only)
    observations = Observations()
    instrument = Guarded(RaplInstrument(tmp_path), observations)
    instrument.start(1)
    assert instrument.dropped
    why = "no permission to read energy_uj of intel-rapl:0 (root only by default since Linux 5.10)"
    assert observations.gaps == (Gap("cpu_power", why), Gap("energy_cpu", why))
