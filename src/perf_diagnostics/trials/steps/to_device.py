"""Brings a batch to the device, whatever holds its tensors."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from perf_diagnostics.workloads.workload import Training


def on_device(training: Training, device: torch.device, batch: Any) -> Any:
    """A batch where the model is, as the loop would bring it there, before the first step."""
    if training.to_device is not None:
        return training.to_device(batch, device)
    return batch if device.type == "cpu" else move(batch, device, non_blocking=False)


def move(value: Any, device: torch.device, *, non_blocking: bool, channels_last: bool = False) -> Any:
    """A batch on the device: tensors, and what holds them (mappings, sequences, dataclasses, objects with ``.to``).

    With ``channels_last`` tensors of four dimensions get that memory format; objects that move themselves keep theirs.
    """
    if isinstance(value, torch.Tensor):
        if channels_last and value.ndim == 4:
            return value.to(device, non_blocking=non_blocking, memory_format=torch.channels_last)
        return value.to(device, non_blocking=non_blocking)
    if value is None or isinstance(value, str | bytes | int | float | bool | type):
        return value
    if hasattr(value, "to") and callable(value.to):
        return _moved_by_itself(value, device) if non_blocking else value.to(device)

    def moved(item: Any) -> Any:
        return move(item, device, non_blocking=non_blocking, channels_last=channels_last)

    if isinstance(value, Mapping):
        items = {key: moved(item) for key, item in value.items()}
        return items if type(value) is dict else _rebuilt(value, items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(item) for item in value))
    if isinstance(value, list | tuple):
        return type(value)(moved(item) for item in value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {f.name: moved(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
        return dataclasses.replace(value, **changes)
    if hasattr(value, "__dict__"):
        return _moved_object(value, moved)
    return value


def _moved_by_itself(value: Any, device: torch.device) -> Any:
    """By its own ``.to``, without waiting where it can: transformers' BatchEncoding waits for each copy otherwise."""
    try:
        return value.to(device, non_blocking=True)
    except TypeError:  # its .to takes a device only
        return value.to(device)


def _rebuilt(original: Any, items: dict[Any, Any]) -> Any:
    try:
        return type(original)(items)
    except TypeError:  # a mapping whose constructor wants something else; a plain dict reads the same
        return items


def _moved_object(value: Any, moved: Callable[[Any], Any]) -> Any:
    """A shallow copy of a plain object whose attributes that hold tensors are on the device."""
    copied = copy.copy(value)
    for name, item in vars(value).items():
        on_device = moved(item)
        if on_device is not item:
            setattr(copied, name, on_device)
    return copied
