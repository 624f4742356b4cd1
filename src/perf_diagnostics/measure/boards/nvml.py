"""What the NVIDIA driver says about its boards (NVML), typed, in SI units, and with its refusals put into words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from perf_diagnostics.measure.boards.boards import Board, PowerKind, board_uuid, pci_address
from perf_diagnostics.measure.observation import Unreadable

T = TypeVar("T")

NO_LIBRARY = "no NVIDIA driver library"

#: The last compute capability whose plain power reading is instantaneous; from 8.6 on it is the mean of the last second
#: (NVML API reference, nvmlDeviceGetPowerUsage: "On Ampere (except GA100) or newer GPUs").
_LAST_INSTANT_CAPABILITY = (8, 0)

#: NVML_FI_DEV_POWER_INSTANT (nvml.h); bindings older than driver 530 lack the name.
_FIELD_POWER_INSTANT = 186

#: Refusals by NVML's own name for them: words for a report, and whether asking again is pointless.
_REFUSALS: Mapping[str, tuple[str, bool]] = {
    "NVML_ERROR_NOT_SUPPORTED": ("this board does not report it", True),
    "NVML_ERROR_NO_PERMISSION": ("no permission to read it", True),
    "NVML_ERROR_FUNCTION_NOT_FOUND": ("this driver is too old to report it", True),
    "NVML_ERROR_GPU_IS_LOST": ("the GPU is lost: it fell off the bus or the driver gave it up", True),
    "NVML_ERROR_LIBRARY_NOT_FOUND": (NO_LIBRARY, True),
    "NVML_ERROR_DRIVER_NOT_LOADED": ("the NVIDIA driver is not loaded", True),
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": ("driver and driver library differ in version; restart the machine", True),
    "NVML_ERROR_UNINITIALIZED": ("the driver library was shut down", True),
}


_Reading: TypeAlias = Callable[[Any, Any], float]


def open_nvml() -> NvmlReader:
    """The driver's reader. Raises Unreadable where there is no package, no library or no driver."""
    try:
        import pynvml
    except ImportError as missing:
        raise Unreadable(f"{NO_LIBRARY}: the package nvidia-ml-py is not installed", lasting=True) from missing
    return NvmlReader(pynvml)


class NvmlReader:
    """A :class:`BoardReader` on nvidia-ml-py (given as a module, which carries no types).

    The library is told to start here and to end in :meth:`close`; no CUDA context is made.
    """

    def __init__(self, nvml: Any) -> None:
        self._nvml = nvml
        with self._in_words("NVML"):
            nvml.nvmlInit()
        self._handles: dict[str, Any] = {}
        self._boards: dict[str, Board] = {}
        self._power: dict[str, _Reading] = {}
        self._unlisted: list[str] = []
        with self._in_words("NVML"):
            count = int(nvml.nvmlDeviceGetCount())
        for index in range(count):
            self._list_board(index)

    @property
    def unlisted(self) -> tuple[str, ...]:
        return tuple(self._unlisted)

    def boards(self) -> tuple[Board, ...]:
        return tuple(self._boards.values())

    def read(self, uuid: str, signal: str) -> float:
        handle = self._handle(uuid)
        with self._in_words(uuid):
            if signal == "gpu_power":
                return self._read_power(uuid, handle)
            return _READINGS[signal](self._nvml, handle)

    def process_memory(self, uuid: str) -> Mapping[int, int]:
        handle = self._handle(uuid)
        with self._in_words(uuid):
            processes = _processes(self._nvml, handle)
        return {int(p.pid): int(p.usedGpuMemory) for p in processes if p.usedGpuMemory is not None}

    def close(self) -> None:
        """Let the library go; readings after this raise Unreadable."""
        with self._in_words("NVML"):
            self._nvml.nvmlShutdown()

    def _handle(self, uuid: str) -> Any:
        if uuid not in self._handles:
            raise Unreadable(f"{uuid}: the driver lists no such board", lasting=True)
        return self._handles[uuid]

    def _list_board(self, index: int) -> None:
        nvml = self._nvml
        try:
            with self._in_words(f"board {index}"):
                handle = nvml.nvmlDeviceGetHandleByIndex(index)
                uuid = board_uuid(_text(nvml.nvmlDeviceGetUUID(handle)))
        except Unreadable as refusal:
            self._unlisted.append(refusal.why)
            return
        self._handles[uuid] = handle
        self._boards[uuid] = Board(
            uuid=uuid,
            pci_bus_id=self._known(lambda: pci_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))),
            name=self._known(lambda: _text(nvml.nvmlDeviceGetName(handle))),
            driver=self._known(lambda: _text(nvml.nvmlSystemGetDriverVersion())),
            power_limit_w=self._known(lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1e3),
            default_power_limit_w=self._known(lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1e3),
            power_kind=self._choose_power(uuid, handle),
            pcie_generation_max=self._known(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))),
            pcie_width_max=self._known(lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle))),
            split=self._known(lambda: int(nvml.nvmlDeviceGetMigMode(handle)[0])) == 1,
        )

    def _choose_power(self, uuid: str, handle: Any) -> PowerKind | None:
        """Try once which power reading the board has: the field for it, else the plain one, whatever that is here."""
        nvml = self._nvml
        if self._known(lambda: _instant_power_w(nvml, handle)) is not None:
            self._power[uuid] = _instant_power_w
            return PowerKind.INSTANT
        if self._known(lambda: _plain_power_w(nvml, handle)) is None:
            return None
        self._power[uuid] = _plain_power_w
        capability = self._known(lambda: tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)))
        instant = capability is not None and capability <= _LAST_INSTANT_CAPABILITY
        return PowerKind.INSTANT if instant else PowerKind.AVERAGE

    def _read_power(self, uuid: str, handle: Any) -> float:
        return self._power.get(uuid, _plain_power_w)(self._nvml, handle)

    def _known(self, read: Callable[[], T]) -> T | None:
        """A fact about a board, or None where the driver refuses it."""
        try:
            return read()
        except self._nvml.NVMLError:
            return None

    @contextmanager
    def _in_words(self, whose: str) -> Iterator[None]:
        try:
            yield
        except self._nvml.NVMLError as refusal:
            why, lasting = self._words(refusal)
            raise Unreadable(why if why == NO_LIBRARY else f"{whose}: {why}", lasting=lasting) from refusal

    def _words(self, refusal: Any) -> tuple[str, bool]:
        for name, (why, lasting) in _REFUSALS.items():
            if getattr(self._nvml, name, None) == refusal.value:
                return why, lasting
        return str(refusal), False


