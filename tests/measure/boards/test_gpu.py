"""Sampling a board during a trial: what it reports is kept, what it does not becomes a gap with the board's name."""

from types import SimpleNamespace

import pynvml
import pytest

from perf_diagnostics.measure.boards.boards import Board, PowerKind
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.measure.boards.gpu import BOARD_SIGNALS, PROCESS_MEMORY, GpuInstrument, gpu_instruments
from perf_diagnostics.measure.boards.nvml import NvmlReader
from perf_diagnostics.measure.boards.power import Energy, EnergyMethod, energy
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.observation import Observations, Sampler, Unreadable
from perf_diagnostics.records import Gap, Series
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended

MS = 1_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


class Reader:
    """A board whose readings are set; an exception stands for a reading that fails."""

    unlisted: tuple[str, ...] = ()

    def __init__(self, **readings: float | Exception) -> None:
        self.readings: dict[str, float | Exception] = dict.fromkeys(BOARD_SIGNALS, 1.0) | readings
        self.by_pid: dict[int, int] = {}
        self.asked: list[str] = []

    def boards(self) -> tuple[Board, ...]:
        return (Board(uuid="GPU-1", power_kind=PowerKind.INSTANT),)

    def read(self, uuid: str, signal: str) -> float:
        self.asked.append(signal)
        value = self.readings[signal]
        if isinstance(value, Exception):
            raise value
        return value

    def process_memory(self, uuid: str) -> dict[int, int]:
        return self.by_pid


@pytest.fixture(autouse=True)
def two_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trial's tree: process 100 and its worker 101."""
    monkeypatch.setattr(memory, "process_tree", lambda pid: [SimpleNamespace(pid=pid), SimpleNamespace(pid=pid + 1)])


def sampled(reader: Reader, *, times_ms: list[int]) -> tuple[dict[str, Series], tuple[Gap, ...]]:
    observations = Observations()
    instrument = GpuInstrument(reader, reader.boards()[0], observations)
    instrument.start(100)
    for time_ms in times_ms:
        instrument.sample(time_ms * MS)
    series, _ = instrument.stop()
    return {one.name: one for one in series}, observations.gaps


def test_power_and_energy_are_read_each_time_the_rest_each_200_ms() -> None:
    found, _ = sampled(Reader(), times_ms=[0, 50, 100, 150, 200, 250])
    assert found["gpu_power"].times_ns.tolist() == [t * MS for t in (0, 50, 100, 150, 200, 250)]
    assert found["gpu_temperature"].times_ns.tolist() == [0, 200 * MS]


def test_the_link_is_read_each_500_ms_for_the_driver_counts_20_ms_of_it() -> None:
    reader = Reader(gpu_pcie_received=0.0, gpu_pcie_generation=4.0, gpu_pcie_width=16.0)
    found, _ = sampled(reader, times_ms=list(range(0, 1001, 50)))
    assert found["gpu_pcie_received"].times_ns.tolist() == [0, 500 * MS, 1000 * MS]
    assert found["gpu_pcie_received"].values.tolist() == [0.0, 0.0, 0.0]  # measured: nothing came in
    assert found["gpu_pcie_width"].values.tolist() == [16.0, 16.0, 16.0]


def test_a_board_that_does_not_count_its_link_leaves_a_gap_and_no_zero() -> None:
    reader = Reader(gpu_pcie_received=Unreadable("GPU-1: this board does not report it", lasting=True))
    found, gaps = sampled(reader, times_ms=[0, 500, 1000])
    assert "gpu_pcie_received" not in found and reader.asked.count("gpu_pcie_received") == 1
    assert Gap("gpu_pcie_received", "GPU-1: this board does not report it") in gaps


def test_every_series_names_the_board() -> None:
    found, _ = sampled(Reader(), times_ms=[0])
    assert {one.source for one in found.values()} == {"NVML GPU-1"}


def test_energy_counts_from_the_trials_beginning() -> None:
    reader, observations = Reader(gpu_energy=7000.0), Observations()
    instrument = GpuInstrument(reader, reader.boards()[0], observations)
    instrument.start(100)
    instrument.sample(0)
    reader.readings["gpu_energy"] = 7030.5
    instrument.sample(50 * MS)
    (series,) = (one for one in instrument.stop()[0] if one.name == "gpu_energy")
    assert series.values.tolist() == [0.0, 30.5]


