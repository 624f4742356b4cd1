"""Tells the CUDA errors after which a process can use no GPU any more from those that end one computation only."""

from __future__ import annotations

#: ``cudaGetErrorString`` of the errors of which CUDA's runtime API says "To continue using CUDA, the process must be
#: terminated and relaunched" (group CUDART_TYPES, cudaError: 700, 702, 710, 714 to 719). Running out of memory is none
#: of them.
_STICKY = (
    "an illegal memory access was encountered",
    "the launch timed out and was terminated",
    "device-side assert triggered",
    "hardware stack error",
    "an illegal instruction was encountered",
    "misaligned address",
    "operation not supported on global/shared address space",
    "invalid program counter",
    "unspecified launch failure",
)

WHAT_NOW = (
    "this process's CUDA context is lost: nothing runs on its GPUs any more until it is started again "
    "(in a notebook: restart the kernel)"
)


def context_is_lost(reason: str) -> bool:
    """Whether an error's text, as torch words it (``CUDA error: device-side assert triggered …``), is one of these."""
    words = " ".join(reason.lower().split())
    return any(f"cuda error: {sticky}" in words for sticky in _STICKY)


def with_what_now(reason: str) -> str:
    """The reason and, after an error that takes the CUDA context with it, what that means for the process."""
    return f"{reason}; {WHAT_NOW}" if context_is_lost(reason) else reason
