"""A pretended libnvidia-ml under the real bindings (nvidia-ml-py): boards are plain values, refusals are NVML's codes.

The bindings call the library's C functions with ctypes arguments; here these are Python functions that write into the
same arguments. What is tested above them is therefore what runs on a machine with a GPU, up to the C call.
"""

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pynvml
import pytest

SUCCESS = pynvml.NVML_SUCCESS


@dataclass
class PretendedBoard:
    uuid: str = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
    bus_id: str = "00000000:3B:00.0"
    name: str = "Tesla T4"
    capability: tuple[int, int] = (7, 5)
    energy_mj: int = 5_000_000
    plain_mw: int = 61_500
    instant_mw: int = 70_250
    limit_mw: int = 60_000
    default_limit_mw: int = 70_000
    utilization: int = 37
    memory_total: int = 16 * 2**30
    memory_used: int = 3 * 2**30
    memory_reserved: int = 2**28
    sm_clock_mhz: int = 1590
    temperature: int = 71
    reasons: int = 0x4
    received_kb_per_s: int = 6_200_000
    #: ns since the driver was loaded.
    thermal_violation_ns: int = 7_000_000_000
    power_violation_ns: int = 9_000_000_000
    link_generation: int = 3
    link_width: int = 8
    link_generation_max: int = 3
    link_width_max: int = 16
    processes: dict[int, int] = field(default_factory=dict)
    mig: int | None = None
    #: Return codes by C function, or by "field 186" for a field of its own.
    refusals: dict[str, int] = field(default_factory=dict)


class PretendedLibrary:
    """The C library's functions by name; those in ``missing`` are not exported, as in an older driver."""

    def __init__(self, boards: list[PretendedBoard], *, missing: set[str] | None = None, init: int = SUCCESS) -> None:
        self.boards = boards
        self.missing = missing or set()
        self.init = init
        self.shut_down = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        implementation = _FUNCTIONS.get(name)
        if implementation is None or name in self.missing:
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            if name in _OF_NO_BOARD:
                return implementation(self, *arguments)
            board = self.boards[(ctypes.cast(arguments[0], ctypes.c_void_p).value or 0) - 1]
            refused = board.refusals.get(name)
            return implementation(board, *arguments[1:]) or SUCCESS if refused is None else refused

        return call