@pytest.mark.parametrize(("signal", "field"), [("gpu_thermal_violation", "thermal"), ("gpu_power_violation", "power")])
def test_time_under_a_limit_counts_from_the_trials_beginning(signal: str, field: str) -> None:
    """By the driver's own total, each half second."""
    board, observations = PretendedBoard(uuid="GPU-aa"), Observations()
    with pretended(PretendedLibrary([board])) as nvml:
        (only,) = gpu_instruments([gpu(0, "aa")], observations, open_reader=lambda: NvmlReader(nvml))
        only.start(100)
        for time_ms in range(0, 1001, 100):
            only.sample(time_ms * MS)
            more = getattr(board, f"{field}_violation_ns") + 25 * MS
            setattr(board, f"{field}_violation_ns", more)
        found = {one.name: one for one in only.stop()[0]}
    assert found[signal].times_ns.tolist() == [0, 500 * MS, 1000 * MS]
    assert found[signal].values.tolist() == pytest.approx([0.0, 0.125, 0.25]) and found[signal].unit == "s"
    other = ({"gpu_thermal_violation", "gpu_power_violation"} - {signal}).pop()
    assert found[other].values.tolist() == [0.0, 0.0, 0.0]  # measured: it never held it back


def test_a_board_that_does_not_count_violations_leaves_gaps_and_its_reasons_are_still_sampled() -> None:
    board, observations = PretendedBoard(uuid="GPU-aa"), Observations()
    board.refusals["nvmlDeviceGetViolationStatus"] = int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    with pretended(PretendedLibrary([board])) as nvml:
        (only,) = gpu_instruments([gpu(0, "aa")], observations, open_reader=lambda: NvmlReader(nvml))
        only.start(100)
        for time_ms in (0, 500, 1000):
            only.sample(time_ms * MS)
        found = {one.name: one for one in only.stop()[0]}
    assert not {"gpu_thermal_violation", "gpu_power_violation"} & set(found)
    why = "GPU-aa: this board does not report it"
    for signal in ("gpu_thermal_violation", "gpu_power_violation"):
        assert Gap(signal, why) in observations.gaps  # once: it was asked once
    assert found["gpu_throttle_reasons"].values.tolist() == [4, 4, 4]


def test_a_signal_the_board_does_not_report_is_asked_once_and_the_others_go_on() -> None:
    reader = Reader(gpu_utilization=Unreadable("GPU-1: this board does not report it", lasting=True))
    found, gaps = sampled(reader, times_ms=[0, 200, 400])
    assert reader.asked.count("gpu_utilization") == 1
    assert Gap("gpu_utilization", "GPU-1: this board does not report it") in gaps
    assert "gpu_utilization" not in found
    assert len(found["gpu_temperature"].values) == 3


def test_an_idle_board_reads_measured_zeros() -> None:
    found, gaps = sampled(Reader(gpu_utilization=0.0, gpu_power=0.0), times_ms=[0, 200])
    assert found["gpu_utilization"].values.tolist() == [0.0, 0.0]
    assert found["gpu_power"].values.tolist() == [0.0, 0.0]
    assert {gap.signal for gap in gaps} == {PROCESS_MEMORY}


def test_a_failed_reading_is_no_sample() -> None:
    reader, observations = Reader(), Observations()
    instrument = GpuInstrument(reader, reader.boards()[0], observations)
    instrument.start(100)
    for time_ms in (0, 50, 100):
        reader.readings["gpu_power"] = Unreadable("GPU-1: Timeout") if time_ms == 50 else 200.0
        instrument.sample(time_ms * MS)
    (power,) = (one for one in instrument.stop()[0] if one.name == "gpu_power")
    assert power.times_ns.tolist() == [0, 100 * MS]
    assert power.values.tolist() == [200.0, 200.0]
    assert Gap("gpu_power", "GPU-1: Timeout") in observations.gaps


