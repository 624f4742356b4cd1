"""Records where a trial runs: machine, limits, Python, libraries; no secrets, no names of people or machines."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil

from perf_diagnostics.measure.boards.boards import Board, match_board
from perf_diagnostics.measure.boards.devices import DeviceInfo, cpu_model
from perf_diagnostics.measure.host.cgroup import cpu_quota_cores, cpu_throttle
from perf_diagnostics.measure.host.memory import memory_limit_bytes
from perf_diagnostics.measure.host.processor_units import bfloat16_units, processor_flags
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.measure.privacy import Person, allowed_variables, masked_command
from perf_diagnostics.records import Environment, Json

#: The libraries whose version can change a training's speed or a record's meaning; those installed are recorded.
LIBRARIES = (
    "perf-diagnostics", "torch", "torchvision", "torchaudio", "triton", "numpy", "scipy", "pandas", "pyarrow", "pillow",
    "transformers", "tokenizers", "datasets", "accelerate", "peft", "trl", "lightning", "pytorch-lightning", "timm",
    "deepspeed", "bitsandbytes", "flash-attn", "xformers", "liger-kernel", "psutil", "nvidia-ml-py",
)  # fmt: skip

#: In the head of a distribution's METADATA.
_VERSION_LINE = re.compile(r"^Version:[ \t]*(\S+)[ \t]*$", re.MULTILINE)

_GIT_TIMEOUT_S = 5.0


def capture(
    *,
    command: Sequence[str] | None = None,
    devices: Iterable[DeviceInfo] = (),
    boards: Iterable[Board] = (),
    variables: Mapping[str, str] | None = None,
    folder: Path | None = None,
    root: Path = Path("/"),
) -> Environment:
    """The environment of this process. Never fails: what cannot be read becomes a gap of the environment.

    Args:
        command: the command line, of which secrets and personal paths are taken out; default: this process's.
        devices: the devices the trial may use.
        boards: the GPU boards behind them, which add driver and power limits.
        variables: environment variables, of which an allow-list is kept; default: this process's.
        folder: whose git checkout is recorded; default: the current folder.
        root: where ``/proc``, ``/sys`` and ``/etc`` lie, for tests.
    """
    observations = Observations()
    person = Person.here()
    sections: dict[str, dict[str, Json]] = {}
    readers: dict[str, Callable[[], dict[str, Json]]] = {
        "host": lambda: _host(root, observations),
        "python": lambda: _python(observations),
        "limits": lambda: _limits(root),
        "threads": _threads,
        "variables": lambda: {**allowed_variables(os.environ if variables is None else variables, person)},
        "git": lambda: _git(folder or Path.cwd()),
        "command": lambda: {"line": masked_command(_command() if command is None else command, person)},
    }
    for name, read in readers.items():
        with observations.guard(name):
            sections[name] = read()
    described: tuple[dict[str, Json], ...] = ()
    with observations.guard("devices"):
        described = device_facts(devices, boards)
    return Environment(
        host=sections.get("host", {}),
        python=sections.get("python", {}),
        limits=sections.get("limits", {}),
        threads=sections.get("threads", {}),
        variables=sections.get("variables", {}),
        git=sections.get("git", {}),
        command=sections.get("command", {}),
        devices=described,
        gaps=observations.gaps,
    )


def usable_cores(*, root: Path = Path("/")) -> int:
    """Logical cores this process may keep busy: its affinity, cut by the CPU quota of its control groups."""
    quota = cpu_quota_cores(root=root)
    allowed = _affinity() or os.cpu_count() or 1
    return allowed if quota is None else max(1, min(allowed, math.ceil(quota)))


def _host(root: Path, observations: Observations) -> dict[str, Json]:
    host: dict[str, Json] = {
        "cpu_model": cpu_model(root=root),
        "cores_physical": psutil.cpu_count(logical=False),
        "cores_logical": psutil.cpu_count(),
        "architecture": platform.machine(),
        "memory_bytes": int(psutil.virtual_memory().total),
        "os": platform.system(),
        "os_release": _os_release(root),
        "kernel": platform.release(),
    }
    readers: dict[str, Callable[[], dict[str, Json]]] = {
        "load": _load,
        "psi": lambda: _pressure(root),
        "governor": lambda: _governor(root),
        "virtualised": lambda: _virtualised(root),
        "bfloat16_units": lambda: _units(root),
    }
    for signal, read in readers.items():
        with observations.guard(signal):
            host |= read()
    return host


def _load() -> dict[str, Json]:
    one, five, fifteen = os.getloadavg()
    return {"load_1min": one, "load_5min": five, "load_15min": fifteen}


def _pressure(root: Path) -> dict[str, Json]:
    """Pressure stall information: percent of the last 10 s in which some (or all) tasks waited for a resource."""
    found: dict[str, Json] = {}
    for file in sorted((root / "proc" / "pressure").glob("*")):
        for kind, avg10 in re.findall(r"^(some|full) avg10=([\d.]+)", file.read_text(encoding="ascii"), re.MULTILINE):
            found[f"psi_{file.name}_{kind}_avg10"] = float(avg10)
    if not found:
        raise Unreadable("this kernel publishes no pressure stall information")
    return found


def _governor(root: Path) -> dict[str, Json]:
    files = (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    governors = sorted({file.read_text(encoding="ascii").strip() for file in files})
    if not governors:
        raise Unreadable("no frequency governor is visible (a virtual machine or a container without it)")
    return {"governor": ", ".join(governors)}


def _virtualised(root: Path) -> dict[str, Json]:
    flags = processor_flags(root=root)
    if flags is None or "fpu" not in flags:  # x86 alone has a flag for it
        raise Unreadable("the processor does not say whether a hypervisor runs it")
    return {"virtualised": "hypervisor" in flags}


def _units(root: Path) -> dict[str, Json]:
    has = bfloat16_units(root=root)
    if has is None:
        raise Unreadable("the kernel does not tell what units the processor has")
    return {"bfloat16_units": has}


def _os_release(root: Path) -> str | None:
    try:
        text = (root / "etc/os-release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r'^PRETTY_NAME="?([^"\n]*)"?$', text, re.MULTILINE)
    return found[1] if found else None


def _python(observations: Observations) -> dict[str, Json]:
    found: dict[str, Json] = {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "executable": Path(sys.executable).name,
    }
    found |= {name: version for name in LIBRARIES if (version := _version(name)) is not None}
    with observations.guard("torch_build"):
        found |= _torch_build(sys.modules.get("torch"))
    return found


def _version(library: str) -> str | None:
    """An installed library's version, as ``importlib.metadata.version`` tells it; None where it is not installed."""
    try:
        found = importlib.metadata.distribution(library)
    except importlib.metadata.PackageNotFoundError:
        return None
    # Asked for its version, it parses the whole description as an e-mail: half of what the capture took.
    head = (found.read_text("METADATA") or found.read_text("PKG-INFO") or "").partition("\n\n")[0]
    version = _VERSION_LINE.search(head)
    return found.version if version is None else version[1]