@contextmanager
def pretended(library: PretendedLibrary) -> Iterator[Any]:
    """The real bindings on this library."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pynvml, "nvmlLib", library)
        patch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        yield pynvml


def _init(library: PretendedLibrary, *_: Any) -> int:
    return library.init


def _shutdown(library: PretendedLibrary) -> int:
    library.shut_down += 1
    return SUCCESS


def _count(library: PretendedLibrary, out: Any) -> int:
    out._obj.value = len(library.boards)
    return SUCCESS


def _handle(library: PretendedLibrary, index: Any, out: Any) -> int:
    refused = library.boards[index.value].refusals.get("nvmlDeviceGetHandleByIndex_v2")
    if refused is not None:
        return refused
    ctypes.cast(out, ctypes.POINTER(ctypes.c_void_p))[0] = index.value + 1
    return SUCCESS


def _driver(_: PretendedLibrary, out: Any, __: Any) -> int:
    out.value = b"550.54.15"
    return SUCCESS


def _error_string(_: PretendedLibrary, code: int) -> bytes:
    return f"pretended error {code}".encode()


def _number(attribute: str) -> Callable[..., None]:
    def write(board: PretendedBoard, *arguments: Any) -> None:
        arguments[-1]._obj.value = getattr(board, attribute)

    return write


def _text(attribute: str) -> Callable[..., None]:
    def write(board: PretendedBoard, out: Any, _: Any) -> None:
        out.value = getattr(board, attribute).encode()

    return write


def _pci(board: PretendedBoard, out: Any) -> None:
    out._obj.busId = board.bus_id.encode()


def _capability(board: PretendedBoard, major: Any, minor: Any) -> None:
    major._obj.value, minor._obj.value = board.capability


def _mig(board: PretendedBoard, current: Any, pending: Any) -> int:
    if board.mig is None:
        return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
    current._obj.value = pending._obj.value = board.mig
    return SUCCESS


def _memory_1(board: PretendedBoard, out: Any) -> None:
    # The first version counts the driver's own reserve as used.
    out._obj.total, out._obj.used = board.memory_total, board.memory_used + board.memory_reserved


def _memory_2(board: PretendedBoard, out: Any) -> int:
    if out._obj.version != pynvml.nvmlMemory_v2:
        return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    out._obj.total, out._obj.used, out._obj.reserved = board.memory_total, board.memory_used, board.memory_reserved
    return SUCCESS


def _utilization(board: PretendedBoard, out: Any) -> None:
    out._obj.gpu, out._obj.memory = board.utilization, 99


def _clock(board: PretendedBoard, kind: Any, out: Any) -> int:
    if kind.value != pynvml.NVML_CLOCK_SM:
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    out._obj.value = board.sm_clock_mhz
    return SUCCESS


def _temperature_v(board: PretendedBoard, out: Any) -> None:
    out._obj.temperature = board.temperature


def _fields(board: PretendedBoard, count: Any, out: Any) -> None:
    for index in range(count.value):
        one = out._obj[index]
        one.nvmlReturn = board.refusals.get(f"field {one.fieldId}", SUCCESS if one.fieldId == 186 else 3)
        one.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
        one.value.uiVal = board.instant_mw


def _processes(board: PretendedBoard, count: Any, out: Any) -> int:
    room, count._obj.value = count._obj.value, len(board.processes)
    if not board.processes:
        return SUCCESS
    if room < len(board.processes):
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    for row, (pid, used) in zip(out, board.processes.items(), strict=False):
        row.pid, row.usedGpuMemory = pid, used
    return SUCCESS


def _throughput(board: PretendedBoard, counter: Any, out: Any) -> int:
    if counter.value != pynvml.NVML_PCIE_UTIL_RX_BYTES:
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    out._obj.value = board.received_kb_per_s
    return SUCCESS


def _violation(board: PretendedBoard, policy: Any, out: Any) -> int:
    counts = {
        pynvml.NVML_PERF_POLICY_POWER: board.power_violation_ns,
        pynvml.NVML_PERF_POLICY_THERMAL: board.thermal_violation_ns,
    }
    if policy.value not in counts:
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    out._obj.referenceTime, out._obj.violationTime = 1, counts[policy.value]
    return SUCCESS


_OF_NO_BOARD = {
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlErrorString",
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": _shutdown,
    "nvmlDeviceGetCount_v2": _count,
    "nvmlDeviceGetHandleByIndex_v2": _handle,
    "nvmlSystemGetDriverVersion": _driver,
    "nvmlErrorString": _error_string,
    "nvmlDeviceGetUUID": _text("uuid"),
    "nvmlDeviceGetName": _text("name"),
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetCudaComputeCapability": _capability,
    "nvmlDeviceGetMigMode": _mig,
    "nvmlDeviceGetMemoryInfo": _memory_1,
    "nvmlDeviceGetMemoryInfo_v2": _memory_2,
    "nvmlDeviceGetEnforcedPowerLimit": _number("limit_mw"),
    "nvmlDeviceGetPowerManagementDefaultLimit": _number("default_limit_mw"),
    "nvmlDeviceGetPowerUsage": _number("plain_mw"),
    "nvmlDeviceGetTotalEnergyConsumption": _number("energy_mj"),
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlDeviceGetUtilizationRates": _utilization,
    "nvmlDeviceGetClockInfo": _clock,
    "nvmlDeviceGetTemperature": _number("temperature"),
    "nvmlDeviceGetTemperatureV": _temperature_v,
    "nvmlDeviceGetCurrentClocksEventReasons": _number("reasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _number("reasons"),
    "nvmlDeviceGetComputeRunningProcesses_v2": _processes,
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes,
    "nvmlDeviceGetViolationStatus": _violation,
    "nvmlDeviceGetPcieThroughput": _throughput,
    "nvmlDeviceGetCurrPcieLinkGeneration": _number("link_generation"),
    "nvmlDeviceGetCurrPcieLinkWidth": _number("link_width"),
    "nvmlDeviceGetMaxPcieLinkGeneration": _number("link_generation_max"),
    "nvmlDeviceGetMaxPcieLinkWidth": _number("link_width_max"),
}