def test_three_failures_in_a_row_end_a_signal() -> None:
    reader = Reader(gpu_power=RuntimeError("unknown"))
    found, gaps = sampled(reader, times_ms=[0, 50, 100, 150, 200])
    assert reader.asked.count("gpu_power") == 3
    assert Gap("gpu_power", "RuntimeError: unknown; failed 3 times") in gaps
    assert len(found["gpu_energy"].values) == 5


def test_memory_of_the_trials_own_processes_only() -> None:
    reader = Reader(gpu_memory_used=900.0)
    reader.by_pid = {100: 300, 101: 50, 7: 500}
    found, gaps = sampled(reader, times_ms=[0])
    assert found["gpu_memory_process"].values.tolist() == [350]
    assert found["gpu_memory_used"].values.tolist() == [900]
    assert gaps == ()


def test_memory_is_absent_until_the_trial_is_named_and_zero_once_it_has_let_go() -> None:
    reader, observations = Reader(), Observations()
    instrument = GpuInstrument(reader, reader.boards()[0], observations)
    instrument.start(100)
    for time_ms, by_pid in ((0, {}), (200, {100: 64}), (400, {7: 500})):
        reader.by_pid = by_pid
        instrument.sample(time_ms * MS)
    (own,) = (one for one in instrument.stop()[0] if one.name == PROCESS_MEMORY)
    assert own.times_ns.tolist() == [200 * MS, 400 * MS]
    assert own.values.tolist() == [64, 0]
    assert observations.gaps == ()


def test_a_trial_the_driver_never_names_has_no_memory_and_a_reason() -> None:
    reader = Reader()
    reader.by_pid = {7: 500}
    found, gaps = sampled(reader, times_ms=[0, 200])
    assert PROCESS_MEMORY not in found
    (gap,) = gaps
    assert gap.signal == PROCESS_MEMORY
    assert "named none of the trial's processes" in gap.why


def memory_numbers(*samples: tuple[float | Exception, dict[int, int]]) -> dict[str, float]:
    """Quantities after these samples, 200 ms apart: bytes in use by everybody, and bytes by process."""
    reader, observations = Reader(), Observations()
    instrument = GpuInstrument(reader, reader.boards()[0], observations)
    instrument.start(100)
    for index, (used, by_pid) in enumerate(samples):
        reader.readings["gpu_memory_used"], reader.by_pid = used, by_pid
        instrument.sample(index * 200 * MS)
    return {quantity.name: quantity.value for quantity in instrument.stop()[1]}


def test_foreign_memory_is_subtracted_sample_by_sample() -> None:
    # others hold 500, then 700, then 100; the trial grows meanwhile from 300 to 900
    found = memory_numbers((800, {100: 300}), (1300, {100: 600}), (1000, {100: 900}))
    assert found == {"device_memory_process_peak": 900, "device_memory_foreign": 700}


def test_nobody_elses_memory_is_a_measured_zero_even_if_the_trial_grew_between_the_two_readings() -> None:
    assert memory_numbers((300, {100: 300}), (590, {100: 600}))["device_memory_foreign"] == 0


def test_what_is_in_use_before_the_trial_has_a_context_is_foreign() -> None:
    # the sample right before the driver names the trial may hold its context already, so it does not count
    assert memory_numbers((400, {}), (900, {}), (700, {100: 600}))["device_memory_foreign"] == 400


def test_a_trial_whose_processes_are_hidden_has_no_foreign_memory_rather_than_all_of_it() -> None:
    assert memory_numbers((400, {7: 400}), (900, {7: 400})) == {}


def test_a_reading_that_failed_is_no_sample_of_foreign_memory() -> None:
    lost = Unreadable("GPU-1: Timeout")
    assert memory_numbers((500, {100: 300}), (lost, {100: 300}))["device_memory_foreign"] == 200


# From the devices of a trial to instruments


def gpu(index: int, uuid: str) -> DeviceInfo:
    return DeviceInfo(name=f"cuda:{index}", kind="cuda", model="Tesla T4", uuid=uuid)


def test_cuda_visible_devices_swaps_indexes_but_not_boards() -> None:
    boards = [PretendedBoard(uuid="GPU-aa", temperature=40), PretendedBoard(uuid="GPU-bb", temperature=80)]
    with pretended(PretendedLibrary(boards)) as nvml:
        (only,) = gpu_instruments([gpu(0, "bb")], Observations(), open_reader=lambda: NvmlReader(nvml))
        only.start(100)
        only.sample(0)
        (temperature,) = (one for one in only.stop()[0] if one.name == "gpu_temperature")
    assert temperature.source == "NVML GPU-bb"
    assert temperature.values.tolist() == [80]


