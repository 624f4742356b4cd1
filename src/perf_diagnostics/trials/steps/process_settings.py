"""What of a trial's settings holds for the whole process while it runs: current device, threads, float32 products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from perf_diagnostics.measure.boards.float32_products import (
    float32_products,
    float32_products_kept,
    say_float32_products,
)
from perf_diagnostics.measure.host.denormals import flush_denormals
from perf_diagnostics.measure.host.freed_memory import keep_freed_memory
from perf_diagnostics.measure.host.random_masks import masks_from_bits
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.preflight import check_precision, check_tf32


@contextlib.contextmanager
def on_current_device(device: torch.device) -> Iterator[None]:
    """Makes a CUDA device ready and the current one, and puts the one that was back afterwards.

    What a workload makes on ``"cuda"``, and the thread that pins memory, then use this board and no other. Before CUDA
    is initialised torch's allocator has no device: ``torch.cuda.reset_peak_memory_stats`` raises "Invalid device
    argument 0: did you call init?" (c10/cuda/CUDACachingAllocator.cpp, assertValidDevice), while reading it gives 0.

    Raises:
        RuntimeError: CUDA does not start, in torch's words.
    """
    if device.type != "cuda":
        yield
        return
    torch.cuda.init()  # type: ignore[no-untyped-call]
    with torch.cuda.device(device):
        yield


@contextlib.contextmanager
def process_settings(settings: Settings, device: torch.device) -> Iterator[None]:
    """Applies what holds for the whole process (threads, matmul precision) and puts it back afterwards.

    Memory that is kept once it was freed stays kept, and torch's other threads go on treating denormal numbers as they
    did when they were started: a trial with such a setting needs a process of its own.
    """
    threads = torch.get_num_threads()
    check_precision(settings.precision, device.type)
    if settings.precision == "tf32" and torch.version.hip is None:
        check_tf32(torch.cuda.get_device_name(device), torch.cuda.get_device_capability(device))
    if settings.keep_freed_memory:
        keep_freed_memory()
    with float32_products_kept(), contextlib.ExitStack() as drawn:
        if settings.masks_from_bits:
            drawn.callback(masks_from_bits())
        if settings.flush_denormals:
            drawn.callback(flush_denormals())
        try:
            if settings.threads is not None:
                torch.set_num_threads(settings.threads)
            if settings.precision == "tf32" and float32_products() == "highest":
                say_float32_products("high")
            yield
        finally:
            if settings.threads is not None:
                torch.set_num_threads(threads)
