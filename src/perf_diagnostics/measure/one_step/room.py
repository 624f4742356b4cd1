"""Whether there is room for a step that needs more memory than the training has needed so far."""

from __future__ import annotations

from collections.abc import Iterable

import psutil
import torch

from perf_diagnostics.measure.host.host_memory import available_bytes
from perf_diagnostics.measure.host.memory import memory_limit_bytes, vm_hwm_bytes

#: While operators are seen torch adds gradients up out of place, and copies what it else writes into: a step whose
#: logits were picked by a mask took 1,259 MiB instead of 974 (torch 2.13). So much of the peak, and so many bytes of a
#: device, have to be free beside it.
SPARE_PART, LEAST_SPARE = 0.5, 1 << 30


def too_little_room(devices: Iterable[torch.device]) -> str:
    """Whose memory may not suffice for the look at a step, in words; empty where all has room, or is not known."""
    if _is_short(*_of_host(), least=0):
        return "too little of the host's memory is free to look through a step, which needs more than others"
    if any(one.type == "cuda" and _is_short(*_of_device(one), least=LEAST_SPARE) for one in devices):
        return "too little of the device's memory is free to look through a step, which needs more than others"
    return ""


def _is_short(room: int, peak: int, *, least: int) -> bool:
    return room - peak < max(least, SPARE_PART * peak)


def _of_host() -> tuple[int, int]:
    """What the process may have in all, and its peak so far, in bytes; a peak of 0 where the kernel does not say it."""
    resident = int(psutil.Process().memory_info().rss)
    return min(memory_limit_bytes(), resident + available_bytes()), vm_hwm_bytes() or 0


def _of_device(device: torch.device) -> tuple[int, int]:
    """The same of a CUDA device, as torch's allocator has it."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device), torch.cuda.max_memory_allocated(device)
