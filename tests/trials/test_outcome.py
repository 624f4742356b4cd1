"""What went wrong, as an outcome and a reason."""

from __future__ import annotations

import re
import signal

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Outcome
from perf_diagnostics.trials.outcome import NonFiniteLoss, killed, outcome_of


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"), Outcome.OUT_OF_MEMORY_DEVICE),
        (RuntimeError("HIP out of memory."), Outcome.OUT_OF_MEMORY_DEVICE),
        (
            RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
            Outcome.OUT_OF_MEMORY_DEVICE,
        ),
        (RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"), Outcome.OUT_OF_MEMORY_DEVICE),
        (RuntimeError("CUDA error: device-side assert triggered"), Outcome.CRASHED),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"), Outcome.OUT_OF_MEMORY_HOST),
        (MemoryError(), Outcome.OUT_OF_MEMORY_HOST),
        (NonFiniteLoss(12, float("nan")), Outcome.NAN_LOSS),
        (InvalidSettings("threads=0"), Outcome.INVALID_SETTINGS),
        (RuntimeError("NCCL error in: ProcessGroupNCCL.cpp"), Outcome.COMMUNICATION_FAILED),
        (ValueError("too many values to unpack"), Outcome.CRASHED),
        (ValueError("the model ran out of memory slots"), Outcome.CRASHED),
    ],
)
def test_exceptions(error: Exception, outcome: Outcome) -> None:
    found, reason = outcome_of(error)
    assert found is outcome
    # Our own errors say what is wrong and what now; where in our code that was found helps nobody.
    assert reason == str(error) if isinstance(error, InvalidSettings) else type(error).__name__ in reason
    assert "\n" not in reason


def test_a_real_failed_allocation_on_the_cpu() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert outcome_of(caught.value)[0] is Outcome.OUT_OF_MEMORY_HOST


def test_the_reason_names_the_place_and_stays_short() -> None:
    def fail() -> None:
        raise ValueError("x" * 10_000 + "\nsecond line")

    with pytest.raises(ValueError) as caught:
        fail()
    reason = outcome_of(caught.value)[1]
    assert "test_outcome.py:" in reason
    assert len(reason) < 500


def test_where_a_library_raises_the_own_line_that_led_there_is_named() -> None:
    with pytest.raises(RuntimeError) as caught:
        torch.nn.Linear(3, 2)(torch.ones(1, 4))
    line = caught.value.__traceback__.tb_lineno  # type: ignore[union-attr]
    reason = outcome_of(caught.value)[1]
    assert re.search(rf"\(linear\.py:\d+, from test_outcome\.py:{line}\)$", reason)


def test_a_killed_process() -> None:
    assert killed(signal.SIGKILL, oom_kills=1, memory_share=0.2)[0] is Outcome.OUT_OF_MEMORY_HOST
    assert killed(signal.SIGKILL, oom_kills=None, memory_share=0.95)[0] is Outcome.OUT_OF_MEMORY_HOST
    assert killed(signal.SIGKILL, oom_kills=0, memory_share=0.2)[0] is Outcome.CRASHED
    assert killed(signal.SIGKILL, oom_kills=None, memory_share=None)[0] is Outcome.CRASHED
    outcome, reason = killed(signal.SIGSEGV, oom_kills=1, memory_share=0.99)
    assert outcome is Outcome.CRASHED and "SIGSEGV" in reason
