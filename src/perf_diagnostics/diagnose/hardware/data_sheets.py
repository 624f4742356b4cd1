"""What the makers of accelerators promise: operations a second by precision, and memory bandwidth, with their source.

Figures are dense (the sheets of NVIDIA often print twice as much, "with sparsity"), at boost clock, and for one device
as torch sees it: one die of an MI250X. A device that is not in the table has no peak; nothing stands in for it. What a
product really reaches on the device at hand is measured in the run (``matmul_ceiling``) and is usually less.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perf_diagnostics.diagnose.hardware.nvidia_sheets import NVIDIA
from perf_diagnostics.diagnose.hardware.other_sheets import AMD, APPLE
from perf_diagnostics.diagnose.hardware.peaks import Peak

__all__ = ["PEAKS", "Peak", "half_precision", "peak"]

#: By name without "NVIDIA ".
PEAKS: Mapping[str, Peak] = MappingProxyType({**NVIDIA, **AMD, **APPLE})


def peak(device_name: str | None) -> Peak | None:
    """The sheet of a device by the name that ``torch.cuda.get_device_name`` gives it; None for any other.

    >>> peak("NVIDIA A100-SXM4-80GB").bfloat16
    312000000000000.0
    >>> peak("NVIDIA A100X") is None
    True
    """
    if device_name is None:
        return None
    name = device_name.removeprefix("NVIDIA ").strip()
    return PEAKS.get(name)


#: The first compute capability whose tensor cores multiply bfloat16 (CUDA C++ Programming Guide, compute capabilities).
_BFLOAT16_SINCE = (8, 0)


def half_precision(device_name: str | None, capability: tuple[int, int] | None = None) -> str | None:
    """The 16-bit format to train in on a device: bfloat16, or float16 where there are no units for bfloat16.

    There (a T4, an RTX 2080, a P100, a V100) torch computes bfloat16 by way of float32, slower than float32 itself. The
    compute capability of a device of CUDA decides; without it the sheet does, and without either nothing is known.

    >>> half_precision("NVIDIA GeForce RTX 2080 Ti", (7, 5)), half_precision("a device of tomorrow", (12, 0))
    ('float16', 'bfloat16')
    >>> half_precision("Tesla T4"), half_precision("NVIDIA L4"), half_precision("a device of tomorrow")
    ('float16', 'bfloat16', None)
    """
    if capability is not None:
        return "bfloat16" if capability >= _BFLOAT16_SINCE else "float16"
    sheet = peak(device_name)
    if sheet is None:
        return None
    return "float16" if sheet.bfloat16 is None and sheet.float16 is not None else "bfloat16"
