"""What the device can do at best, measured beside the trial: how fast it copies and how fast it multiplies."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import torch

from perf_diagnostics.measure.steps.device_clock import event_source

#: Large enough to leave the caches of most processors and GPUs, small enough to fit beside a trial.
_COPY_BYTES = 256 * 2**20
_REPEATS = 6

#: A product much larger than this only asks for memory; one much smaller leaves parts of a large GPU idle.
_WIDEST = 8192
_NARROWEST = 256
#: Products, and copies, queued on a device are timed together until they take so long that waiting for it at both ends
#: is 1 % of that.
_LONG_ENOUGH_NS = 5_000_000
#: What all products together may take.
_PRODUCTS_NS = 400_000_000
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def memory_bandwidth(device: torch.device, *, clock: Callable[[], int] = time.perf_counter_ns) -> float | None:
    """Bytes a second of the best of six large copies, reading and writing counted; None if there is no room for one.

    On a device, where one may be over in a tenth of a millisecond, each of the six is as many as take 5 ms. The same
    measure as STREAM's "copy" (McCalpin, 1995). An optimizer that only streams its state through the processor cannot
    be faster than its bytes over this.
    """
    events = event_source(device, clock)
    wait = (lambda: None) if events is None else events.synchronize
    try:
        origin = torch.ones(_COPY_BYTES // 4, dtype=torch.float32, device=device)
        target = torch.empty_like(origin)
        best_ns = _best_copy_ns(lambda times: _copies_ns(origin, target, times, wait, clock), queued=events is not None)
    except (RuntimeError, MemoryError):  # out of memory beside a trial that filled it
        return None
    return 2 * _COPY_BYTES / (best_ns / 1e9)


def _best_copy_ns(copies_ns: Callable[[int], int], *, queued: bool) -> float:
    """Time of a copy, in ns, from what so many of them take; those of a device are ``queued`` and waited for."""
    times = 1
    if queued:
        copies_ns(1)  # the first one also loads its kernel
        times = math.ceil(_LONG_ENOUGH_NS / max(1, copies_ns(1)))
    return min(copies_ns(times) for _ in range(_REPEATS)) / times


def _copies_ns(
    origin: torch.Tensor, target: torch.Tensor, times: int, wait: Callable[[], None], clock: Callable[[], int]
) -> int:
    wait()
    began = clock()
    for _ in range(times):
        target.copy_(origin)
    wait()
    return clock() - began


def matmul_ceiling(
    device: torch.device, precision: str, *, part: float = 1.0, clock: Callable[[], int] = time.perf_counter_ns
) -> float | None:
    """Floating point operations a second of the best matrix product; None if not even a small one fits.

    Square products of doubled width, 2·n³ operations each, in the trial's precision and with its threads, for less
    than half a second, or a ``part`` of that: until the next one would take too long, or would not fit beside the
    trial. TF32 is a setting of the process that the caller has made.
    """
    events = event_source(device, clock)
    wait = (lambda: None) if events is None else events.synchronize
    dtype = _DTYPES.get(precision, torch.float32)
    began, best, width, times = clock(), 0.0, _NARROWEST, 1
    while True:
        try:
            operands = _operands(width, dtype, device)
            product = torch.empty_like(operands[0])
            _products_ns(operands, product, 1, wait=wait, clock=clock)  # the first one also picks its kernel
            took = _products_ns(operands, product, times, wait=wait, clock=clock)
        except (RuntimeError, MemoryError):  # out of memory, or a precision this device has no product in
            break
        best = max(best, 2.0 * width**3 * times / (max(took, 1) / 1e9))
        left_ns = part * _PRODUCTS_NS - (clock() - began)
        # Each round runs one product to warm up and then those that are timed.
        if width < _WIDEST and (took < _LONG_ENOUGH_NS or device.type == "cpu") and 2 * 8 * took <= left_ns:
            width *= 2
        elif took < _LONG_ENOUGH_NS and 4 * took <= left_ns:
            times *= 2
        elif 2 * took > left_ns:
            break
    return best or None


def _operands(width: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Two square matrices; on a device of random numbers, as those of a training look.

    Ones draw less power, so that a GPU at its limit multiplies them faster than it ever will in a training: 295 against
    257 TFLOP/s were seen on an A100 (H. He, "Strangely, Matrix Multiplications on GPUs Run Faster When Given
    'Predictable' Data!", 2024, of zeros). No such thing is known of processors, where drawing numbers takes long.
    """
    if device.type == "cpu":
        return torch.ones(2, width, width, dtype=dtype)
    generator = torch.Generator(device).manual_seed(0)  # of its own: nobody else's numbers change
    return torch.randn(2, width, width, dtype=dtype, device=device, generator=generator)


def _products_ns(
    operands: torch.Tensor, product: torch.Tensor, times: int, *, wait: Callable[[], None], clock: Callable[[], int]
) -> int:
    wait()
    began = clock()
    for _ in range(times):
        torch.matmul(operands[0], operands[1], out=product)
    wait()
    return clock() - began
