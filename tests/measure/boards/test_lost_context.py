"""Errors after which a process can use no GPU any more are told from the others by torch's words."""

from __future__ import annotations

import pytest

from perf_diagnostics.measure.boards.lost_context import WHAT_NOW, with_what_now

LOST = (
    "AcceleratorError: CUDA error: device-side assert triggered CUDA kernel errors might be asynchronously reported",
    "RuntimeError: CUDA error: an illegal memory access was encountered\nCUDA kernel errors might be",
    "RuntimeError: CUDA error: unspecified launch failure (train.py:12)",
)
KEPT = (
    "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "RuntimeError: CUDA error: out of memory",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    "RuntimeError: CUDA error: invalid device ordinal",
    "ValueError: my own text about a device-side assert triggered elsewhere",
    "",
)


@pytest.mark.parametrize("reason", LOST)
def test_a_lost_context_is_said_with_what_now(reason: str) -> None:
    assert with_what_now(reason) == f"{reason}; {WHAT_NOW}"


@pytest.mark.parametrize("reason", KEPT)
def test_other_errors_are_left_as_they_are(reason: str) -> None:
    assert with_what_now(reason) == reason
