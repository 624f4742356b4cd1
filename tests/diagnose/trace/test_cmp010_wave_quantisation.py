"""CMP010: blocks of products over multiprocessors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.rules.cmp010_wave_quantisation import WaveQuantisation
from perf_diagnostics.diagnose.trace.rules.cmp014_tiny_kernels import TinyKernels
from perf_diagnostics.diagnose.trace.waves import efficiency
from tests.diagnose.answers import clear, found, number
from tests.diagnose.trace.builder import MATRIX, POINTWISE, TraceBuilder, repeated

STEP = 1000.0
A100 = {"deviceProperties": [{"computeMajor": 8, "numSms": 108}]}
UNEVEN = "device's work in uneven products"


def steps(product_us: float, blocks: int | None, **about: Any) -> TraceBuilder:
    """Five steps of 1 ms, one product in each and one pointwise kernel for the rest."""
    args = {} if blocks is None else {"grid": [blocks, 1, 1]}

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start - 100, start + 10, start + 10 + product_us, name=MATRIX, **args)
        builder.kernel(start - 90, start + 10 + product_us, start + STEP, name=POINTWISE, grid=[7, 1, 1])

    return repeated(STEP, 5, fill, **(about or A100))


def test_uneven_products_cost_nothing_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start, start + 6, start + 500, name=MATRIX, grid=[109, 1, 1])  # starts at once

    assert (
        "host sets the pace" in clear(WaveQuantisation().check(repeated(STEP, 5, fill, **A100).facts(tmp_path))).summary
    )


def test_one_block_too_many_is_another_round() -> None:
    blocks = np.array([1, 54, 108, 109, 151, 216, 217, 1080, -1, 0])
    expected = [1 / 108, 0.5, 1, 109 / 216, 151 / 216, 1, 217 / 324, 1, 1, 1]
    assert efficiency(blocks, 108).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("blocks", "uneven"),
    [(108, 0), (216, 0), (152, 0), (151, 50), (109, 50), (54, 50)],  # 152 / 216 = 0.704, 151 / 216 = 0.699
)
def test_products_below_the_limit_are_mentioned(blocks: int, uneven: float, tmp_path: Path) -> None:
    answer = WaveQuantisation().check(steps(495, blocks).facts(tmp_path))
    finding = found(answer) if uneven else clear(answer)
    assert number(finding, UNEVEN).value == pytest.approx(uneven, abs=0.5)


def test_what_is_lost_is_the_empty_part_of_the_last_round(tmp_path: Path) -> None:
    finding = found(WaveQuantisation().check(steps(495, 109).facts(tmp_path)))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    # half of the work, of which 1 - 109 / 216 is lost
    assert number(finding, "of the device's work lost to it").value == pytest.approx(50 * (1 - 109 / 216), abs=0.3)


@pytest.mark.parametrize(("product_us", "fires"), [(45, False), (55, True)])
def test_small_products_do_not_matter(product_us: float, fires: bool, tmp_path: Path) -> None:
    answer = WaveQuantisation().check(steps(product_us, 109).facts(tmp_path))  # 4.5 and 5.6 % of 990 µs
    assert bool(found(answer)) if fires else clear(answer)


def test_without_grids_it_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="blocks"):
        WaveQuantisation().check(steps(495, None).facts(tmp_path))


def test_without_the_number_of_multiprocessors_it_is_not_measured(tmp_path: Path) -> None:
    with pytest.raises(NotMeasured, match="multiprocessors"):
        WaveQuantisation().check(steps(495, 109, deviceProperties=[{"computeMajor": 8}]).facts(tmp_path))


def test_without_products_nothing_is_uneven(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        builder.kernel(start, start + 10, start + STEP, name=POINTWISE, grid=[109, 1, 1])

    answer = clear(WaveQuantisation().check(repeated(STEP, 5, fill, **A100).facts(tmp_path)))
    assert number(answer, UNEVEN).value == 0


@pytest.mark.parametrize(("blocks", "fires"), [(107, True), (108, False)])
def test_tiny_kernels_are_known_by_their_blocks_where_the_trace_has_them(
    blocks: int, fires: bool, tmp_path: Path
) -> None:
    """CMP014: 100 µs are long, and still a kernel of 107 blocks leaves one multiprocessor without work."""

    def fill(builder: TraceBuilder, start: float) -> None:
        for part in range(10):
            at = start + part * 100
            builder.kernel(
                max(start, at - 50), at + (10 if not part else 0), at + 100, name=POINTWISE, grid=[blocks, 1, 1]
            )

    answer = TinyKernels().check(repeated(STEP, 5, fill, **A100).facts(tmp_path))
    assert bool(found(answer)) if fires else clear(answer)


def test_short_kernels_that_fill_the_device_are_none(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for part in range(200):
            at = start + part * 5
            builder.kernel(max(start, at - 50), at, at + 5, name=POINTWISE, grid=[1000, 1, 1])

    clear(TinyKernels().check(repeated(STEP, 5, fill, **A100).facts(tmp_path)))
