"""What the device can do at best, measured beside the trial: how fast it copies and how fast it multiplies."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from perf_diagnostics.measure.device_clock import event_source

#: Large enough to leave the caches of most processors and GPUs, small enough to fit beside a trial.
_COPY_BYTES = 256 * 2**20
_REPEATS = 6

#: A product much larger than this only asks for memory; one much smaller leaves parts of a large GPU idle.
_WIDEST = 8192
_NARROWEST = 256
#: Products queued on a device are timed together until they take so long that its clock reads are 1 % of it.
_LONG_ENOUGH_NS = 5_000_000
#: What all products together may take.
_PRODUCTS_NS = 400_000_000
_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def memory_bandwidth(device: torch.device, *, clock: Callable[[], int] = time.perf_counter_ns) -> float | None:
    """Bytes a second of the best of six large copies, reading and writing counted; None if there is no room for one.

    The same measure as STREAM's "copy" (McCalpin, 1995). An optimizer that only streams its state through the
    processor cannot be faster than its bytes over this.
    """
    events = event_source(device, clock)
    wait = (lambda: None) if events is None else events.synchronize
    try:
        origin = torch.ones(_COPY_BYTES // 4, dtype=torch.float32, device=device)
        target = torch.empty_like(origin)
        best_ns = min(_copy_ns(origin, target, wait, clock) for _ in range(_REPEATS))
    except (RuntimeError, MemoryError):  # out of memory beside a trial that filled it
        return None
    return 2 * _COPY_BYTES / (best_ns / 1e9)


def _copy_ns(origin: torch.Tensor, target: torch.Tensor, wait: Callable[[], None], clock: Callable[[], int]) -> int:
    wait()
    began = clock()
    target.copy_(origin)
    wait()
    return clock() - began


def matmul_ceiling(
    device: torch.device, precision: str, *, clock: Callable[[], int] = time.perf_counter_ns
) -> float | None:
    """Floating point operations a second of the best matrix product; None if not even a small one fits.

    Square products of doubled width, 2·n³ operations each, in the trial's precision and with its threads, for less
    than half a second: until the next one would take too long, or would not fit beside the trial. TF32 is a setting of
    the process that the caller has made.
    """
    events = event_source(device, clock)
    wait = (lambda: None) if events is None else events.synchronize
    dtype = _DTYPES.get(precision, torch.float32)
    began, best, width, times = clock(), 0.0, _NARROWEST, 1
    while True:
        try:
            operands = torch.ones(2, width, width, dtype=dtype, device=device)
            product = torch.empty_like(operands[0])
            _products_ns(operands, product, 1, wait=wait, clock=clock)  # the first one also picks its kernel
            took = _products_ns(operands, product, times, wait=wait, clock=clock)
        except (RuntimeError, MemoryError):  # out of memory, or a precision this device has no product in
            break
        best = max(best, 2.0 * width**3 * times / (max(took, 1) / 1e9))
        left_ns = _PRODUCTS_NS - (clock() - began)
        # Each round runs one product to warm up and then those that are timed.
        if width < _WIDEST and (took < _LONG_ENOUGH_NS or device.type == "cpu") and 2 * 8 * took <= left_ns:
            width *= 2
        elif took < _LONG_ENOUGH_NS and 4 * took <= left_ns:
            times *= 2
        elif 2 * took > left_ns:
            break
    return best or None


def _products_ns(
    operands: torch.Tensor, product: torch.Tensor, times: int, *, wait: Callable[[], None], clock: Callable[[], int]
) -> int:
    wait()
    began = clock()
    for _ in range(times):
        torch.matmul(operands[0], operands[1], out=product)
    wait()
    return clock() - began
