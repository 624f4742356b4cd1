"""Which devices this machine offers to PyTorch, and whether this PyTorch can really compute on them.

Asking a CUDA device makes a context in the asking process, which then can no longer fork trials. So the supervising
process calls :func:`probe_devices`, which asks in a child; ``python -m perf_diagnostics.measure.boards.devices`` prints
it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psutil

from perf_diagnostics.measure.host.memory import memory_limit_bytes
from perf_diagnostics.records import Json

_ARCHITECTURE = re.compile(r"(sm|compute)_(\d+)([af]?)")

#: PyTorch 2.15 leaves out Maxwell, Pascal and Volta; the CUDA 12.6 builds up to 2.14 are the last with kernels for them
#: (https://github.com/pytorch/pytorch/issues/190385).
_FIRST_CURRENT_CAPABILITY = (7, 5)

#: Importing PyTorch from a cold network disk and making a context takes tens of seconds at worst.
PROBE_TIMEOUT_S = 120.0


@dataclass(frozen=True, kw_only=True)
class DeviceInfo:
    """One device by its PyTorch name; ``why_not`` says why it cannot be used, and is empty where it can."""

    name: str
    kind: str
    model: str
    memory_bytes: int | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    capability: str | None = None
    usable: bool = True
    why_not: str = ""

    def facts(self) -> dict[str, Json]:
        """The device as plain values, for an environment record."""
        return dataclasses.asdict(self)


class TorchDevices(Protocol):
    """The few things asked of PyTorch here; :class:`InstalledTorch` asks the real one."""

    version: str

    def architectures(self) -> Sequence[str]:
        """What the CUDA build has kernels for: ``sm_80``, ``compute_90``, on ROCm ``gfx942``; empty if unknown."""

    def cuda(self) -> Sequence[DeviceInfo]:
        """The CUDA or ROCm devices as their driver describes them."""

    def why_no_cuda(self) -> str:
        """Why there is no CUDA device, on a machine that has a GPU."""

    def others(self) -> Sequence[DeviceInfo]:
        """Accelerators of other kinds (``mps``, ``xpu:0``)."""

    def compute(self, device: str) -> float:
        """Run one small kernel on the device and bring its result back: 8 ones doubled and summed, 16.0."""


def list_devices(
    torch_devices: TorchDevices | None = None, *, device_files: Path = Path("/dev")
) -> tuple[DeviceInfo, ...]:
    """The CPU and every accelerator, each accelerator tried with one small kernel.

    An NVIDIA GPU that PyTorch does not offer (a CPU build, hidden, no driver) is listed as unusable with the reason.

    Makes a context in this process on each CUDA device. ``torch.cuda.is_available()`` is not enough: it is true on
    a Pascal GPU under a PyTorch without kernels for it, where the first operation then fails.
    """
    asked = InstalledTorch() if torch_devices is None else torch_devices
    built_for = asked.architectures()
    offered = asked.cuda()
    cuda = [_preflight(device, asked, _unfit(device, built_for, asked.version)) for device in offered]
    if not offered and any(device_files.glob("nvidia[0-9]*")):
        why = f"this machine has an NVIDIA GPU, but {asked.why_no_cuda()}"
        cuda = [DeviceInfo(name="cuda", kind="cuda", model="NVIDIA GPU", usable=False, why_not=why)]
    others = (_preflight(device, asked, "") for device in asked.others())
    return (cpu_device(), *cuda, *others)


def probe_devices(*, timeout_s: float = PROBE_TIMEOUT_S, python: str = sys.executable) -> tuple[DeviceInfo, ...]:
    """:func:`list_devices`, asked in a child process, so that this process stays without a device context.

    Where the child fails, the CPU is still listed, and beside it an unusable device ``accelerator`` that says why.
    """
    command = [python, "-c", "from perf_diagnostics.measure.boards.devices import main; main()"]
    # A copy of the package that is only on this process's path (a notebook) must be found by the child too.
    paths = [str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}
    try:
        child = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False, env=environment)
    except subprocess.TimeoutExpired:
        return cpu_device(), _unknown(f"looking for devices took longer than {timeout_s:g} s")
    except OSError as problem:
        return cpu_device(), _unknown(f"{python} could not be started: {problem.strerror}")
    # Libraries may print on import; the answer is the last line.
    lines = child.stdout.strip().splitlines()
    try:
        return tuple(DeviceInfo(**device) for device in json.loads(lines[-1]))
    except (IndexError, ValueError, TypeError):
        last_words = (child.stderr.strip().splitlines() or ["it said nothing"])[-1]
        return cpu_device(), _unknown(f"looking for devices ended with status {child.returncode}: {last_words}")


def cpu_device() -> DeviceInfo:
    """The processor, with the memory this process may use."""
    return DeviceInfo(name="cpu", kind="cpu", model=cpu_model() or "unknown CPU", memory_bytes=memory_limit_bytes())


def cpu_model(*, root: Path = Path("/")) -> str | None:
    """The processor's own name for itself, or None."""
    try:
        text = (root / "proc" / "cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    # x86 writes "model name", some Arm boards "Model", IBM "cpu".
    found = re.search(r"^(?:model name|Model|cpu)\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1].strip() if found else _macos_brand() or platform.processor() or None


def _macos_brand() -> str | None:
    """``Apple M2 Pro``, where a Mac says so; Python itself calls each of them ``arm``."""
    if platform.system() != "Darwin":
        return None
    # By its place: a command line tool of that name may be first in the path.
    command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=5.0, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    return told.strip() or None


def model_of(device: Any) -> str:
    """What a torch device calls itself: the name that data sheets are looked up by; else its name in torch (``cpu``).

    Apple's GPU goes by its chip's name: ``Apple M2 Pro``.
    """
    import torch

    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    if device.type == "xpu":
        return str(torch.xpu.get_device_name(device))
    if device.type == "mps":
        return cpu_model() or str(device)
    return str(device)


def covers(architecture: str, capability: tuple[int, int]) -> bool:
    """Whether code built for an architecture runs on a device of this compute capability.

    Machine code (``sm_86``) runs on the same major version and the same or a later minor one; with an ``a`` only on
    exactly its own. Portable code (``compute_90``) is translated for any later device.
    """
    found = _ARCHITECTURE.fullmatch(architecture)
    if found is None:
        return False
    built = divmod(int(found[2]), 10)
    if found[3] == "a":
        return built == capability
    if found[1] == "compute" and not found[3]:
        return built <= capability
    return built[0] == capability[0] and built[1] <= capability[1]


def _unfit(device: DeviceInfo, built_for: Sequence[str], version: str) -> str:
    """Why this build has no code for a CUDA device, or nothing."""
    capability = re.fullmatch(r"(\d+)\.(\d+)", device.capability or "")
    if capability is None or not any(_ARCHITECTURE.fullmatch(name) for name in built_for):
        return ""  # ROCm, or a build that does not say: the kernel will tell
    have = (int(capability[1]), int(capability[2]))
    if any(covers(name, have) for name in built_for):
        return ""
    advice = "use another GPU or a torch built for it"
    if have < _FIRST_CURRENT_CAPABILITY:
        advice += " (the CUDA 12.6 builds up to torch 2.14 are the last for GPUs before sm_75)"
    return (
        f"{device.model} is sm_{have[0]}{have[1]}, this torch ({version}) was built for {' '.join(built_for)}; {advice}"
    )


def _preflight(device: DeviceInfo, asked: TorchDevices, unfit: str) -> DeviceInfo:
    if unfit:
        return dataclasses.replace(device, usable=False, why_not=unfit)
    try:
        result = asked.compute(device.name)
    except (RuntimeError, AssertionError, NotImplementedError) as problem:
        # torch.AcceleratorError and OutOfMemoryError are RuntimeErrors; a build without the backend asserts.
        why = f"a first small kernel failed: {_first_line(problem)}"
        return dataclasses.replace(device, usable=False, why_not=why)
    if result != 16.0:
        return dataclasses.replace(device, usable=False, why_not=f"a first small kernel gave {result:g}, not 16")
    return device


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]


def _unknown(why: str) -> DeviceInfo:
    return DeviceInfo(name="accelerator", kind="unknown", model="unknown", usable=False, why_not=why)


class InstalledTorch:
    """:class:`TorchDevices` of the PyTorch that is installed; what a version lacks is left out."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self.version = str(torch.__version__)

    def architectures(self) -> Sequence[str]:
        return list(self._torch.cuda.get_arch_list())

    def cuda(self) -> Sequence[DeviceInfo]:
        if not self._torch.cuda.is_available():
            return ()
        return [self._cuda_device(index) for index in range(self._torch.cuda.device_count())]

    def why_no_cuda(self) -> str:
        if self._torch.version.cuda is None:
            return f"this torch ({self.version}) is a build without CUDA; install one with it"
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            return f"CUDA_VISIBLE_DEVICES={visible!r} hides it"
        try:
            self._torch.cuda.init()
        except (RuntimeError, AssertionError) as problem:
            return f"CUDA does not start: {_first_line(problem)}"
        return "CUDA offers no device, without giving a reason"

    def others(self) -> Sequence[DeviceInfo]:
        found = []
        if self._torch.backends.mps.is_available():
            # Apple's GPUs share the machine's memory.
            memory_bytes = int(psutil.virtual_memory().total)
            found.append(
                DeviceInfo(name="mps", kind="mps", model=cpu_model() or "Apple GPU", memory_bytes=memory_bytes)
            )
        if self._torch.xpu.is_available():
            for index in range(self._torch.xpu.device_count()):
                properties = self._torch.xpu.get_device_properties(index)
                name, memory = str(properties.name), int(properties.total_memory)
                found.append(DeviceInfo(name=f"xpu:{index}", kind="xpu", model=name, memory_bytes=memory))
        return found

    def compute(self, device: str) -> float:
        ones = self._torch.ones(8, device=device)
        return float((ones * 2).sum().item())

    def _cuda_device(self, index: int) -> DeviceInfo:
        properties = self._torch.cuda.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        rocm = getattr(self._torch.version, "hip", None) is not None
        capability = f"{properties.major}.{properties.minor}"
        return DeviceInfo(
            name=f"cuda:{index}",
            kind="cuda",
            model=str(properties.name),
            memory_bytes=int(properties.total_memory),
            uuid=None if uuid is None else str(uuid),
            pci_bus_id=_pci_bus_id(properties),
            capability=str(properties.gcnArchName) if rocm else capability,
        )


def _pci_bus_id(properties: Any) -> str | None:
    """``0000:3b:00`` from the three numbers newer versions of PyTorch give; None from older ones."""
    numbers = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if any(number is None for number in numbers):
        return None
    return "{:04x}:{:02x}:{:02x}".format(*(int(number) for number in numbers if number is not None))


def main() -> None:
    """Print the devices as one line of JSON."""
    print(json.dumps([device.facts() for device in list_devices()]))


if __name__ == "__main__":
    main()
