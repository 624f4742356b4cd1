"""CMP014 and CMP015: short kernels, and kernels that take another time in each step."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.cmp014_tiny_kernels import TinyKernels
from perf_diagnostics.diagnose.trace.rules.cmp015_kernel_variance import KernelVariance
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import MATRIX, NCCL, POINTWISE, TraceBuilder, repeated

STEP_US = 1000.0


def filled(short_us: float, length_us: float) -> TraceBuilder:
    """Five steps of 1 ms: kernels of ``length_us`` for ``short_us``, then one long one for what remains."""

    def fill(builder: TraceBuilder, start: float) -> None:
        at = start
        while at < start + short_us - 1e-6:
            builder.kernel(max(start, at - 50), at, at + length_us, name=POINTWISE)
            at += length_us
        if short_us < STEP_US:
            builder.kernel(max(start, at - 50), at, start + STEP_US, name=MATRIX)

    return repeated(STEP_US, 5, fill)


@pytest.mark.parametrize("short_us", [0, 200])
def test_few_short_kernels_are_clear(short_us: float, tmp_path: Path) -> None:
    answer = clear(TinyKernels().check(filled(short_us, 5).facts(tmp_path)))
    assert number(answer, "device's work in kernels under 10 µs").value == pytest.approx(short_us / 10, abs=1)


def test_many_short_kernels_are_mentioned(tmp_path: Path) -> None:
    finding = found(TinyKernels().check(filled(800, 5).facts(tmp_path)))  # 160 kernels of 5 µs in 1 ms
    assert finding.severity is Severity.INFO
    assert number(finding, "device's work in kernels under 10 µs").value == pytest.approx(80, abs=1)


def test_kernels_just_long_enough_are_clear(tmp_path: Path) -> None:
    clear(TinyKernels().check(filled(800, 20).facts(tmp_path)))


def varying(*lengths: float, name: str = MATRIX) -> TraceBuilder:
    """A kernel of 400 µs that never changes, and one that takes so long in each step."""
    builder = TraceBuilder()
    for n, length in enumerate(lengths):
        at = n * STEP_US
        builder.step(n, at, at + STEP_US)
        builder.kernel(at, at + 10, at + 410, name=POINTWISE)
        builder.kernel(at + 10, at + 420, at + 420 + length, name=name)
    return builder


def test_equal_runs_of_equal_time_are_a_measured_zero(tmp_path: Path) -> None:
    answer = clear(KernelVariance().check(varying(100, 100, 100, 100).facts(tmp_path)))
    assert number(answer, "device's work in kernels that scatter").value == 0


def test_runs_that_scatter_count_with_their_time(tmp_path: Path) -> None:
    # 100, 100, 100, 400: mean 175, standard deviation 150. 700 of 2300 µs.
    finding = found(KernelVariance().check(varying(100, 100, 100, 400).facts(tmp_path)))
    assert number(finding, "device's work in kernels that scatter").value == pytest.approx(100 * 700 / 2300, abs=1)


def test_collectives_wait_for_others_and_are_left_out(tmp_path: Path) -> None:
    clear(KernelVariance().check(varying(100, 100, 100, 400, name=NCCL).facts(tmp_path)))


def test_one_kernel_twice_a_step_is_two_runs(tmp_path: Path) -> None:
    # The same name runs short and long in every step: that is no scatter.
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start, start + 10, start + 110, name=MATRIX)
        builder.kernel(start, start + 120, start + 820, name=MATRIX)

    clear(KernelVariance().check(repeated(STEP_US, 4, fill).facts(tmp_path)))


def test_too_few_steps_have_no_scatter(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured):
        KernelVariance().check(varying(100, 400).facts(tmp_path))
