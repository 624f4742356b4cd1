"""Lets denormal numbers count as 0 in this process: a processor takes many times as long for an operation on one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from perf_diagnostics.errors import InvalidSettings

#: Half of it is denormal in float32.
_SMALLEST = torch.finfo(torch.float32).tiny


def flush_denormals() -> Callable[[], None]:
    """From now on numbers below 1.2e-38 in float32 (2.2e-308 in float64) count as 0, in this thread and in those that
    it starts; torch's own that compute by now stay as they are. What is returned puts this thread back.

    Raises:
        InvalidSettings: this processor, or torch's build, cannot.
    """
    before = _flushed()
    if not torch.set_flush_denormal(True):
        raise InvalidSettings("flush_denormals=True: torch cannot set it on this processor (it takes SSE3 or ARM64).")

    def undo() -> None:
        torch.set_flush_denormal(before)

    return undo


def _flushed() -> bool:
    return bool(torch.full((1,), _SMALLEST) * 0.5 == 0)
