"""Figures that are known to be wrong in other tables of peaks.

One knew the H200 by the name "h200-sxm1" only, which no driver gives, and had an RTX 4090's bfloat16 at the rate of its
ordinary cores; several give an unknown device the figures of an A100.
"""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.hardware.data_sheets import peak
from perf_diagnostics.diagnose.hardware.nvidia_sheets import NVIDIA


@pytest.mark.parametrize(
    ("name", "same_chip", "terabytes_per_s"),
    [("NVIDIA H200", "NVIDIA H100 80GB HBM3", 4.8), ("NVIDIA H200 NVL", "NVIDIA H100 NVL", 4.8)],
)
def test_an_h200_is_known_by_its_drivers_name_and_is_an_h100_with_faster_memory(
    name: str, same_chip: str, terabytes_per_s: float
) -> None:
    newer, older = peak(name), peak(same_chip)
    assert newer is not None and older is not None
    for precision in ("float32", "tf32", "bfloat16", "float16", "float64"):
        assert newer.flops(precision) == older.flops(precision), precision
    assert newer.bytes_per_s == terabytes_per_s * 1e12


def test_bfloat16_runs_on_tensor_cores_wherever_float16_does_on_a_card_that_has_it() -> None:
    """From Ampere on both take the same time there; torch accumulates both in float32."""
    with_it = {name: sheet for name, sheet in NVIDIA.items() if sheet.bfloat16 is not None}
    assert {"GeForce RTX 4090", "A100-SXM4-80GB", "H200", "L4"} <= set(with_it)
    assert [name for name, sheet in with_it.items() if sheet.bfloat16 != sheet.float16] == []
    assert [name for name, sheet in with_it.items() if not sheet.bfloat16 > 1.9 * (sheet.float32 or 0)] == []


@pytest.mark.parametrize(
    "name", ["NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100", "NVIDIA H300", "", "Graphics Device"]
)
def test_what_is_no_name_in_the_table_gets_no_other_devices_figures(name: str) -> None:
    assert peak(name) is None
