"""Which accelerators a training computes on: one, or several where its model or its batches are spread over them."""

from __future__ import annotations

from typing import Any

from perf_diagnostics.measure.boards.devices import DeviceInfo, InstalledTorch


def devices_of(device: str) -> tuple[DeviceInfo, ...]:
    """The accelerator of that name as torch describes it, then each other one on which this process holds memory.

    Memory is that of torch's allocator, which knows this process even in a container whose process ids the driver
    does not; what was allocated past torch is not seen. None for the CPU.
    """
    if device.startswith("cpu"):
        return ()
    import torch

    known = InstalledTorch()
    found = (*known.cuda(), *known.others())
    named = tuple(one for one in found if one.name == device)
    return (*named, *(one for one in found if one.name != device and one.kind == "cuda" and _holds_memory(torch, one)))


def devices_in_use() -> tuple[DeviceInfo, ...]:
    """Every CUDA device on which this process holds memory; none before CUDA was initialised, and nothing is then."""
    import torch

    cuda: Any = torch.cuda
    if not cuda.is_initialized():
        return ()
    return tuple(one for one in InstalledTorch().cuda() if _holds_memory(torch, one))


def _holds_memory(torch: Any, device: DeviceInfo) -> bool:
    """Whether torch's allocator has taken memory from this device; false where it keeps no such count (pluggable)."""
    try:
        told = torch.cuda.memory.memory_stats_as_nested_dict(int(device.name.partition(":")[2]))
    except RuntimeError:
        return False
    return int(told.get("reserved_bytes", {}).get("all", {}).get("current", 0)) > 0
