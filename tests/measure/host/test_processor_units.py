"""Whether the processor multiplies bfloat16 itself, by the kernel's words for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.measure.environment import capture
from perf_diagnostics.measure.host.processor_units import bfloat16_units
from tests.measure.kernel_files import machine


@pytest.mark.parametrize(
    ("text", "has"),
    [
        ("flags\t\t: fpu avx2 avx512f avx512_bf16 hypervisor\n", True),
        ("flags\t\t: fpu amx_bf16 amx_tile\n", True),
        ("flags\t\t: fpu avx2 avx512f\n", False),
        ("BogoMIPS\t: 50.00\nFeatures\t: fp asimd i8mm bf16\n", True),
        ("Features\t: fp asimd\n", False),
        ("cpu\t\t: POWER9, altivec supported\n", None),
    ],
)
def test_the_kernel_tells(tmp_path: Path, text: str, has: bool | None) -> None:
    assert bfloat16_units(root=machine(tmp_path, {"/proc/cpuinfo": text})) is has


def test_where_there_is_no_such_file_nobody_tells(tmp_path: Path) -> None:
    assert bfloat16_units(root=tmp_path) is None


def test_arm_does_not_tell_whether_it_is_virtual(tmp_path: Path) -> None:
    found = capture(root=machine(tmp_path, {"/proc/cpuinfo": "Features\t: fp asimd bf16\n"}))
    assert found.host["bfloat16_units"] is True
    assert "virtualised" not in found.host and "virtualised" in {gap.signal for gap in found.gaps}
