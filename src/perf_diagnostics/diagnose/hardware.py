"""What the makers of accelerators promise: operations a second by precision, and memory bandwidth, with their source.

Figures are dense (the sheets of NVIDIA often print twice as much, "with sparsity"), at boost clock, and for one device
as torch sees it: one die of an MI250X. A device that is not in the table has no peak; nothing stands in for it. What a
product really reaches on the device at hand is measured in the run (``matmul_ceiling``) and is usually less.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_T = 1e12
_G = 1e9


@dataclass(frozen=True, kw_only=True)
class Peak:
    """One device's sheet: operations a second in each precision (None: no such units), bytes a second, the source.

    ``float64`` is that of tensor (matrix) cores where these do it, and None where the maker does not tell it.
    ``float16`` and ``bfloat16`` are the rates with float32 accumulation, which is what torch computes with; GeForce
    cards do float16 twice as fast with float16 accumulation, which nothing here may be held against.
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


def half_precision(device_name: str | None) -> str:
    """The 16-bit format to train in on a device: bfloat16, or float16 where the sheet has no units for bfloat16.

    There (a T4, a P100, a V100) torch computes bfloat16 by way of float32, slower than float32 itself.

    >>> half_precision("Tesla T4"), half_precision("NVIDIA L4"), half_precision("a device of tomorrow")
    ('float16', 'bfloat16', 'bfloat16')
    """
    sheet = peak(device_name)
    return "float16" if sheet is not None and sheet.bfloat16 is None and sheet.float16 is not None else "bfloat16"


#: Where the sheet has no figure: results a cycle and multiprocessor, of 64 and of 32 bits, by compute capability.
_DOUBLE = (
    " (CUDA C Programming Guide, throughput of arithmetic instructions: 1/32 of float32 on 7.5, 1/64 on 8.6 to 12)"
)


def _peak(
    teraflops: tuple[float | None, float | None, float | None, float | None],
    gigabytes: float,
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
        bytes_per_s=gigabytes * _G,
        float64=None if double is None else double * _T,
        source=says if double is None else f"{says}; float64 {double:.3g} TFLOPS{_DOUBLE if double < 2 else ''}",
    )


_T4 = _peak((8.1, None, 65, None), 320, "NVIDIA T4 data sheet: 8.1 / 65 TFLOPS, 320 GB/s", double=8.1 / 32)
#: Without tensor cores, twice the rate in half precision (18.7 and 21.2) is that of float16 accumulation, which torch
#: does not use: cuBLAS computes its float16 products there in float32.
_P100_PCIE = "NVIDIA Tesla P100 PCIe data sheet: 9.3 TFLOPS (18.7 in half precision are with float16 accumulation)"
_P100_SXM2 = (
    "NVIDIA Tesla P100 NVLink data sheet: 10.6 TFLOPS (21.2 in half precision are with float16 accumulation), 732 GB/s"
)
_V100_PCIE = _peak((14, None, 112, None), 900, "NVIDIA V100 data sheet, PCIe: 14 / 112 TFLOPS, 900 GB/s", double=7)
_V100_SXM2 = _peak(
    (15.7, None, 125, None), 900, "NVIDIA V100 data sheet, SXM2: 15.7 / 125 TFLOPS, 900 GB/s", double=7.8
)
_V100S = _peak(
    (16.4, None, 130, None), 1134, "NVIDIA V100 data sheet, V100S PCIe: 16.4 / 130 TFLOPS, 1134 GB/s", double=8.2
)
_A10 = _peak((31.2, 62.5, 125, 125), 600, "NVIDIA A10 data sheet: 31.2 / 62.5 / 125 TFLOPS, 600 GB/s", double=31.2 / 64)
#: Its tensor cores are slower than the A10's: others have published 66.6 TFLOPS for a bfloat16 product of 8192³ on one.
_A10G = _peak(
    (35, 35, 70, 70),
    600,
    "NVIDIA A10G data sheet for AWS (NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf): 35 / 35 / 70 TFLOPS, 600 GB/s",
    double=35 / 64,
)
_L4 = _peak(
    (30.3, 60, 121, 121),
    300,
    "NVIDIA L4 data sheet: 30.3 / 120* / 242* TFLOPS (*with sparsity: halved), 300 GB/s",
    double=30.3 / 64,
)
_L40S = _peak(
    (91.6, 183, 362, 362), 864, "NVIDIA L40S data sheet: 91.6 / 183 / 362.05 TFLOPS, 864 GB/s", double=91.6 / 64
)
_A100 = "NVIDIA A100 data sheet: 19.5 / 156 / 312 TFLOPS"
_A100_40 = _peak((19.5, 156, 312, 312), 1555, f"{_A100}, 40 GB: 1555 GB/s", double=19.5)
_A100_80_PCIE = _peak((19.5, 156, 312, 312), 1935, f"{_A100}, 80 GB PCIe: 1935 GB/s", double=19.5)
_A100_80_SXM = _peak((19.5, 156, 312, 312), 2039, f"{_A100}, 80 GB SXM: 2039 GB/s", double=19.5)
_SPARSE = "(*with sparsity: halved)"
_H100_PCIE = _peak(
    (51, 378, 756.5, 756.5),
    2000,
    f"NVIDIA H100 data sheet, PCIe: 51 / 756* / 1513* TFLOPS {_SPARSE}, 2 TB/s",
    double=51,
)
_H100_SXM = _peak(
    (67, 494.5, 989.5, 989.5),
    3350,
    f"NVIDIA H100 data sheet, SXM: 67 / 989* / 1979* TFLOPS {_SPARSE}, 3.35 TB/s",
    double=67,
)
_H100_NVL = _peak(
    (60, 417.5, 835.5, 835.5),
    3900,
    f"NVIDIA H100 data sheet, NVL: 60 / 835* / 1671* TFLOPS {_SPARSE}, 3.9 TB/s",
    double=60,
)
_H200_SXM = _peak(
    (67, 494.5, 989.5, 989.5),
    4800,
    f"NVIDIA H200 data sheet, SXM: 67 / 989* / 1979* TFLOPS {_SPARSE}, 4.8 TB/s",
    double=67,
)
_H200_NVL = _peak(
    (60, 417.5, 835.5, 835.5),
    4800,
    f"NVIDIA H200 data sheet, NVL: 60 / 835* / 1671* TFLOPS {_SPARSE}, 4.8 TB/s",
    double=60,
)
_B200 = _peak(
    (75, 1125, 2250, 2250),
    7750,
    "NVIDIA HGX B200 data sheet, one eighth of 8 GPUs: 600 TFLOPS / 18* / 36* PFLOPS (*with sparsity: halved), 62 TB/s",
    double=37,
)
_GA102 = "NVIDIA GA102 white paper: 35.6 TFLOPS, TF32 35.6, FP16 and BF16 with FP32 accumulate 71, 936 GB/s"
_AD102 = "NVIDIA Ada white paper: 82.6 TFLOPS, TF32 82.6, FP16 and BF16 with FP32 accumulate 165.2, 1008 GB/s"
_GB202 = (
    "NVIDIA RTX Blackwell white paper: 104.8 TFLOPS, TF32 104.8, FP16 and BF16 with FP32 accumulate 209.5, 1792 GB/s"
)
_MI250 = _peak(
    (45.25, None, 181.05, 181.05),
    1638.4,
    "AMD MI250 data sheet, one of two dies: half of 90.5 (matrix) / 362.1 TFLOPS, 3276.8 GB/s",
    double=45.25,
)
_MI250X = _peak(
    (47.85, None, 191.5, 191.5),
    1638.4,
    "AMD MI250X data sheet, one of two dies: half of 95.7 (matrix) / 383 TFLOPS, 3276.8 GB/s",
    double=47.85,
)
_MI300X = _peak(
    (163.4, 653.7, 1307.4, 1307.4), 5300, "AMD MI300X data sheet: 163.4 / 653.7 / 1307.4 TFLOPS, 5.3 TB/s", double=163.4
)


