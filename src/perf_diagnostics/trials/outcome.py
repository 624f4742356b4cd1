"""Turns what went wrong in a trial into an outcome and a reason."""

from __future__ import annotations

import signal

from perf_diagnostics.errors import InvalidSettings, PerfDiagnosticsError
from perf_diagnostics.measure.code.raised_at import raised_at
from perf_diagnostics.records import Outcome

_REASON_LIMIT = 400

#: How torch's CPU allocator and the C library word a failed allocation; they raise a bare RuntimeError.
_HOST_MEMORY_WORDS = ("can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc")
#: The second line: torch's allocator has left no room for the libraries' own buffers and handles.
_DEVICE_MEMORY_WORDS = (
    *("out of memory", "cuda_error_out_of_memory", "hip_error_out_of_memory", "erroroutofmemory"),
    *("cublas_status_alloc_failed", "cudnn_status_alloc_failed", "hipblas_status_alloc_failed"),
)
_COMMUNICATION_WORDS = ("nccl", "gloo", "connection reset by peer", "socket timeout")


class NonFiniteLoss(Exception):
    """The loss became NaN or infinite; carries the step and the value."""

    def __init__(self, step: int, value: float) -> None:
        super().__init__(f"the loss became {value} at step {step}")


def outcome_of(error: BaseException) -> tuple[Outcome, str]:
    """What an exception that ended a trial means, with the reason in one line."""
    import torch

    reason = one_line(error)
    words = str(error).lower()
    if isinstance(error, InvalidSettings):
        return Outcome.INVALID_SETTINGS, reason
    if isinstance(error, NonFiniteLoss):
        return Outcome.NAN_LOSS, reason
    if isinstance(error, KeyboardInterrupt):
        return Outcome.INTERRUPTED, "interrupted"
    if isinstance(error, MemoryError) or any(word in words for word in _HOST_MEMORY_WORDS):
        return Outcome.OUT_OF_MEMORY_HOST, reason
    if isinstance(error, torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(word in words for word in _DEVICE_MEMORY_WORDS)
    ):
        return Outcome.OUT_OF_MEMORY_DEVICE, reason
    if type(error).__name__.startswith("Dist") or any(word in words for word in _COMMUNICATION_WORDS):
        return Outcome.COMMUNICATION_FAILED, reason
    return Outcome.CRASHED, reason


def one_line(error: BaseException) -> str:
    """``ValueError: text (train.py:12)``: the error's type, its text on one line, and where it was raised.

    Where that is in a library, the user's own line that led there stands beside it. Of our own errors, which say what
    is wrong and what now, the text alone.
    """
    text = " ".join(str(error).split())
    if len(text) > _REASON_LIMIT:
        text = text[:_REASON_LIMIT] + "…"
    if isinstance(error, PerfDiagnosticsError):
        return text
    return f"{type(error).__name__}: {text}{raised_at(error)}"


def killed(signal_number: int, *, oom_kills: int | None, memory_share: float | None) -> tuple[Outcome, str]:
    """What a process that died of a signal we did not send died of.

    Args:
        signal_number: the signal.
        oom_kills: how many processes the kernel's out-of-memory killer took in our cgroup meanwhile, if known.
        memory_share: last resident memory of the trial over what it may use, if known.
    """
    name = signal.Signals(signal_number).name
    if signal_number == signal.SIGKILL:
        if oom_kills:
            return Outcome.OUT_OF_MEMORY_HOST, f"killed by {name}; the kernel's out-of-memory killer was at work"
        if memory_share is not None and memory_share >= 0.9:
            return (
                Outcome.OUT_OF_MEMORY_HOST,
                f"killed by {name} with {memory_share:.0%} of the memory it may use in use",
            )
    return Outcome.CRASHED, f"killed by signal {signal_number} ({name})"
