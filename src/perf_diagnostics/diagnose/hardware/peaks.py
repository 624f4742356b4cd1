"""One device's data sheet as a value: operations a second by precision, memory bandwidth, and their source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_T = 1e12
_G = 1e9


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One device's sheet: operations a second in each precision (None: no such units), bytes a second, the source.

    ``float64`` is that of tensor (matrix) cores where these do it, and None where the maker does not tell it.
    ``float16`` and ``bfloat16`` are the rates with float32 accumulation, which is what torch computes with; GeForce
    cards do float16 twice as fast with float16 accumulation, which nothing here may be held against. ``bytes_per_s`` is
    None where boards of one name differ in it.
    """

    float32: float | None
    tf32: float | None = None
    float16: float | None = None
    bfloat16: float | None = None
    bytes_per_s: float | None = None
    float64: float | None = None
    source: str

    def flops(self, precision: str) -> float | None:
        """Operations a second in one of the trial's precisions, or in float64."""
        known: Mapping[str, float | None] = {
            "float64": self.float64,
            "float32": self.float32,
            "tf32": self.tf32,
            "float16": self.float16,
            "bfloat16": self.bfloat16,
        }
        return known.get(precision)


#: Where the sheet has no figure: results a cycle and multiprocessor, of 64 and of 32 bits, by compute capability.
_DOUBLE = (
    " (CUDA C Programming Guide, throughput of arithmetic instructions: 1/32 of float32 on 7.5, 1/64 on 8.6 to 12)"
)


def as_printed(
    teraflops: tuple[float | None, float | None, float | None, float | None],
    gigabytes: float | None,
    says: str,
    *,
    double: float | None = None,
) -> Peak:
    """From a sheet's own units; ``teraflops`` in float32, TF32, float16, bfloat16, ``double`` in float64."""
    float32, tf32, float16, bfloat16 = (None if value is None else value * _T for value in teraflops)
    return Peak(
        float32=float32,
        tf32=tf32,
        float16=float16,
        bfloat16=bfloat16,
        bytes_per_s=None if gigabytes is None else gigabytes * _G,
        float64=None if double is None else double * _T,
        source=says if double is None else f"{says}; float64 {double:.3g} TFLOPS{_DOUBLE if double < 2 else ''}",
    )