def _apple(float32: float | None, gigabytes_per_s: float, says: str) -> Peak:
    return _peak((float32, None, None, None), gigabytes_per_s, f"Apple, {says}")


#: By name without "NVIDIA ", which only newer drivers put first.
PEAKS: Mapping[str, Peak] = MappingProxyType(
    {
        "Tesla T4": _T4,
        "T4": _T4,
        "Tesla P100-PCIE-16GB": _peak((9.3, None, 9.3, None), 732, f"{_P100_PCIE}, 16 GB: 732 GB/s", double=4.7),
        "Tesla P100-PCIE-12GB": _peak((9.3, None, 9.3, None), 549, f"{_P100_PCIE}, 12 GB: 549 GB/s", double=4.7),
        "Tesla P100-SXM2-16GB": _peak((10.6, None, 10.6, None), 732, _P100_SXM2, double=5.3),
        "Tesla V100-PCIE-16GB": _V100_PCIE,
        "Tesla V100-PCIE-32GB": _V100_PCIE,
        "Tesla V100-SXM2-16GB": _V100_SXM2,
        "Tesla V100-SXM2-32GB": _V100_SXM2,
        "Tesla V100S-PCIE-32GB": _V100S,
        "A10": _A10,
        "A10G": _A10G,
        "L4": _L4,
        "L40S": _L40S,
        "A100-PCIE-40GB": _A100_40,
        "A100-SXM4-40GB": _A100_40,
        "A100 80GB PCIe": _A100_80_PCIE,
        "A100-SXM4-80GB": _A100_80_SXM,
        "H100 PCIe": _H100_PCIE,
        "H100 80GB HBM3": _H100_SXM,
        "H100 NVL": _H100_NVL,
        "H200": _H200_SXM,
        "H200 NVL": _H200_NVL,
        "B200": _B200,
        "GeForce RTX 3090": _peak((35.6, 35.6, 71, 71), 936, _GA102, double=35.6 / 64),
        "GeForce RTX 4090": _peak((82.6, 82.6, 165.2, 165.2), 1008, _AD102, double=82.6 / 64),
        "GeForce RTX 5090": _peak((104.8, 104.8, 209.5, 209.5), 1792, _GB202, double=104.8 / 64),
        "AMD Instinct MI250": _MI250,
        "AMD Instinct MI250X": _MI250X,
        "AMD Instinct MI250X / MI250": _MI250,  # the driver does not tell which; the lower of the two
        "AMD Instinct MI250X/MI250": _MI250,
        "AMD Instinct MI300X": _MI300X,
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
        "Apple M4": _apple(None, 120, "M4: 120 GB/s, operations not published"),
        "Apple M4 Pro": _apple(None, 273, "M4 Pro: 273 GB/s, operations not published"),
    }
)
