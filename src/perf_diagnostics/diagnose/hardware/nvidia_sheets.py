"""NVIDIA's data sheets, by the name that the driver gives the device.

Names are those of the list of supported products in the driver's README, without "NVIDIA ", which only newer drivers
put first. What is not here: an H20 (its sheet is not public, and the float32 that is quoted from it does not follow
from its multiprocessors and clock), an RTX 6000 Ada (its sheet gives sparse FP8 alone; quoted rates of its 16-bit
products differ by a factor of two), a T4G (no sheet).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from perf_diagnostics.diagnose.hardware.peaks import Peak, as_printed

_T4 = as_printed((8.1, None, 65, None), 320, "NVIDIA T4 data sheet: 8.1 / 65 TFLOPS, 320 GB/s", double=8.1 / 32)
#: Without tensor cores, twice the rate in half precision (18.7 and 21.2) is that of float16 accumulation, which torch
#: does not use: cuBLAS computes its float16 products there in float32.
_P100_PCIE = "NVIDIA Tesla P100 PCIe data sheet: 9.3 TFLOPS (18.7 in half precision are with float16 accumulation)"
_P100_SXM2 = (
    "NVIDIA Tesla P100 NVLink data sheet: 10.6 TFLOPS (21.2 in half precision are with float16 accumulation), 732 GB/s"
)
_V100_PCIE = as_printed((14, None, 112, None), 900, "NVIDIA V100 data sheet, PCIe: 14 / 112 TFLOPS, 900 GB/s", double=7)
_V100_SXM2 = as_printed(
    (15.7, None, 125, None), 900, "NVIDIA V100 data sheet, SXM2: 15.7 / 125 TFLOPS, 900 GB/s", double=7.8
)
_V100S = as_printed(
    (16.4, None, 130, None), 1134, "NVIDIA V100 data sheet, V100S PCIe: 16.4 / 130 TFLOPS, 1134 GB/s", double=8.2
)
_A10 = as_printed(
    (31.2, 62.5, 125, 125), 600, "NVIDIA A10 data sheet: 31.2 / 62.5 / 125 TFLOPS, 600 GB/s", double=31.2 / 64
)
#: Its tensor cores are slower than the A10's: others have published 66.6 TFLOPS for a bfloat16 product of 8192³ on one.
_A10G = as_printed(
    (35, 35, 70, 70),
    600,
    "NVIDIA A10G data sheet for AWS (NVIDIA_AWS_A10G_DataSheet_FINAL_02_17_2022.pdf): 35 / 35 / 70 TFLOPS, 600 GB/s",
    double=35 / 64,
)
_L4 = as_printed(
    (30.3, 60, 121, 121),
    300,
    "NVIDIA L4 data sheet: 30.3 / 120* / 242* TFLOPS (*with sparsity: halved), 300 GB/s",
    double=30.3 / 64,
)
_A30 = as_printed((10.3, 82, 165, 165), 933, "NVIDIA A30 data sheet: 10.3 / 82 / 165 TFLOPS, 933 GB/s", double=10.3)
_A40 = as_printed(
    (37.4, 74.8, 149.7, 149.7), 696, "NVIDIA A40 data sheet: 37.4 / 74.8 / 149.7 TFLOPS, 696 GB/s", double=37.4 / 64
)
_A6000 = as_printed(
    (38.7, 77.4, 154.8, 154.8),
    768,
    "NVIDIA GA102 white paper, RTX A6000: 38.7 / 77.4 / 154.8 TFLOPS with FP32 accumulate, 768 GB/s",
    double=38.7 / 64,
)
#: Half the rate of an L40S at the same clock, with as many tensor cores.
_L40 = as_printed(
    (90.5, 90.5, 181, 181), 864, "NVIDIA L40 data sheet: 90.5 / 90.5 / 181.05 TFLOPS, 864 GB/s", double=90.5 / 64
)
_L40S = as_printed(
    (91.6, 183, 362, 362), 864, "NVIDIA L40S data sheet: 91.6 / 183 / 362.05 TFLOPS, 864 GB/s", double=91.6 / 64
)
_A100 = "NVIDIA A100 data sheet: 19.5 / 156 / 312 TFLOPS"
_A100_40 = as_printed((19.5, 156, 312, 312), 1555, f"{_A100}, 40 GB: 1555 GB/s", double=19.5)
_A100_80_PCIE = as_printed((19.5, 156, 312, 312), 1935, f"{_A100}, 80 GB PCIe: 1935 GB/s", double=19.5)
_A100_80_SXM = as_printed((19.5, 156, 312, 312), 2039, f"{_A100}, 80 GB SXM: 2039 GB/s", double=19.5)
_SPARSE = "(*with sparsity: halved)"
_H100_PCIE = as_printed(
    (51, 378, 756.5, 756.5),
    2000,
    f"NVIDIA H100 data sheet, PCIe: 51 / 756* / 1513* TFLOPS {_SPARSE}, 2 TB/s",
    double=51,
)
_H100_SXM = as_printed(
    (67, 494.5, 989.5, 989.5),
    3350,
    f"NVIDIA H100 data sheet, SXM: 67 / 989* / 1979* TFLOPS {_SPARSE}, 3.35 TB/s",
    double=67,
)
_H100_NVL = as_printed(
    (60, 417.5, 835.5, 835.5),
    3900,
    f"NVIDIA H100 data sheet, NVL: 60 / 835* / 1671* TFLOPS {_SPARSE}, 3.9 TB/s",
    double=60,
)
_H200_SXM = as_printed(
    (67, 494.5, 989.5, 989.5),
    4800,
    f"NVIDIA H200 data sheet, SXM: 67 / 989* / 1979* TFLOPS {_SPARSE}, 4.8 TB/s",
    double=67,
)
_H200_NVL = as_printed(
    (60, 417.5, 835.5, 835.5),
    4800,
    f"NVIDIA H200 data sheet, NVL: 60 / 835* / 1671* TFLOPS {_SPARSE}, 4.8 TB/s",
    double=60,
)
#: The name tells the memory of the processor beside it (120 or 480 GB); the GPU is the same, with 96 GB of its own.
_GH200_96 = as_printed(
    (67, 494.5, 989.5, 989.5),
    4000,
    f"NVIDIA GH200 data sheet, HBM3: 67 / 989* / 1979* TFLOPS {_SPARSE}, 4 TB/s",
    double=67,
)
_GH200_144 = as_printed(
    (67, 494.5, 989.5, 989.5),
    4900,
    f"NVIDIA GH200 data sheet, HBM3e: 67 / 989* / 1979* TFLOPS {_SPARSE}, 4.9 TB/s",
    double=67,
)
_B200 = as_printed(
    (75, 1125, 2250, 2250),
    7750,
    "NVIDIA HGX B200 data sheet, one eighth of 8 GPUs: 600 TFLOPS / 18* / 36* PFLOPS (*with sparsity: halved), 62 TB/s",
    double=37,
)
_GB200 = as_printed(
    (80, 1250, 2500, 2500),
    8000,
    "NVIDIA GB200 NVL72 specifications, one of 72 GPUs: 5,760 TFLOPS / 180* / 360* PFLOPS (*with sparsity: halved), "
    "576 TB/s",
    double=40,
)
_GA102 = "NVIDIA GA102 white paper: 35.6 TFLOPS, TF32 35.6, FP16 and BF16 with FP32 accumulate 71, 936 GB/s"
#: Boards of 10 and of 12 GB have this name. Figures are those of the first: the second has 3 % more, and other memory.
_GA102_3080 = (
    "NVIDIA GA102 white paper, RTX 3080 of 10 GB: 29.8 TFLOPS, TF32 29.8, FP16 and BF16 with FP32 accumulate 59.5"
)
_AD102 = "NVIDIA Ada white paper: 82.6 TFLOPS, TF32 82.6, FP16 and BF16 with FP32 accumulate 165.2, 1008 GB/s"
_AD103 = "NVIDIA Ada white paper: 48.7 TFLOPS, TF32 48.7, FP16 and BF16 with FP32 accumulate 97.5, 716.8 GB/s"
_GB202 = (
    "NVIDIA RTX Blackwell white paper: 104.8 TFLOPS, TF32 104.8, FP16 and BF16 with FP32 accumulate 209.5, 1792 GB/s"
)
_GB203 = "NVIDIA RTX Blackwell white paper: 56.3 TFLOPS, TF32 56.3, FP16 and BF16 with FP32 accumulate 112.6, 960 GB/s"

NVIDIA: Mapping[str, Peak] = MappingProxyType(
    {
        "Tesla T4": _T4,
        "T4": _T4,
        "Tesla P100-PCIE-16GB": as_printed((9.3, None, 9.3, None), 732, f"{_P100_PCIE}, 16 GB: 732 GB/s", double=4.7),
        "Tesla P100-PCIE-12GB": as_printed((9.3, None, 9.3, None), 549, f"{_P100_PCIE}, 12 GB: 549 GB/s", double=4.7),
        "Tesla P100-SXM2-16GB": as_printed((10.6, None, 10.6, None), 732, _P100_SXM2, double=5.3),
        "Tesla V100-PCIE-16GB": _V100_PCIE,
        "Tesla V100-PCIE-32GB": _V100_PCIE,
        "Tesla V100-SXM2-16GB": _V100_SXM2,
        "Tesla V100-SXM2-32GB": _V100_SXM2,
        "Tesla V100S-PCIE-32GB": _V100S,
        "A10": _A10,
        "A10G": _A10G,
        "A30": _A30,
        "A40": _A40,
        "RTX A6000": _A6000,
        "L4": _L4,
        "L40": _L40,
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
        "GH200 120GB": _GH200_96,
        "GH200 480GB": _GH200_96,
        "GH200 144G HBM3e": _GH200_144,
        "B200": _B200,
        "GB200": _GB200,
        "GeForce RTX 3080": as_printed((29.8, 29.8, 59.5, 59.5), None, _GA102_3080, double=29.8 / 64),
        "GeForce RTX 3090": as_printed((35.6, 35.6, 71, 71), 936, _GA102, double=35.6 / 64),
        "GeForce RTX 4080": as_printed((48.7, 48.7, 97.5, 97.5), 716.8, _AD103, double=48.7 / 64),
        "GeForce RTX 4090": as_printed((82.6, 82.6, 165.2, 165.2), 1008, _AD102, double=82.6 / 64),
        "GeForce RTX 5080": as_printed((56.3, 56.3, 112.6, 112.6), 960, _GB203, double=56.3 / 64),
        "GeForce RTX 5090": as_printed((104.8, 104.8, 209.5, 209.5), 1792, _GB202, double=104.8 / 64),
    }
)
