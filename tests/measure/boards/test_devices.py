"""Devices and their preflight, on a pretended PyTorch; and the real one, asked in a child process."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from perf_diagnostics.measure.boards import devices
from perf_diagnostics.measure.boards.devices import (
    DeviceInfo,
    InstalledTorch,
    covers,
    cpu_model,
    list_devices,
    model_of,
    probe_devices,
)
from tests.measure.kernel_files import machine


class Torch:
    """A PyTorch built for some architectures, with some devices; ``results``: what a first kernel gives or raises."""

    version = "2.10.0+cu128"

    def __init__(
        self,
        *cuda: DeviceInfo,
        built_for: Sequence[str] = ("sm_75", "sm_80", "sm_90", "compute_90"),
        others: Sequence[DeviceInfo] = (),
        results: dict[str, float | Exception] | None = None,
    ) -> None:
        self._cuda, self._built_for, self._others = cuda, built_for, others
        self._results = results or {}
        self.computed_on: list[str] = []

    def architectures(self) -> Sequence[str]:
        return self._built_for

    def cuda(self) -> Sequence[DeviceInfo]:
        return self._cuda

    def others(self) -> Sequence[DeviceInfo]:
        return self._others

    def why_no_cuda(self) -> str:
        return "this torch is a build without CUDA"

    def compute(self, device: str) -> float:
        self.computed_on.append(device)
        result = self._results.get(device, 16.0)
        if isinstance(result, Exception):
            raise result
        return result


def gpu(index: int = 0, *, capability: str = "7.5", model: str = "Tesla T4") -> DeviceInfo:
    return DeviceInfo(name=f"cuda:{index}", kind="cuda", model=model, capability=capability)


def only_gpu(torch: Torch, tmp_path: Path) -> DeviceInfo:
    cpu, device = list_devices(torch, device_files=tmp_path)
    assert cpu.kind == "cpu"
    return device


def test_the_cpu_is_always_there(tmp_path: Path) -> None:
    (cpu,) = list_devices(Torch(), device_files=tmp_path)
    assert (cpu.name, cpu.usable, cpu.why_not) == ("cpu", True, "")
    assert cpu.memory_bytes is not None and cpu.memory_bytes > 2**28


def test_a_gpu_that_computes_is_usable(tmp_path: Path) -> None:
    torch = Torch(gpu())
    assert only_gpu(torch, tmp_path) == gpu()
    assert torch.computed_on == ["cuda:0"]


def test_a_gpu_without_kernels_is_named_with_what_torch_was_built_for_and_never_touched(tmp_path: Path) -> None:
    torch = Torch(gpu(capability="6.0", model="Tesla P100-PCIE-16GB"), built_for=("sm_70", "sm_75", "sm_80"))
    device = only_gpu(torch, tmp_path)
    assert not device.usable
    assert device.why_not == (
        "Tesla P100-PCIE-16GB is sm_60, this torch (2.10.0+cu128) was built for sm_70 sm_75 sm_80; "
        "use another GPU or a torch built for it "
        "(the CUDA 12.6 builds up to torch 2.14 are the last for GPUs before sm_75)"
    )
    assert torch.computed_on == []


def test_a_gpu_newer_than_torch_gets_no_advice_about_old_ones(tmp_path: Path) -> None:
    device = only_gpu(Torch(gpu(capability="12.0"), built_for=("sm_80", "sm_90")), tmp_path)
    assert device.why_not.endswith("use another GPU or a torch built for it")


def test_a_kernel_that_fails_makes_a_device_unusable_in_the_drivers_words(tmp_path: Path) -> None:
    error = RuntimeError("CUDA error: no kernel image is available for execution on the device\nCUDA kernel errors …")
    device = only_gpu(Torch(gpu(), results={"cuda:0": error}), tmp_path)
    assert not device.usable
    assert device.why_not == (
        "a first small kernel failed: CUDA error: no kernel image is available for execution on the device"
    )


def test_a_kernel_that_gives_a_wrong_number_makes_a_device_unusable(tmp_path: Path) -> None:
    device = only_gpu(Torch(gpu(), results={"cuda:0": 0.0}), tmp_path)
    assert device.why_not == "a first small kernel gave 0, not 16"


def test_an_error_of_ours_is_not_taken_for_a_broken_device(tmp_path: Path) -> None:
    with pytest.raises(AttributeError):
        list_devices(Torch(gpu(), results={"cuda:0": AttributeError("a mistake")}), device_files=tmp_path)


def test_each_device_is_judged_on_its_own(tmp_path: Path) -> None:
    torch = Torch(
        gpu(0, capability="6.1"),
        gpu(1),
        others=[DeviceInfo(name="xpu:0", kind="xpu", model="Max 1550")],
        results={"xpu:0": RuntimeError("no driver")},
    )
    found = {device.name: device.usable for device in list_devices(torch, device_files=tmp_path)}
    assert found == {"cpu": True, "cuda:0": False, "cuda:1": True, "xpu:0": False}


def test_rocm_names_its_architecture_and_the_kernel_decides(tmp_path: Path) -> None:
    torch = Torch(gpu(capability="gfx942:sramecc+:xnack-"), built_for=("gfx90a", "gfx942"))
    assert only_gpu(torch, tmp_path).usable


def test_a_gpu_torch_does_not_offer_is_shown_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "nvidia0").touch()
    device = only_gpu(Torch(), tmp_path)
    assert (device.name, device.usable) == ("cuda", False)
    assert device.why_not == "this machine has an NVIDIA GPU, but this torch is a build without CUDA"


@pytest.mark.parametrize("control_file", ["nvidiactl", "nvidia-uvm", "nvidia-caps"])
def test_the_drivers_control_files_are_no_gpus(tmp_path: Path, control_file: str) -> None:
    (tmp_path / control_file).touch()
    assert len(list_devices(Torch(), device_files=tmp_path)) == 1


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("sm_75", (7, 5), True),
        ("sm_80", (8, 6), True),  # a later minor version of the same major one
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_70", (6, 0), False),
        ("compute_90", (12, 0), True),  # translated by the driver
        ("compute_90", (8, 9), False),
        ("sm_90a", (9, 0), True),
        ("sm_90a", (9, 1), False),
        ("sm_100f", (10, 3), True),
        ("sm_100f", (12, 0), False),
        ("compute_90a", (12, 0), False),
        ("sm_120", (12, 0), True),
        ("gfx942", (9, 4), False),
    ],
)
def test_what_runs_where(architecture: str, capability: tuple[int, int], runs: bool) -> None:
    assert covers(architecture, capability) is runs


def test_the_processors_name_in_its_several_spellings(tmp_path: Path) -> None:
    x86 = machine(tmp_path / "x86", {"/proc/cpuinfo": "cpu family\t: 6\nmodel name\t: Intel(R) Xeon(R) @ 2.20GHz\n"})
    power = machine(tmp_path / "power", {"/proc/cpuinfo": "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"})
    assert cpu_model(root=x86) == "Intel(R) Xeon(R) @ 2.20GHz"
    assert cpu_model(root=power) == "POWER9, altivec supported"


def test_a_mac_names_its_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def sysctl(command: list[str], **_named: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="Apple M2 Pro\n")

    monkeypatch.setattr("platform.system", lambda: "Darwin")
    monkeypatch.setattr("platform.processor", lambda: "arm")
    monkeypatch.setattr(subprocess, "run", sysctl)
    assert cpu_model(root=tmp_path) == "Apple M2 Pro" and asked[0][-1] == "machdep.cpu.brand_string"

    def refused(command: list[str], **_named: object) -> subprocess.CompletedProcess[str]:
        raise FileNotFoundError(command[0])

    monkeypatch.setattr(subprocess, "run", refused)
    assert cpu_model(root=tmp_path) == "arm"


def test_no_other_system_is_asked_for_a_chip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.system", lambda: "Windows")
    monkeypatch.setattr("platform.processor", lambda: "Intel64 Family 6")
    assert cpu_model(root=tmp_path) == "Intel64 Family 6"


def test_a_device_goes_by_the_name_that_data_sheets_know(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(devices, "cpu_model", lambda: "Apple M1 Max")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"Tesla T4 of {device}")
    monkeypatch.setattr(torch.xpu, "get_device_name", lambda device: "Intel Data Center GPU Max 1550")
    names = {name: model_of(torch.device(name)) for name in ("cpu", "cuda:1", "mps", "xpu:0")}
    assert names == {
        "cpu": "cpu",
        "cuda:1": "Tesla T4 of cuda:1",
        "mps": "Apple M1 Max",
        "xpu:0": "Intel Data Center GPU Max 1550",
    }


def test_the_installed_torch_computes_on_the_cpu() -> None:
    assert InstalledTorch().compute("cpu") == 16.0


def test_devices_come_from_a_child_that_leaves_this_process_without_torch() -> None:
    code = (
        "import sys; from perf_diagnostics.measure.boards.devices import probe_devices;"
        "found = probe_devices(); print('torch' in sys.modules, [d.name for d in found if d.usable][0])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.split() == ["False", "cpu"]


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("import sys; sys.exit('libcudart.so.12 not found')", "ended with status 1: libcudart.so.12 not found"),
        ("print('no json')", "ended with status 0: it said nothing"),
        ("import time; time.sleep(60)", "took longer than 0.5 s"),
    ],
)
def test_a_child_that_fails_leaves_the_cpu_and_a_reason(tmp_path: Path, body: str, why: str) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!{sys.executable}\n{body}\n")
    python.chmod(0o755)
    cpu, unknown = probe_devices(python=str(python), timeout_s=0.5 if "sleep" in body else 60.0)
    assert cpu.usable
    assert (unknown.name, unknown.usable) == ("accelerator", False)
    assert why in unknown.why_not


def test_a_child_that_talks_before_it_answers_is_understood(tmp_path: Path) -> None:
    python = tmp_path / "python"
    answer = '[{"name": "cuda:0", "kind": "cuda", "model": "Tesla T4", "uuid": "aa", "usable": true, "why_not": ""}]'
    python.write_text(f"#!{sys.executable}\nprint('loading libraries …')\nprint('''{answer}''')\n")
    python.chmod(0o755)
    assert probe_devices(python=str(python)) == (DeviceInfo(name="cuda:0", kind="cuda", model="Tesla T4", uuid="aa"),)


def test_a_python_that_is_missing_leaves_a_reason() -> None:
    _, unknown = probe_devices(python="/nowhere/python")
    assert unknown.why_not == "/nowhere/python could not be started: No such file or directory"
