"""From ``sweep``'s flags to what is varied: devices, batch sizes, further settings, options, and a trial's length."""

from __future__ import annotations

import dataclasses
import difflib
import sys
from typing import TYPE_CHECKING, Any

from perf_diagnostics.cli.values import (
    assignments,
    parsed_value,
    precision,
    some_names,
    split_whole_numbers,
)
from perf_diagnostics.errors import InvalidSettings

if TYPE_CHECKING:
    from perf_diagnostics.records import Json, Length
    from perf_diagnostics.trials.plan import Axes

WORKLOAD = "distilbert-sst2"

#: Settings that have a flag of their own, and which.
_OWN_FLAG = {
    "batch_size": "--batch-sizes",
    "device": "--devices",
    "precision": "--precisions",
    "num_workers": "--num-workers",
    "threads": "--threads",
}
_NEVER_BY_SET = ("batch_size", "device")


def device_names(chosen: dict[str, Any]) -> list[str]:
    """The devices that were asked for by name, with 'all' and 'gpu' spelled out; empty if there is no such GPU."""
    wanted = some_names(chosen.get("devices", ["cpu"]), of="--devices")
    if not any(name in ("all", "gpu") for name in wanted):
        return [("cuda:0" if name == "cuda" else name) for name in wanted]
    from perf_diagnostics.measure.boards.devices import probe_devices

    found = probe_devices()
    for device in found:
        if not device.usable:
            print(f"{device.name}: skipped: {device.why_not}", file=sys.stderr)
    gpus = [device.name for device in found if device.usable and device.kind != "cpu"]
    spelled: list[str] = []
    for name in wanted:
        spelled += {"all": ["cpu", *gpus], "gpu": gpus}.get(name, [name])
    return list(dict.fromkeys(spelled))


def axes_of(chosen: dict[str, Any], devices: list[str], budget_s: float) -> Axes:
    """What the sweep varies; with a sentinel if one was asked for, or, if nobody said, where the sweep is long enough.

    Raises:
        InvalidSettings: a value that cannot be read, a setting that does not exist, or one that is given twice.
    """
    from perf_diagnostics.trials.plan import Axes

    sizes = chosen.get("batch_sizes")
    axes = Axes(
        workload=chosen.get("workload", WORKLOAD),
        devices=devices,
        batch_sizes=() if sizes is None else split_whole_numbers(sizes, of="--batch-sizes"),
        others=_others(chosen),
        options=_options(chosen),
        length=_length(chosen),
        seed=chosen.get("seed", 0),
        repeats=chosen.get("repeats", 1),
    )
    return with_sentinel(axes, chosen.get("sentinel"), budget_s)


def with_sentinel(axes: Axes, asked: bool | None, budget_s: float) -> Axes:
    """The axes with a sentinel where one was asked for, or, if nobody said, where the sweep is long enough for it."""
    from perf_diagnostics.trials.plan import worth_a_sentinel

    return dataclasses.replace(axes, sentinel=worth_a_sentinel(axes, budget_s) if asked is None else asked)


def setting_name(text: str) -> str:
    """A setting's name as it is typed, with dashes or underscores.

    Raises:
        InvalidSettings: there is no such setting.
    """
    from perf_diagnostics.records import Settings

    name = text.replace("-", "_")
    known = [field.name for field in dataclasses.fields(Settings)]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise InvalidSettings(f"--set {text}: there is no such setting; {hint}known are {', '.join(sorted(known))}.")
    return name


def _others(chosen: dict[str, Any]) -> dict[str, list[Any]]:
    """Values of the settings other than device and batch size, by the setting's name."""
    others: dict[str, list[Any]] = {}
    if "precisions" in chosen:
        names = some_names(chosen["precisions"], of="--precisions")
        others["precision"] = [precision(name, of="--precisions") for name in names]
    for name in ("num_workers", "threads"):
        if name in chosen:
            others[name] = split_whole_numbers(chosen[name], of=_OWN_FLAG[name])
    for text, values in assignments(chosen.get("set", []), of="--set").items():
        name = setting_name(text)
        if name in _NEVER_BY_SET:
            raise InvalidSettings(f"--set {text}={values}: give it by {_OWN_FLAG[name]}.")
        if name in others:
            flag = _OWN_FLAG.get(name, "--set")
            raise InvalidSettings(f"--set {text}={values}: {name} is given by {flag} as well. Give it once.")
        others[name] = [parsed_value(value) for value in some_names([values], of=f"--set {text}")]
    return others


def _options(chosen: dict[str, Any]) -> dict[str, Json]:
    options: dict[str, Json] = {name: chosen[name] for name in ("weights", "dataset") if name in chosen}
    given = chosen.get("option", [])
    if isinstance(given, dict):  # from a config file
        return {**given, **options}
    for name, value in assignments(given, of="--option").items():
        if name in options:
            raise InvalidSettings(f"--option {name}={value}: {name} is given by --{name} as well. Give it once.")
        options[name] = parsed_value(value)
    return options


def _length(chosen: dict[str, Any]) -> Length:
    from perf_diagnostics.records import Length

    if "steps" in chosen:
        return Length.exactly(chosen["steps"], **({"warmup_steps": chosen["warmup"]} if "warmup" in chosen else {}))
    names = {"warmup": "warmup_steps", "min_steps": "min_steps", "max_steps": "max_steps", "half_width": "half_width"}
    fields = {field: chosen[name] for name, field in names.items() if name in chosen}
    for name in ("min_steps", "max_steps"):
        if name in fields:
            fields["floor_steps"] = max(1, min(fields.get("floor_steps", 3), fields[name]))
    if "max_steps" in fields:
        fields.setdefault("min_steps", min(20, fields["max_steps"]))
    return Length(**fields)
