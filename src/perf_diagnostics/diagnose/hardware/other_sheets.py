"""Data sheets of AMD's accelerators, by the name that ROCm gives them, and what Apple publishes of its chips."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perf_diagnostics.diagnose.hardware.peaks import Peak, as_printed

_MI210 = as_printed(
    (45.3, None, 181, 181), 1638.4, "AMD MI210 data sheet: 45.3 (matrix) / 181 TFLOPS, 1638.4 GB/s", double=45.3
)
_MI250 = as_printed(
    (45.25, None, 181.05, 181.05),
    1638.4,
    "AMD MI250 data sheet, one of two dies: half of 90.5 (matrix) / 362.1 TFLOPS, 3276.8 GB/s",
    double=45.25,
)
_MI250X = as_printed(
    (47.85, None, 191.5, 191.5),
    1638.4,
    "AMD MI250X data sheet, one of two dies: half of 95.7 (matrix) / 383 TFLOPS, 3276.8 GB/s",
    double=47.85,
)
_MI300X = as_printed(
    (163.4, 653.7, 1307.4, 1307.4), 5300, "AMD MI300X data sheet: 163.4 / 653.7 / 1307.4 TFLOPS, 5.3 TB/s", double=163.4
)
_MI300A = as_printed(
    (122.6, 490.3, 980.6, 980.6), 5300, "AMD MI300A data sheet: 122.6 / 490.3 / 980.6 TFLOPS, 5.3 TB/s", double=122.6
)
_MI325X = as_printed(
    (163.4, 653.7, 1307.4, 1307.4), 6000, "AMD MI325X data sheet: 163.4 / 653.7 / 1307.4 TFLOPS, 6 TB/s", double=163.4
)
#: CDNA 4 has no TF32 units.
_MI355X = as_printed(
    (157.3, None, 2516.6, 2516.6),
    8000,
    "AMD MI355X data sheet: 157.3 (matrix) TFLOPS / 2.5 PFLOPS (256 compute units, 4096 operations a cycle, 2.4 GHz: "
    "2516.6 TFLOPS), 8 TB/s",
    double=78.6,
)


def _apple(float32: float | None, gigabytes_per_s: float, says: str) -> Peak:
    return as_printed((float32, None, None, None), gigabytes_per_s, f"Apple, {says}")


AMD: Mapping[str, Peak] = MappingProxyType(
    {
        "AMD Instinct MI210": _MI210,
        "AMD Instinct MI250": _MI250,
        "AMD Instinct MI250X": _MI250X,
        "AMD Instinct MI250X / MI250": _MI250,  # the driver does not tell which; the lower of the two
        "AMD Instinct MI250X/MI250": _MI250,
        "AMD Instinct MI300A": _MI300A,
        "AMD Instinct MI300X": _MI300X,
        "AMD Instinct MI300X VF": _MI300X,  # handed whole to a virtual machine
        "AMD Instinct MI325X": _MI325X,
        "AMD Instinct MI325X VF": _MI325X,
        "AMD Instinct MI355X": _MI355X,
    }
)

#: A name that Apple gives to chips of different bandwidth (M3 Max, M4 Max) is left out.
APPLE: Mapping[str, Peak] = MappingProxyType(
    {
        "Apple M1": _apple(2.6, 68.25, "M1: 2.6 teraflops, 68.25 GB/s"),
        "Apple M1 Pro": _apple(5.2, 200, "M1 Pro: 5.2 teraflops, 200 GB/s"),
        "Apple M1 Max": _apple(10.4, 400, "M1 Max: 10.4 teraflops, 400 GB/s"),
        "Apple M1 Ultra": _apple(21, 800, "M1 Ultra: 21 teraflops, 800 GB/s"),
        "Apple M2": _apple(3.6, 100, "M2: 3.6 teraflops, 100 GB/s"),
        "Apple M2 Pro": _apple(None, 200, "M2 Pro: 200 GB/s, operations not published"),
        "Apple M2 Max": _apple(None, 400, "M2 Max: 400 GB/s, operations not published"),
        "Apple M2 Ultra": _apple(None, 800, "M2 Ultra: 800 GB/s, operations not published"),
        "Apple M3": _apple(None, 100, "M3: 100 GB/s, operations not published"),
        "Apple M3 Pro": _apple(None, 150, "M3 Pro: 150 GB/s, operations not published"),
        "Apple M3 Ultra": _apple(None, 819, "M3 Ultra: 819 GB/s, operations not published"),
        "Apple M4": _apple(None, 120, "M4: 120 GB/s, operations not published"),
        "Apple M4 Pro": _apple(None, 273, "M4 Pro: 273 GB/s, operations not published"),
    }
)