def _energy_j(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1e3  # mJ since the driver was loaded


def _plain_power_w(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetPowerUsage(handle)) / 1e3


def _instant_power_w(nvml: Any, handle: Any) -> float:
    field = nvml.nvmlDeviceGetFieldValues(handle, [_FIELD_POWER_INSTANT])[0]
    # The call succeeds as a whole; each field carries a verdict of its own.
    if field.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal) / 1e3


def _utilization_percent(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu)


def _memory_used_bytes(nvml: Any, handle: Any) -> float:
    # The second version keeps the driver's own reserve out of "used"; older drivers only have the first.
    version = getattr(nvml, "nvmlMemory_v2", None)
    if version is not None:
        with suppress(nvml.NVMLError_FunctionNotFound):
            return float(nvml.nvmlDeviceGetMemoryInfo(handle, version=version).used)
    return float(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def _processes(nvml: Any, handle: Any) -> list[Any]:
    # Drivers before 510 have the second version only. The bindings call the third, and where that is missing they raise
    # an error that is no NVMLError and says that bindings and driver do not match.
    missing = getattr(nvml, "NVMLLibraryMismatchError", nvml.NVMLError_FunctionNotFound)
    try:
        return list(nvml.nvmlDeviceGetComputeRunningProcesses(handle))
    except missing:
        return list(nvml.nvmlDeviceGetComputeRunningProcesses_v2(handle))


def _sm_clock_mhz(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM))


def _temperature_c(nvml: Any, handle: Any) -> float:
    try:
        return float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    except nvml.NVMLError_FunctionNotFound:
        # CUDA 14 removes the old function (a note in the bindings); bindings that old lack the new one.
        if not hasattr(nvml, "nvmlDeviceGetTemperatureV"):
            raise
        return float(nvml.nvmlDeviceGetTemperatureV(handle, nvml.NVML_TEMPERATURE_GPU))


def _throttle_reasons(nvml: Any, handle: Any) -> float:
    # Driver 535 renamed "throttle reasons" to "event reasons"; the bits stayed.
    renamed = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None)
    if renamed is not None:
        with suppress(nvml.NVMLError_FunctionNotFound):
            return float(renamed(handle))
    return float(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _pcie_received_bytes_per_s(nvml: Any, handle: Any) -> float:
    # In KB/s, counted over 20 ms that the call takes (NVML API reference, nvmlDeviceGetPcieThroughput).
    return float(nvml.nvmlDeviceGetPcieThroughput(handle, nvml.NVML_PCIE_UTIL_RX_BYTES)) * 1e3


def _pcie_generation(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle))


def _pcie_width(nvml: Any, handle: Any) -> float:
    return float(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle))


def _thermal_violation_s(nvml: Any, handle: Any) -> float:
    return _violation_s(nvml, handle, nvml.NVML_PERF_POLICY_THERMAL)


def _power_violation_s(nvml: Any, handle: Any) -> float:
    return _violation_s(nvml, handle, nvml.NVML_PERF_POLICY_POWER)


def _violation_s(nvml: Any, handle: Any, policy: int) -> float:
    # violationTime is in ns (NVML API reference, nvmlViolationTime_t), since the driver was loaded.
    return float(nvml.nvmlDeviceGetViolationStatus(handle, policy).violationTime) / 1e9


_READINGS: Mapping[str, _Reading] = {
    "gpu_energy": _energy_j,
    "gpu_utilization": _utilization_percent,
    "gpu_memory_used": _memory_used_bytes,
    "gpu_sm_clock": _sm_clock_mhz,
    "gpu_temperature": _temperature_c,
    "gpu_throttle_reasons": _throttle_reasons,
    "gpu_pcie_received": _pcie_received_bytes_per_s,
    "gpu_pcie_generation": _pcie_generation,
    "gpu_pcie_width": _pcie_width,
    "gpu_thermal_violation": _thermal_violation_s,
    "gpu_power_violation": _power_violation_s,
}


def _text(value: str | bytes | object) -> str:
    """Bindings before 11.5 give bytes, later ones text."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
