"""CMP050 in traces: the device's time in the backward of x[index], by what autograd's node launches or by its name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.cmp050_slow_indexing import IndexedBackward
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import BACKWARD, POINTWISE, TraceBuilder, repeated

STEP = 10_000

NODE = "autograd::engine::evaluate_function: IndexBackward0"
SORT = "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, long, int>::Policy900, false>"
ADDS = "void at::native::indexing_backward_kernel_stride_1<float>(long const*, long const*, float const*)"


def indexing(part: float, *, node: str = NODE, adds: str = ADDS) -> Any:
    """A step of 10 ms of which this part is a backward: half of it sorts, half adds up."""

    def fill(builder: TraceBuilder, start: float) -> None:
        border, end = start + STEP * (1 - part), start + STEP
        builder.kernel(start, start + 6, border)
        if part:
            if node:
                builder.operator(node, start + 10, start + 40, tid=BACKWARD)
            builder.kernel(start + 15, border, (border + end) / 2, name=SORT, tid=BACKWARD)
            builder.kernel(start + 25, (border + end) / 2, end, name=adds, tid=BACKWARD)

    return fill


@pytest.mark.parametrize(
    ("part", "severity"),
    [(0, None), (0.048, None), (0.052, Severity.INFO), (0.098, Severity.INFO), (0.102, Severity.WARNING)],
)
def test_all_that_the_node_launches_counts(part: float, severity: Severity | None, tmp_path: Path) -> None:
    answer = IndexedBackward().check(repeated(STEP, 5, indexing(part, adds=POINTWISE)).facts(tmp_path))
    assert number(answer, "device's work in the backward of x[index]").value == pytest.approx(100 * part, rel=0.01)
    if severity is None:
        clear(answer)
        return
    finding = found(answer)
    assert finding.severity is severity and "index_select" in finding.remedies[0].says
    gain = finding.recoverable
    assert gain is not None and gain.high is not None
    assert 0 < gain.low < 0.7 * part < gain.high < part


@pytest.mark.parametrize("node", ["", "autograd::engine::evaluate_function: IndexSelectBackward0"])
def test_without_its_node_the_kernel_is_known_by_its_name(node: str, tmp_path: Path) -> None:
    answer = IndexedBackward().check(repeated(STEP, 5, indexing(0.4, node=node)).facts(tmp_path))
    assert number(found(answer), "device's work in the backward of x[index]").value == pytest.approx(20, rel=0.01)


def test_the_backward_of_other_reading_is_none(tmp_path: Path) -> None:
    other = indexing(0.4, node="autograd::engine::evaluate_function: IndexSelectBackward0", adds=POINTWISE)
    answer = clear(IndexedBackward().check(repeated(STEP, 5, other).facts(tmp_path)))
    assert number(answer, "device's work in the backward of x[index]").value == 0
