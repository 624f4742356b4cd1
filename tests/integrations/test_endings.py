"""How an exception that left somebody's loop is recorded."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.integrations.ends.endings import Ending, ending_of
from perf_diagnostics.measure.boards.lost_context import WHAT_NOW
from perf_diagnostics.records import Outcome

#: As torch 2.13 words it (c10/cuda/CUDAException.cpp), with the advice that every such error carries.
ASSERTED = (
    "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in https://docs.nvidia.com/cuda/"
    "cuda-runtime-api/group__CUDART__TYPES.html for more information.\nCUDA kernel errors might be asynchronously "
    "reported at some other API call, so the stacktrace below might be incorrect.\nFor debugging consider passing "
    "CUDA_LAUNCH_BLOCKING=1\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
#: Since torch 2.8; before it was a plain RuntimeError.
ACCELERATOR_ERROR: type[RuntimeError] = getattr(torch, "AcceleratorError", RuntimeError)


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (KeyboardInterrupt(), (Outcome.COMPLETED, "ended by Ctrl-C", "interrupted")),
        (SystemExit(0), (Outcome.COMPLETED, "", "exit")),
        (SystemExit(3), (Outcome.COMPLETED, "ended by sys.exit(3)", "exit")),
        (MemoryError("host"), (Outcome.OUT_OF_MEMORY_HOST, "MemoryError: host", "out_of_memory_host")),
        (
            torch.OutOfMemoryError("CUDA out of memory."),
            (Outcome.OUT_OF_MEMORY_DEVICE, "OutOfMemoryError: CUDA out of memory.", "out_of_memory_device"),
        ),
        (ValueError("two\n lines"), (Outcome.CRASHED, "ValueError: two lines", "crashed")),
        (ValueError("\x1b[1mbold\x1b[0m words"), (Outcome.CRASHED, "ValueError: bold words", "crashed")),
    ],
)
def test_what_an_exception_means(error: BaseException, ending: Ending) -> None:
    assert ending_of(error) == ending


def test_after_a_failed_assertion_on_the_device_the_reason_says_to_start_again() -> None:
    outcome, reason, stop_reason = ending_of(ACCELERATOR_ERROR(ASSERTED))
    assert (outcome, stop_reason) == (Outcome.CRASHED, "crashed")
    assert reason.startswith(f"{ACCELERATOR_ERROR.__name__}: CUDA error: device-side assert triggered Search for")
    assert reason.endswith(f"; {WHAT_NOW}")
