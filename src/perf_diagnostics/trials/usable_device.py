"""The device a trial names, if this machine has it."""

from __future__ import annotations

from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings


def usable_device(name: str) -> torch.device:
    """The torch device of that name, if this machine has it.

    Raises:
        InvalidSettings: no such device; the text names those there are.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSettings(f"device={name!r} is no device name: {str(error).splitlines()[0]}") from None
    if device.type == "cpu":
        return device
    count = _device_count(device.type)
    if (device.index or 0) >= count:
        there = f"{count} {device.type} device{'s' * (count != 1)}" if count else f"no {device.type} device"
        raise InvalidSettings(f"device={name!r}: torch sees {there} on this machine.")
    return device


def _device_count(kind: str) -> int:
    back_end: Any = getattr(torch, kind, None)
    if back_end is None or not getattr(back_end, "is_available", lambda: True)():
        return 0
    return int(back_end.device_count()) if hasattr(back_end, "device_count") else 1
