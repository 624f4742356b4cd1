"""The driver's reader, on the real bindings over a pretended driver library."""

import sys
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from perf_diagnostics.measure.boards.boards import Board, PowerKind
from perf_diagnostics.measure.boards.nvml import NvmlReader, open_nvml
from perf_diagnostics.measure.observation import Unreadable
from tests.measure.pretended_nvml import PretendedBoard, PretendedLibrary, pretended

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"


def test_a_board_is_described_in_si_units() -> None:
    with pretended(PretendedLibrary([PretendedBoard()])) as nvml:
        assert NvmlReader(nvml).boards() == (
            Board(
                uuid=UUID,
                pci_bus_id="0000:3b:00.0",
                name="Tesla T4",
                driver="550.54.15",
                power_limit_w=60.0,
                default_power_limit_w=70.0,
                power_kind=PowerKind.INSTANT,
                pcie_generation_max=3,
                pcie_width_max=16,
            ),
        )


def test_every_signal_is_read_in_its_unit() -> None:
    with pretended(PretendedLibrary([PretendedBoard(processes={10: 5, 11: 7})])) as nvml:
        reader = NvmlReader(nvml)
        assert reader.read(UUID, "gpu_energy") == 5000.0  # 5,000,000 mJ
        assert reader.read(UUID, "gpu_power") == 70.25  # the instantaneous field, not the plain 61.5 W
        assert reader.read(UUID, "gpu_utilization") == 37
        assert reader.read(UUID, "gpu_memory_used") == 3 * 2**30  # without the driver's reserve
        assert reader.read(UUID, "gpu_sm_clock") == 1590
        assert reader.read(UUID, "gpu_temperature") == 71
        assert reader.read(UUID, "gpu_throttle_reasons") == 4
        assert reader.read(UUID, "gpu_pcie_received") == 6.2e9  # 6,200,000 KB/s
        assert reader.read(UUID, "gpu_pcie_generation") == 3
        assert reader.read(UUID, "gpu_pcie_width") == 8
        assert reader.read(UUID, "gpu_thermal_violation") == 7.0  # 7,000,000,000 ns
        assert reader.read(UUID, "gpu_power_violation") == 9.0
        assert reader.process_memory(UUID) == {10: 5, 11: 7}


def test_an_older_driver_lists_its_processes_in_the_older_way() -> None:
    third, second = (f"nvmlDeviceGetComputeRunningProcesses_v{number}" for number in (3, 2))
    board = PretendedBoard(processes={10: 5})
    with pretended(PretendedLibrary([board], missing={third})) as nvml:
        assert NvmlReader(nvml).process_memory(UUID) == {10: 5}
    with pretended(PretendedLibrary([board], missing={third, second})) as nvml:
        with pytest.raises(Unreadable, match="too old") as told:
            NvmlReader(nvml).process_memory(UUID)
        assert told.value.lasting


def test_measured_zeros_are_read_as_zero() -> None:
    idle = PretendedBoard(energy_mj=0, instant_mw=0, utilization=0, reasons=0, memory_used=0)
    with pretended(PretendedLibrary([idle])) as nvml:
        reader = NvmlReader(nvml)
        for signal in ("gpu_energy", "gpu_power", "gpu_utilization", "gpu_throttle_reasons", "gpu_memory_used"):
            assert reader.read(UUID, signal) == 0.0
        assert reader.process_memory(UUID) == {}


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (pynvml.NVML_ERROR_NOT_SUPPORTED, "this board does not report it"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "no permission to read it"),
        (pynvml.NVML_ERROR_GPU_IS_LOST, "the GPU is lost: it fell off the bus or the driver gave it up"),
    ],
)
def test_a_lasting_refusal_is_put_into_words(code: int, why: str) -> None:
    board = PretendedBoard()
    with pretended(PretendedLibrary([board])) as nvml:
        reader = NvmlReader(nvml)
        board.refusals["nvmlDeviceGetTotalEnergyConsumption"] = code
        with pytest.raises(Unreadable) as refused:
            reader.read(UUID, "gpu_energy")
        assert (refused.value.why, refused.value.lasting) == (f"{UUID}: {why}", True)
        assert reader.read(UUID, "gpu_utilization") == 37  # the others go on


def test_another_error_keeps_the_drivers_words_and_may_pass() -> None:
    board = PretendedBoard(refusals={"nvmlDeviceGetUtilizationRates": pynvml.NVML_ERROR_TIMEOUT})
    with pretended(PretendedLibrary([board])) as nvml:
        with pytest.raises(Unreadable) as refused:
            NvmlReader(nvml).read(UUID, "gpu_utilization")
        assert (refused.value.why, refused.value.lasting) == (f"{UUID}: Timeout", False)


def test_an_error_code_newer_than_the_bindings_is_named_by_the_library() -> None:
    board = PretendedBoard(refusals={"nvmlDeviceGetUtilizationRates": 4242})
    with pretended(PretendedLibrary([board])) as nvml, pytest.raises(Unreadable, match="pretended error 4242"):
        NvmlReader(nvml).read(UUID, "gpu_utilization")


@pytest.mark.parametrize(
    ("capability", "kind"), [((7, 5), PowerKind.INSTANT), ((8, 0), PowerKind.INSTANT), ((8, 6), PowerKind.AVERAGE)]
)
def test_without_the_field_the_plain_reading_means_what_it_means_on_that_board(
    capability: tuple[int, int], kind: PowerKind
) -> None:
    board = PretendedBoard(capability=capability, refusals={"field 186": pynvml.NVML_ERROR_NOT_SUPPORTED})
    with pretended(PretendedLibrary([board])) as nvml:
        reader = NvmlReader(nvml)
        assert reader.boards()[0].power_kind is kind
        assert reader.read(UUID, "gpu_power") == 61.5


