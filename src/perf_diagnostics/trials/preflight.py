"""Refuses, before the first trial, what every trial with it would refuse: workload, options, settings, devices."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.boards.devices import DeviceInfo, probe_devices
from perf_diagnostics.records import Json, Settings, Trial
from perf_diagnostics.workloads import registry
from perf_diagnostics.workloads.beforehand import check_options, check_settings
from perf_diagnostics.workloads.workload import Workload

_Key = TypeVar("_Key")

#: Kinds of device that :func:`probe_devices` knows how to look for; of others (a plug-in's) the trial itself tells.
_LOOKED_FOR = ("cuda", "mps", "xpu")

#: The first compute capability with TF32 (CUDA C++ Programming Guide, table "Features and Technical Specifications").
_TF32_SINCE = (8, 0)

#: torch seeds its generators with 64 bits; each repeat adds one to the seed.
SEEDS = range(-(2**63), 2**63)


def check(trials: Sequence[Trial], *, probe: Callable[[], Sequence[DeviceInfo]] = probe_devices) -> None:
    """Look at trials that are about to be run; nothing is built and no device is touched by this process.

    A value is refused if no configuration that has it could be run: ``float16`` is not trained on a CPU, but in a
    sweep over CPU and GPU it stays, and the trial on the CPU says so.

    Args:
        trials: of any number of workloads.
        probe: finds the devices, in another process; asked only where one is named or memory is to be pinned.

    Raises:
        WorkloadError: A workload that does not exist, or an option it does not have.
        InvalidSettings: A setting or a seed that cannot be run.
    """
    for name, seed in {(trial.workload, trial.seed) for trial in trials}:
        if seed not in SEEDS:
            raise InvalidSettings(f"seed={seed} of {name} is no seed for torch; give one of {SEEDS[0]} to {SEEDS[-1]}.")
    workloads = {name: registry.find(name) for name in dict.fromkeys(trial.workload for trial in trials)}
    for trial in _one_each(trials, lambda trial: (trial.workload, repr(sorted(trial.options.items())))):
        check_options(workloads[trial.workload], trial.options)
    devices = Devices(probe)
    faults: dict[Settings, InvalidSettings | None] = {}
    for trial in _one_each(trials, lambda trial: trial.settings):
        faults[trial.settings] = _fault(trial, workloads[trial.workload], devices)
    refuse_hopeless(faults)


def refuse_hopeless(faults: Mapping[Settings, InvalidSettings | None]) -> None:
    """Refuse the first value with which none of the configurations that have it could be run.

    Args:
        faults: of every configuration, why it cannot be run, or None.

    Raises:
        InvalidSettings: What is wrong with the first configuration that has such a value.
    """
    by_value: dict[tuple[str, Json], list[InvalidSettings | None]] = {}
    for settings, fault in faults.items():
        for value in settings.canonical().items():
            by_value.setdefault(value, []).append(fault)
    for told in by_value.values():
        known = [fault for fault in told if fault is not None]
        if len(known) == len(told):
            raise known[0]


def check_precision(precision: str, device_type: str) -> None:
    """Refuse a precision that this tool does not train in on such a device.

    Raises:
        InvalidSettings: tf32 anywhere but on CUDA, float16 on a CPU, float64.
    """
    if precision == "float64":
        raise InvalidSettings(
            "precision='float64' is not trained here; use 'float32', or let the workload make model and data double."
        )
    if precision == "tf32" and device_type != "cuda":
        raise InvalidSettings(f"precision='tf32' needs a CUDA device, not {device_type}.")
    if precision == "float16" and device_type == "cpu":
        raise InvalidSettings("precision='float16' is not trained on a CPU here; use 'bfloat16' or 'float32'.")


def check_tf32(model: str, capability: tuple[int, int]) -> None:
    """Refuse an NVIDIA GPU that computes float32 products in float32 whatever it is told: a trial's name would lie.

    Of AMD's GPUs, which ones do it depends on library and version, and their compute capability says nothing.

    Raises:
        InvalidSettings: a GPU before Ampere.
    """
    if capability < _TF32_SINCE:
        have, needed = (".".join(map(str, number)) for number in (capability, _TF32_SINCE))
        raise InvalidSettings(
            f"precision='tf32': {model} has compute capability {have} and TF32 needs {needed}; use 'float32' or "
            "'float16'."
        )


class Devices:
    """The devices of this machine, looked for when they are first asked for."""

    def __init__(self, probe: Callable[[], Sequence[DeviceInfo]]) -> None:
        self._probe = probe
        self._found: Sequence[DeviceInfo] | None = None

    @property
    def found(self) -> Sequence[DeviceInfo]:
        if self._found is None:
            self._found = self._probe()
        return self._found

    @property
    def unknown(self) -> bool:
        """Whether looking for them failed, so that the trials have to find out."""
        return any(device.kind == "unknown" for device in self.found)

    def check(self, name: str) -> None:
        """Refuse a name that torch does not understand, or a device that is not there or cannot be used."""
        import torch

        try:
            kind = torch.device(name).type
        except RuntimeError:
            near = _nearest(name, [device.name for device in self.found if device.usable])
            raise InvalidSettings(f"device={name!r} is no device name{near}; {self._there()}.") from None
        if kind not in _LOOKED_FOR or self.unknown:
            return
        wanted = name if ":" in name or kind == "mps" else f"{name}:0"
        by_name = {device.name: device for device in self.found}
        device = by_name.get(wanted) or by_name.get(kind)
        if device is None:
            raise InvalidSettings(f"device={name!r}: this machine has no such device; {self._there()}.")
        if not device.usable:
            raise InvalidSettings(f"device={name!r} cannot be used: {device.why_not}.")

    def check_tf32(self, settings: Settings) -> None:
        """Refuse TF32 on a device that is known to have none; of others the trial tells."""
        wanted = f"{settings.device}:0" if settings.device == "cuda" else settings.device
        for device in self.found if settings.precision == "tf32" else ():
            capability = re.fullmatch(r"(\d+)\.(\d+)", device.capability or "")
            if device.name == wanted and capability is not None:
                check_tf32(device.model, (int(capability[1]), int(capability[2])))

    def check_pinning(self, settings: Settings) -> None:
        """Refuse pinned memory where no accelerator could copy from it."""
        if settings.pin_memory and not self.unknown and all(device.kind == "cpu" for device in self.found):
            raise InvalidSettings(
                "pin_memory=True needs an accelerator to copy to and none is available; leave it unset."
            )

    def _there(self) -> str:
        return f"usable here: {', '.join(device.name for device in self.found if device.usable)}"


def _fault(trial: Trial, workload: Workload, devices: Devices) -> InvalidSettings | None:
    """Why one configuration cannot be run, if that is known."""
    settings = trial.settings
    try:
        if settings.device != "cpu":
            devices.check(settings.device)
        check_precision(settings.precision, settings.device.partition(":")[0])
        devices.check_tf32(settings)
        devices.check_pinning(settings)
        check_settings(workload, settings, trial.options)
    except InvalidSettings as error:
        return error
    return None


def _one_each(trials: Iterable[Trial], key: Callable[[Trial], _Key]) -> Iterable[Trial]:
    """The first trial of each key."""
    first: dict[_Key, Trial] = {}
    for trial in trials:
        first.setdefault(key(trial), trial)
    return first.values()


def _nearest(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
