"""CMP008 for traces: products whose rows do not suit tensor cores, by size, type and how they lie in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.trace.products import products
from perf_diagnostics.diagnose.trace.rules.cmp008_misaligned_dimensions import OddProducts
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import POINTWISE, TraceBuilder, ask, repeated

TF32 = "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align1"


def fed(odd_us: float, sizes: list[list[int]], **product: Any) -> TraceBuilder:
    """Five steps of 1 ms, busy throughout: a product of these sizes for ``odd_us``, other kernels for what remains."""

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.product(start - 100, start, start + odd_us, sizes, **product)
        builder.kernel(start - 90, start + odd_us, start + 1000, name=POINTWISE)

    return repeated(1000, 5, fill)


@pytest.mark.parametrize(
    ("sizes", "product", "odd"),
    [
        ([[512, 1024], [1024, 4096]], {}, ()),
        ([[512, 1023], [1023, 4096]], {}, (1023,)),  # a row of the first factor
        ([[512, 1024], [1024, 50257]], {}, (50257,)),  # rows of the second and of the result
        ([[511, 1024], [1024, 4096]], {}, ()),  # tokens: no row is as long
        # The second factor transposed, as a linear layer has it: its rows are 1024 long.
        ([[512, 1024], [1024, 4096]], {"strides": [[1024, 1], [1, 1024]]}, ()),
        # A gradient of weights: tokens are what is summed over, and again no row is as long.
        ([[4096, 511], [511, 1024]], {"strides": [[1, 4096], [1024, 1]]}, ()),
        ([[512, 1023], [1023, 4096]], {"kind": "float"}, ()),  # ordinary cores take any size
        ([[512, 1022], [1022, 4096]], {"kind": "float", "name": TF32}, (1022,)),  # 4 elements of 4 bytes
        ([[512, 1020], [1020, 4096]], {"kind": "float", "name": TF32}, ()),
        ([[512, 1032], [1032, 4096]], {"kind": "c10::Float8_e4m3fn", "operator": "aten::_scaled_mm"}, (1032,)),
        ([[8], [512, 1023], [1023, 64]], {"operator": "aten::addmm"}, (1023,)),
        ([[16, 77, 77], [16, 77, 64]], {"operator": "aten::bmm"}, (77,)),  # attention over 77 tokens
        ([[512, 1023], [1023, 4096]], {"strides": []}, (1023,)),  # how they lie is not known
        ([[511, 1024], [1024, 4096]], {"strides": []}, (511,)),  # … so that it may be any
    ],
)
def test_which_lengths_are_odd(
    sizes: list[list[int]], product: dict[str, Any], odd: tuple[int, ...], tmp_path: Path
) -> None:
    (form,) = products(fed(500, sizes, **product).facts(tmp_path))
    assert form.odd == odd
    assert form.device_ns == 5 * 500_000
    assert form.known is ("strides" not in product or product["strides"] != [])


def test_odd_rows_are_a_warning_where_they_take_the_time(tmp_path: Path) -> None:
    facts = fed(500, [[512, 1024], [1024, 50257]]).facts(tmp_path)
    finding = found(ask(OddProducts(), facts))
    assert finding.severity is Severity.WARNING
    assert number(finding, "device's work in products of odd sizes").value == pytest.approx(50)
    assert "512 x 1024 by 1024 x 50257 (BFloat16)" in finding.summary and "Pad 50257" in finding.remedies[0].says
    # Half of the step, of which an aligned product takes 1 - 1/1.46 less; three tenths of that are sure.
    assert finding.recoverable.high == pytest.approx(0.5 * (1 - 1 / 1.46))
    assert finding.recoverable.low == pytest.approx(0.3 * 0.5 * (1 - 1 / 1.46))


def test_odd_rows_that_take_little_are_an_info_and_less_is_nothing(tmp_path: Path) -> None:
    odd = [[512, 1024], [1024, 50257]]
    assert found(ask(OddProducts(), fed(50, odd).facts(tmp_path))).severity is Severity.INFO  # 5 %
    assert number(clear(ask(OddProducts(), fed(5, odd).facts(tmp_path))), "device's work in products of odd sizes")


def test_sizes_without_strides_are_never_more_than_an_info(tmp_path: Path) -> None:
    finding = found(ask(OddProducts(), fed(500, [[511, 1024], [1024, 4096]], strides=[]).facts(tmp_path)))
    assert finding.severity is Severity.INFO and "was not recorded" in finding.summary


def test_aligned_products_are_a_measured_zero(tmp_path: Path) -> None:
    answer = clear(ask(OddProducts(), fed(500, [[512, 1024], [1024, 4096]]).facts(tmp_path)))
    assert number(answer, "device's work in products of odd sizes").value == 0
    assert number(answer, "device's work in products of known sizes").value == pytest.approx(50)


def test_without_shapes_it_is_not_measured(tmp_path: Path) -> None:
    fill = lambda b, start: b.kernel(start - 100, start, start + 1000)  # noqa: E731
    reply = missing(ask(OddProducts(), repeated(1000, 5, fill).facts(tmp_path)))
    assert reply.signal == "input_dims" and "record_shapes=True" in reply.why


def test_odd_sizes_cost_nothing_where_the_host_sets_the_pace(tmp_path: Path) -> None:
    def fill(builder: TraceBuilder, start: float) -> None:
        for at in range(0, 1000, 100):  # 65 µs of each 100, each kernel at once
            builder.product(start + at, start + at + 6, start + at + 71, [[512, 1024], [1024, 50257]])

    assert "waits for others" in clear(ask(OddProducts(), repeated(1000, 5, fill).facts(tmp_path))).summary