def test_a_board_without_power_says_so_when_read() -> None:
    refusals = dict.fromkeys(("field 186", "nvmlDeviceGetPowerUsage"), pynvml.NVML_ERROR_NOT_SUPPORTED)
    with pretended(PretendedLibrary([PretendedBoard(refusals=refusals)])) as nvml:
        reader = NvmlReader(nvml)
        assert reader.boards()[0].power_kind is None
        with pytest.raises(Unreadable, match="this board does not report it"):
            reader.read(UUID, "gpu_power")


def test_facts_a_board_refuses_are_none_and_the_rest_is_there() -> None:
    refusals = {
        "nvmlDeviceGetEnforcedPowerLimit": pynvml.NVML_ERROR_NOT_SUPPORTED,
        "nvmlDeviceGetPowerManagementDefaultLimit": pynvml.NVML_ERROR_NO_PERMISSION,
        "nvmlDeviceGetPciInfo_v3": pynvml.NVML_ERROR_UNKNOWN,
    }
    with pretended(PretendedLibrary([PretendedBoard(refusals=refusals)])) as nvml:
        (board,) = NvmlReader(nvml).boards()
    assert (board.power_limit_w, board.default_power_limit_w, board.pci_bus_id) == (None, None, None)
    assert board.name == "Tesla T4"


def test_an_older_driver_has_older_names_for_the_same() -> None:
    missing = {
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetMigMode",
    }
    with pretended(PretendedLibrary([PretendedBoard()], missing=missing)) as nvml:
        reader = NvmlReader(nvml)
        assert reader.read(UUID, "gpu_memory_used") == 3 * 2**30 + 2**28  # the reserve cannot be told apart
        assert reader.read(UUID, "gpu_throttle_reasons") == 4
        assert reader.read(UUID, "gpu_power") == 61.5


def test_a_newer_driver_may_have_dropped_the_old_temperature() -> None:
    with pretended(PretendedLibrary([PretendedBoard()], missing={"nvmlDeviceGetTemperature"})) as nvml:
        assert NvmlReader(nvml).read(UUID, "gpu_temperature") == 71


def test_a_function_the_driver_lacks_is_a_reason() -> None:
    old = PretendedLibrary([PretendedBoard()], missing={"nvmlDeviceGetTotalEnergyConsumption"})
    with pretended(old) as nvml, pytest.raises(Unreadable, match="this driver is too old to report it"):
        NvmlReader(nvml).read(UUID, "gpu_energy")


def test_a_board_that_cannot_be_listed_leaves_the_others_and_a_reason() -> None:
    lost = PretendedBoard(refusals={"nvmlDeviceGetHandleByIndex_v2": pynvml.NVML_ERROR_GPU_IS_LOST})
    with pretended(PretendedLibrary([lost, PretendedBoard(uuid="GPU-second")])) as nvml:
        reader = NvmlReader(nvml)
        assert [board.uuid for board in reader.boards()] == ["GPU-second"]
        assert reader.unlisted == ("board 0: the GPU is lost: it fell off the bus or the driver gave it up",)
        with pytest.raises(Unreadable, match="the driver lists no such board"):
            reader.read(UUID, "gpu_power")


def test_two_boards_are_read_by_uuid_and_not_by_order() -> None:
    boards = [PretendedBoard(uuid="GPU-one", temperature=40), PretendedBoard(uuid="GPU-two", temperature=80)]
    with pretended(PretendedLibrary(boards)) as nvml:
        reader = NvmlReader(nvml)
        assert reader.read("GPU-two", "gpu_temperature") == 80
        assert reader.read("GPU-one", "gpu_temperature") == 40


def test_mig_mode_is_seen() -> None:
    boards = [PretendedBoard(uuid="GPU-a", mig=1), PretendedBoard(uuid="GPU-b", mig=0), PretendedBoard(uuid="GPU-c")]
    with pretended(PretendedLibrary(boards)) as nvml:
        assert [board.split for board in NvmlReader(nvml).boards()] == [True, False, False]


def test_old_bindings_give_bytes() -> None:
    with pretended(PretendedLibrary([PretendedBoard()])) as nvml:
        old: Any = SimpleNamespace(**vars(nvml))
        old.nvmlDeviceGetName = lambda handle: b"Tesla T4"
        old.nvmlDeviceGetUUID = lambda handle: UUID.encode()
        old.nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId=b"00000000:3B:00.0")
        (board,) = NvmlReader(old).boards()
    assert (board.uuid, board.name, board.pci_bus_id) == (UUID, "Tesla T4", "0000:3b:00.0")


def test_a_driver_that_is_not_loaded_is_a_reason() -> None:
    library = PretendedLibrary([], init=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pretended(library), pytest.raises(Unreadable, match="NVML: the NVIDIA driver is not loaded"):
        open_nvml()


def test_no_driver_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    with pytest.raises(Unreadable) as refused:
        open_nvml()
    assert (refused.value.why, refused.value.lasting) == ("no NVIDIA driver library", True)


def test_no_bindings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(Unreadable, match="no NVIDIA driver library: the package nvidia-ml-py is not installed"):
        open_nvml()


def test_closing_lets_the_library_go() -> None:
    library = PretendedLibrary([PretendedBoard()])
    with pretended(library):
        open_nvml().close()
    assert library.shut_down == 1