def test_a_trial_on_the_cpu_needs_no_board_and_has_no_gap() -> None:
    observations = Observations()
    cpu = DeviceInfo(name="cpu", kind="cpu", model="any")
    assert gpu_instruments([cpu], observations, open_reader=lambda: pytest.fail("asked for a driver")) == ()
    assert observations.gaps == ()


def test_without_a_driver_library_each_signal_has_its_gap() -> None:
    def none_here() -> Reader:
        raise Unreadable("no NVIDIA driver library", lasting=True)

    observations = Observations()
    assert gpu_instruments([gpu(0, "aa")], observations, open_reader=none_here) == ()
    signals = (*BOARD_SIGNALS, PROCESS_MEMORY)
    assert observations.gaps == tuple(Gap(signal, "no NVIDIA driver library") for signal in signals)


def test_a_device_whose_board_is_not_listed_has_gaps_and_the_other_is_sampled() -> None:
    observations = Observations()
    with pretended(PretendedLibrary([PretendedBoard(uuid="GPU-aa")])) as nvml:
        found = gpu_instruments([gpu(0, "aa"), gpu(1, "bb")], observations, open_reader=lambda: NvmlReader(nvml))
    assert [instrument.board.uuid for instrument in found] == ["GPU-aa"]
    assert "the driver lists no board GPU-bb (listed: GPU-aa)" in observations.gaps[0].why


def test_two_boards_over_a_run_and_one_of_them_lost_midway() -> None:
    """The whole way: driver, instruments, sampler, energy. 300 W and 100 W; the second falls off the bus after 6 s."""
    boards = [PretendedBoard(uuid="GPU-aa"), PretendedBoard(uuid="GPU-bb")]
    clock, observations = Clock(), Observations()
    with pretended(PretendedLibrary(boards)) as nvml:
        instruments = gpu_instruments([gpu(0, "aa"), gpu(1, "bb")], observations, open_reader=lambda: NvmlReader(nvml))
        sampler = Sampler(instruments, observations, clock=clock)
        sampler.start(100)
        for step in range(1, 241):
            clock.now_ns = step * 50 * MS
            tick = step // 2  # the counters move each 100 ms
            boards[0].energy_mj, boards[1].energy_mj = 5_000_000 + tick * 30_000, 5_000_000 + tick * 10_000
            if step == 120:
                lost = int(pynvml.NVML_ERROR_GPU_IS_LOST)
                functions = ("TotalEnergyConsumption", "PowerUsage", "FieldValues", "UtilizationRates", "MemoryInfo_v2")
                others = ("Temperature", "ClockInfo", "CurrentClocksEventReasons", "ComputeRunningProcesses_v3")
                boards[1].refusals = {f"nvmlDeviceGet{name}": lost for name in (*functions, *others)}
            sampler.tick()
        series, _ = sampler.stop()

    def over(start_s: float, end_s: float, *uuids: str) -> Energy | Gap:
        used = [one for one in series if any(uuid in one.source for uuid in uuids)]
        return energy(used, window_start_ns=int(start_s * 1e9), window_end_ns=int(end_s * 1e9), steps=10, boards=uuids)

    first = over(1, 11, "GPU-aa")
    assert isinstance(first, Energy)
    assert first.joules == pytest.approx(3000, rel=0.01)
    assert first.boards[0].method is EnergyMethod.COUNTER
    before_the_loss = over(0.5, 5.7, "GPU-aa", "GPU-bb")
    assert isinstance(before_the_loss, Energy)
    assert before_the_loss.joules == pytest.approx(5.2 * 400, rel=0.01)
    across_it = over(1, 11, "GPU-aa", "GPU-bb")
    assert isinstance(across_it, Gap)
    assert across_it.why.startswith("GPU-bb: no reading of the energy counter for")
    assert (
        Gap("gpu_power", "GPU-bb: the GPU is lost: it fell off the bus or the driver gave it up") in observations.gaps
    )
