"""Blocks of grids and bytes of copies, as the reader keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.diagnose.trace.reader import read_trace
from tests.diagnose.trace.builder import TraceBuilder


@pytest.mark.parametrize(
    ("cat", "args", "size"),
    [
        ("kernel", {"grid": [4, 3, 2]}, 24),
        ("kernel", {"grid": [4, 3]}, -1),
        ("kernel", {"grid": "4x3x2"}, -1),
        ("kernel", {"grid": [0, 3, 2]}, -1),
        ("kernel", {"grid": [2**31, 2**31, 2**31]}, -1),
        ("kernel", {}, -1),
        ("gpu_memcpy", {"bytes": 4096}, 4096),
        ("gpu_memcpy", {"bytes": 0}, 0),  # a measured zero
        ("gpu_memcpy", {"bytes": -1}, -1),
        ("gpu_memcpy", {"bytes": "many"}, -1),
        ("gpu_memcpy", {}, -1),
        ("gpu_memset", {"bytes": 64}, 64),
        ("cpu_op", {"bytes": 64}, -1),
    ],
)
def test_blocks_of_a_grid_and_bytes_of_a_copy_are_kept(
    cat: str, args: dict[str, Any], size: int, tmp_path: Path
) -> None:
    trace = read_trace(TraceBuilder().event(cat, "x", 0, 1, **args).write(tmp_path / "t.json"))
    assert trace.events.size.tolist() == [size]
