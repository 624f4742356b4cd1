"""Reads the values that a caller in Python gave, and refuses what no trial could run before the first one starts.

In a notebook nothing checks types: sizes come as NumPy integers, one device as a text, a time as what a form returned.
What can only mean one thing is taken as that.
"""

from __future__ import annotations

import operator
import os
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.boards.devices import DeviceInfo
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.preflight import Devices, check_precision, refuse_hopeless
from perf_diagnostics.trials.usable_device import usable_device


def shown(value: object) -> str:
    """A value for an error's text: cut short, on one line."""
    return " ".join(reprlib.repr(value).split())


def sizes(given: object) -> list[int]:
    """Batch sizes from one or several whole numbers, NumPy's included, each once.

    Raises:
        InvalidSettings: nothing that holds numbers, or none of them, or one that is no size.
    """
    alone = isinstance(_plain(given), int)
    named = [given] if alone else _listed("batch_sizes", given, "sizes such as [8, 16, 32]")
    if not named:
        raise InvalidSettings("batch_sizes is empty; give at least one batch size to measure.")
    return list(dict.fromkeys(whole_number(size, name="batch_size", least=1) for size in named))


def whole_number(given: object, *, name: str, least: int | None = None) -> int:
    """A whole number, NumPy's included.

    Raises:
        InvalidSettings: something else, or one below ``least``.
    """
    number = _plain(given)
    if not isinstance(number, int) or isinstance(number, bool) or (least is not None and number < least):
        kind = "a whole number" if least is None else f"a whole number of at least {least}"
        raise InvalidSettings(f"{name}={shown(given)} must be {kind}.")
    return number


def seconds(given: object) -> float | None:
    """The seconds of a ``time_budget_s``; None is no limit.

    Raises:
        InvalidSettings: something else, or less than 0, or without an end.
    """
    if given is None:
        return None
    if not isinstance(given, bool) and isinstance(given, Real):
        length = float(given)
        if 0 <= length < float("inf"):
            return length
    raise InvalidSettings(
        f"time_budget_s={shown(given)} is no length of time; give 0 or more seconds, such as 600.0, or None for no "
        "limit."
    )


def folder(given: object, *, name: str) -> str | os.PathLike[str]:
    """A folder's path, which need not be there.

    Raises:
        InvalidSettings: what is no path.
    """
    if isinstance(given, str | os.PathLike) and str(given):
        return given
    raise InvalidSettings(f"{name}={shown(given)} is no folder; give its path, such as 'results'.")


def texts(given: object, *, name: str, such_as: str) -> list[str]:
    """One or several texts, each once; one text is one and no row of letters.

    Raises:
        InvalidSettings: nothing that holds texts.
    """
    found = [given] if isinstance(given, str) else _listed(name, given, such_as)
    for one in found:
        if not isinstance(one, str):
            raise InvalidSettings(f"{name}={shown(given)} holds a {type(one).__name__}; give {such_as}.")
    return list(dict.fromkeys(found))


def device_names(given: object) -> list[str]:
    """The names of one or several devices, each once.

    Raises:
        InvalidSettings: no device, or what torch does not take for one.
    """
    if isinstance(given, str | torch.device | int):
        return [device_name(given)]
    named = [device_name(one) for one in _listed("devices", given, "names such as ['cpu', 'cuda:0']")]
    if not named:
        raise InvalidSettings("devices=[] names no device to measure on; leave it out for the profiler's own.")
    return list(dict.fromkeys(named))


def device_name(given: object) -> str:
    """The name of a device; ``cuda`` is one particular board, because results of two must never be mixed up.

    Raises:
        InvalidSettings: what torch does not take for a device.
    """
    if isinstance(given, bool) or not isinstance(given, str | torch.device | int):
        raise InvalidSettings(
            f"device={shown(given)} is a {type(given).__name__}; give a name such as 'cpu' or 'cuda:0'."
        )
    try:
        device = torch.device(given)
    except RuntimeError:
        raise InvalidSettings(
            f"device={given!r} is no device name of torch; give one such as 'cpu' or 'cuda:0'."
        ) from None
    if device.type == "cpu":
        return "cpu"
    if str(device) == "cuda":
        return f"cuda:{torch.cuda.current_device() if torch.cuda.is_available() else 0}"
    return str(device)


def check_device(name: str, found: Callable[[], Sequence[DeviceInfo]]) -> None:
    """Refuse a device that this machine does not have, or cannot use.

    Args:
        name: as :func:`device_name` gives it.
        found: lists the devices; asked of accelerators only.

    Raises:
        InvalidSettings: the text says what there is, or why not.
    """
    if torch.device(name).type != "cpu":
        Devices(found).check(name)
        usable_device(name)


def check_settings(settings: Iterable[Settings], found: Callable[[], Sequence[DeviceInfo]]) -> None:
    """Refuse a device or a precision with which no configuration could be run; what only some could, those tell.

    Raises:
        InvalidSettings: as said.
    """
    refuse_hopeless({one: _fault(one, found) for one in settings})


def _fault(settings: Settings, found: Callable[[], Sequence[DeviceInfo]]) -> InvalidSettings | None:
    try:
        check_device(settings.device, found)
        check_precision(settings.precision, torch.device(settings.device).type)
    except InvalidSettings as error:
        return error
    return None


def _plain(value: Any) -> Any:
    """A whole number of any library as Python's own; anything else as it is, for whoever refuses it by name."""
    if isinstance(value, bool):
        return value
    try:
        return operator.index(value)
    except TypeError:
        return value


def _listed(name: str, given: Any, such_as: str) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InvalidSettings(f"{name}={shown(given)} is a {type(given).__name__}; give {such_as}.")
    return list(given)