def _torch_build(torch: Any) -> dict[str, Json]:
    """How the imported torch was built; it is not imported for this, and no device is touched."""
    if torch is None:
        raise Unreadable("torch was not imported in the process that recorded the environment")
    from perf_diagnostics.measure.boards.float32_products import float32_products  # which imports torch

    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    return {
        "torch_cuda": torch.version.cuda,
        "torch_hip": getattr(torch.version, "hip", None),
        "torch_cudnn": cudnn,
        "torch_commit": torch.version.git_version,
        "torch_debug": bool(torch.version.debug),
        "torch_float32_matmul_precision": float32_products(),
        "torch_deterministic": bool(torch.are_deterministic_algorithms_enabled()),
    }


def _limits(root: Path) -> dict[str, Json]:
    throttle = cpu_throttle(root=root)
    return {
        "cores_affinity": _affinity(),
        "cores_usable": usable_cores(root=root),
        "cgroup_cpu_quota_cores": cpu_quota_cores(root=root),
        "cgroup_cpu_periods": None if throttle is None else throttle.periods,
        "cgroup_cpu_throttled_periods": None if throttle is None else throttle.throttled_periods,
        "cgroup_cpu_throttled_usec": None if throttle is None else throttle.throttled_usec,
        "memory_limit_bytes": memory_limit_bytes(root=root),
    }


def _affinity() -> int | None:
    """How many logical cores this process may be scheduled on; None where the system does not say (macOS)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None


def with_threads_of_now(environment: Environment) -> Environment:
    """The same environment with the numbers of threads that torch has now: a trial sets its own after the capture."""
    return replace(environment, threads=_threads())


def _threads() -> dict[str, Json]:
    torch: Any = sys.modules.get("torch")
    if torch is None:
        return {"torch_intra_op": None, "torch_inter_op": None}
    return {"torch_intra_op": torch.get_num_threads(), "torch_inter_op": torch.get_num_interop_threads()}


def _git(folder: Path) -> dict[str, Json]:
    commit = _run_git(folder, "rev-parse", "HEAD").strip()
    try:
        dirty: bool | None = bool(_run_git(folder, "status", "--porcelain", "--untracked-files=no").strip())
    except Unreadable:  # a checkout so large that looking through it takes too long still has a commit
        dirty = None
    return {"commit": commit, "dirty": dirty}


def _run_git(folder: Path, *arguments: str) -> str:
    # By its place: to find a name, subprocess enters warnings.catch_warnings (os.get_exec_path), after which Python
    # prints each warning of a training under way once more.
    git = shutil.which("git")
    if git is None:
        raise Unreadable("git is not installed")
    # Without this, asking for the status would write the index of a checkout that may be in use.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    command = [git, "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_GIT_TIMEOUT_S, check=True, env=environment
        )
    except subprocess.TimeoutExpired as slow:
        raise Unreadable(f"git {arguments[0]} took longer than {_GIT_TIMEOUT_S:g} s") from slow
    except subprocess.CalledProcessError as refused:
        raise Unreadable(
            "the current folder is in no git checkout with a commit, or git refuses to read it"
        ) from refused
    return done.stdout


def _command() -> Sequence[str]:
    """This process's command line; the interpreter by its name alone."""
    interpreter, *arguments = sys.orig_argv or [sys.executable, *sys.argv]
    if "--multiprocessing-fork" in arguments:  # as multiprocessing starts processes, which then have the script's
        arguments = sys.argv
    return [Path(interpreter).name, *arguments]


def device_facts(devices: Iterable[DeviceInfo], boards: Iterable[Board]) -> tuple[dict[str, Json], ...]:
    """Each device as the plain values of an environment's ``devices``, with what the driver says about its board."""
    described, listed = [], tuple(boards)
    for device in devices:
        facts = device.facts()
        try:
            board: Board | None = match_board(listed, uuid=device.uuid, pci_bus_id=device.pci_bus_id)
        except Unreadable:
            board = None
        if board is not None:
            facts |= {
                "driver": board.driver,
                "pci_bus_id": board.pci_bus_id,
                "power_limit_w": board.power_limit_w,
                "default_power_limit_w": board.default_power_limit_w,
                "power_reading": board.power_kind,
                "pcie_generation_max": board.pcie_generation_max,
                "pcie_width_max": board.pcie_width_max,
            }
        described.append(facts)
    return tuple(described)
