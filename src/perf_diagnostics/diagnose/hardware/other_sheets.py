"""Data sheets of AMD's accelerators, by the name that ROCm gives them, and what Apple publishes of its chips."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perf_diagnostics.diagnose.hardware.peaks import Peak, as_printed

_MI210 = as_printed((45.3, None, 181, 181), "AMD MI210 data sheet: 45.3 (matrix) / 181 TFLOPS", double=45.3)
_MI250 = as_printed(
    (45.25, None, 181.05, 181.05),
    "AMD MI250 data sheet, one of two dies: half of 90.5 (matrix) / 362.1 TFLOPS",
    double=45.25,
)
_MI250X = as_printed(
    (47.85, None, 191.5, 191.5),
    "AMD MI250X data sheet, one of two dies: half of 95.7 (matrix) / 383 TFLOPS",
    double=47.85,
)
_MI300X = as_printed(
    (163.4, 653.7, 1307.4, 1307.4), "AMD MI300X data sheet: 163.4 / 653.7 / 1307.4 TFLOPS", double=163.4
)
_MI300A = as_printed((122.6, 490.3, 980.6, 980.6), "AMD MI300A data sheet: 122.6 / 490.3 / 980.6 TFLOPS", double=122.6)
_MI325X = as_printed(
    (163.4, 653.7, 1307.4, 1307.4), "AMD MI325X data sheet: 163.4 / 653.7 / 1307.4 TFLOPS", double=163.4
)
#: CDNA 4 has no TF32 units.
_MI355X = as_printed(
    (157.3, None, 2516.6, 2516.6),
    "AMD MI355X data sheet: 157.3 (matrix) TFLOPS / 2.5 PFLOPS (256 compute units, 4096 operations a cycle, 2.4 GHz: "
    "2516.6 TFLOPS)",
    double=78.6,
)


def _apple(float32: float | None, says: str) -> Peak:
    return as_printed((float32, None, None, None), f"Apple, {says}")


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

#: A name that Apple gives to different chips (M3 Max, M4 Max) is left out.
APPLE: Mapping[str, Peak] = MappingProxyType(
    {
        "Apple M1": _apple(2.6, "M1: 2.6 teraflops"),
        "Apple M1 Pro": _apple(5.2, "M1 Pro: 5.2 teraflops"),
        "Apple M1 Max": _apple(10.4, "M1 Max: 10.4 teraflops"),
        "Apple M1 Ultra": _apple(21, "M1 Ultra: 21 teraflops"),
        "Apple M2": _apple(3.6, "M2: 3.6 teraflops"),
        "Apple M2 Pro": _apple(None, "M2 Pro, operations not published"),
        "Apple M2 Max": _apple(None, "M2 Max, operations not published"),
        "Apple M2 Ultra": _apple(None, "M2 Ultra, operations not published"),
        "Apple M3": _apple(None, "M3, operations not published"),
        "Apple M3 Pro": _apple(None, "M3 Pro, operations not published"),
        "Apple M3 Ultra": _apple(None, "M3 Ultra, operations not published"),
        "Apple M4": _apple(None, "M4, operations not published"),
        "Apple M4 Pro": _apple(None, "M4 Pro, operations not published"),
    }
)
