"""The table of peaks, against arithmetic from units, clocks and operations a cycle, by hand."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.hardware.data_sheets import PEAKS, peak

#: Boards of 10 and of 12 GB have it.
BOARDS_DIFFER = "GeForce RTX 3080"

#: name, precision, units (tensor cores or shader cores of the whole chip), boost clock in GHz, operations a unit and
#: cycle. A multiply-add is two. Clocks and units are those of the makers' white papers.
BY_HAND = [
    ("Tesla T4", "float32", 2560, 1.590, 2),  # 8.14
    ("Tesla T4", "float16", 320, 1.590, 128),  # 65.1: 64 multiply-adds a tensor core
    ("Tesla P100-PCIE-16GB", "float32", 3584, 1.303, 2),  # 9.34
    ("Tesla V100-SXM2-16GB", "float32", 5120, 1.530, 2),  # 15.7
    ("Tesla V100-SXM2-16GB", "float16", 640, 1.530, 128),  # 125.3
    ("NVIDIA A100-SXM4-40GB", "float32", 6912, 1.410, 2),  # 19.5
    ("NVIDIA A100-SXM4-80GB", "bfloat16", 432, 1.410, 512),  # 311.9: 256 multiply-adds
    ("NVIDIA A100-SXM4-80GB", "tf32", 432, 1.410, 256),  # 155.9
    ("NVIDIA H100 80GB HBM3", "bfloat16", 528, 1.830, 1024),  # 989.4: 512 multiply-adds
    ("NVIDIA H100 PCIe", "bfloat16", 456, 1.620, 1024),  # 756.4
    ("NVIDIA L40S", "bfloat16", 568, 2.490, 256),  # 362.1
    ("NVIDIA L4", "bfloat16", 232, 2.040, 256),  # 121.2
    ("NVIDIA A10", "bfloat16", 288, 1.695, 256),  # 125.0
    (
        "NVIDIA A10G",
        "float32",
        10240,
        1.710,
        2,
    ),  # 35.0; clocks as the EC2 user guide sets them (nvidia-smi -ac 6250,1710)
    ("NVIDIA A10G", "bfloat16", 320, 1.710, 128),  # 70.0: half of the A10's operations a unit
    ("NVIDIA A30", "bfloat16", 224, 1.440, 512),  # 165.2
    ("NVIDIA A30", "tf32", 224, 1.440, 256),  # 82.6
    ("NVIDIA A30", "float64", 224, 1.440, 32),  # 10.3
    ("NVIDIA A40", "bfloat16", 336, 1.740, 256),  # 149.7: a GA102 whose float32 accumulation is not halved
    ("NVIDIA A40", "float32", 10752, 1.740, 2),  # 37.4
    ("NVIDIA RTX A6000", "bfloat16", 336, 1.800, 256),  # 154.8
    ("NVIDIA L40", "bfloat16", 568, 2.490, 128),  # 181.0: half of the L40S's operations a unit
    ("NVIDIA L40", "float32", 18176, 2.490, 2),  # 90.5
    ("NVIDIA GH200 480GB", "bfloat16", 528, 1.830, 1024),  # 989.4
    ("NVIDIA GH200 144G HBM3e", "float64", 528, 1.980, 64),  # 66.9
    ("NVIDIA GeForce RTX 3080", "float16", 272, 1.710, 128),  # 59.5 with float32 accumulation
    ("NVIDIA GeForce RTX 3080", "float32", 8704, 1.710, 2),  # 29.8
    ("NVIDIA GeForce RTX 4080", "bfloat16", 304, 2.505, 128),  # 97.5
    ("NVIDIA GeForce RTX 4080", "float32", 9728, 2.505, 2),  # 48.7
    ("NVIDIA GeForce RTX 5080", "bfloat16", 336, 2.617, 128),  # 112.6
    ("NVIDIA GeForce RTX 5080", "float32", 10752, 2.617, 2),  # 56.3
    ("NVIDIA GeForce RTX 3090", "float16", 328, 1.695, 128),  # 71.2 with float32 accumulation
    ("NVIDIA GeForce RTX 4090", "float32", 16384, 2.520, 2),  # 82.6
    ("NVIDIA GeForce RTX 4090", "float16", 512, 2.520, 128),  # 165.2 with float32 accumulation
    ("NVIDIA GeForce RTX 5090", "float32", 21760, 2.407, 2),  # 104.8
    ("Tesla T4", "float64", 80, 1.590, 2),  # 0.25: two units a multiprocessor
    ("Tesla P100-SXM2-16GB", "float64", 1792, 1.480, 2),  # 5.3
    ("Tesla V100-SXM2-16GB", "float64", 2560, 1.530, 2),  # 7.8
    ("NVIDIA A100-SXM4-80GB", "float64", 432, 1.410, 32),  # 19.5: 16 multiply-adds a tensor core
    ("NVIDIA H100 80GB HBM3", "float64", 528, 1.980, 64),  # 66.9
    ("NVIDIA GeForce RTX 4090", "float64", 256, 2.520, 2),  # 1.29
    ("AMD Instinct MI300X", "bfloat16", 304, 2.100, 2048),  # 1307.4, by compute unit
    ("AMD Instinct MI210", "bfloat16", 104, 1.700, 1024),  # 181.0
    ("AMD Instinct MI210", "float64", 104, 1.700, 256),  # 45.3, matrix units
    ("AMD Instinct MI300A", "bfloat16", 228, 2.100, 2048),  # 980.6
    ("AMD Instinct MI300A", "tf32", 228, 2.100, 1024),  # 490.3
    ("AMD Instinct MI300A", "float32", 228, 2.100, 256),  # 122.6
    ("AMD Instinct MI325X VF", "float16", 304, 2.100, 2048),  # 1307.4
    ("AMD Instinct MI355X", "bfloat16", 256, 2.400, 4096),  # 2516.6
    ("AMD Instinct MI355X", "float32", 256, 2.400, 256),  # 157.3
    ("AMD Instinct MI355X", "float64", 256, 2.400, 128),  # 78.6
    ("AMD Instinct MI250X", "bfloat16", 110, 1.700, 1024),  # 191.5, one die
    ("AMD Instinct MI250X", "float32", 110, 1.700, 256),  # 47.9, one die, matrix units
]


@pytest.mark.parametrize(("name", "precision", "units", "gigahertz", "operations"), BY_HAND)
def test_units_by_clock_by_operations(name: str, precision: str, units: int, gigahertz: float, operations: int) -> None:
    found = peak(name)
    assert found is not None
    assert found.flops(precision) == pytest.approx(units * gigahertz * 1e9 * operations, rel=0.01)


@pytest.mark.parametrize(
    ("name", "bits", "gigabits"),
    [
        ("Tesla T4", 256, 10.0),  # GDDR6
        ("NVIDIA A10G", 384, 12.5),  # twice 6250 MHz
        ("NVIDIA GeForce RTX 4090", 384, 21.0),
        ("NVIDIA GeForce RTX 5090", 512, 28.0),
        ("NVIDIA L4", 192, 12.5),
        ("NVIDIA L40", 384, 18.0),
        ("NVIDIA A30", 3072, 2.43),  # HBM2
        ("NVIDIA A40", 384, 14.5),
        ("NVIDIA RTX A6000", 384, 16.0),
        ("NVIDIA GeForce RTX 4080", 256, 22.4),
        ("NVIDIA GeForce RTX 5080", 256, 30.0),
        ("NVIDIA GH200 480GB", 6144, 5.238),  # twice 2619 MHz
        ("AMD Instinct MI210", 4096, 3.2),
        ("AMD Instinct MI300A", 8192, 5.2),
        ("NVIDIA A100-SXM4-40GB", 5120, 2.43),  # HBM2
        ("NVIDIA A100-SXM4-80GB", 5120, 3.186),
        ("AMD Instinct MI300X", 8192, 5.2),
    ],
)
def test_bandwidth_is_bus_width_by_rate(name: str, bits: int, gigabits: float) -> None:
    found = peak(name)
    assert found is not None
    assert found.bytes_per_s == pytest.approx(bits / 8 * gigabits * 1e9, rel=0.01)


@pytest.mark.parametrize(
    "name",
    [
        "cpu",
        "mps",
        "NVIDIA A100X",
        "NVIDIA H100",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA GeForce RTX 4080 SUPER",
        "NVIDIA GH200",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA H20",
        "NVIDIA T4G",
        "Apple M4 Max",
        None,
    ],
)
def test_another_device_has_no_peak(name: str | None) -> None:
    assert peak(name) is None


def test_old_drivers_leave_out_the_maker() -> None:
    assert peak("A100-SXM4-40GB") is peak("NVIDIA A100-SXM4-40GB") is not None


def test_formats_a_device_lacks_are_absent_not_zero() -> None:
    volta = peak("Tesla V100-PCIE-16GB")
    assert volta is not None
    assert volta.flops("bfloat16") is None and volta.flops("tf32") is None and volta.flops("int4") is None


def test_every_figure_is_possible_and_has_its_source() -> None:
    for name, sheet in PEAKS.items():
        known = [value for value in (sheet.float32, sheet.tf32, sheet.float16, sheet.bfloat16) if value is not None]
        assert all(1e12 < value < 3e15 for value in known), name
        if name != BOARDS_DIFFER:
            assert sheet.bytes_per_s is not None and 5e10 < sheet.bytes_per_s < 1e13, name
        assert sheet.source.startswith(("NVIDIA", "AMD", "Apple")), name
        # TF32 is never faster than 16 bits, nor slower than float32.
        if sheet.tf32 is not None and sheet.bfloat16 is not None and sheet.float32 is not None:
            assert sheet.float32 <= sheet.tf32 <= sheet.bfloat16, name


def test_a_name_of_boards_with_different_memory_has_no_bandwidth() -> None:
    assert [name for name, sheet in PEAKS.items() if sheet.bytes_per_s is None] == [BOARDS_DIFFER]


def test_one_of_72_gpus_of_a_rack() -> None:
    rack = peak("NVIDIA GB200")
    assert rack is not None
    # 360 PFLOPS with sparsity, 180 without; 180 and 90 in TF32; 5,760 TFLOPS in float32, 576 TB/s.
    assert 72 * (rack.bfloat16 or 0) == pytest.approx(180e15) and 72 * (rack.tf32 or 0) == pytest.approx(90e15)
    assert 72 * (rack.float32 or 0) == pytest.approx(5760e12) and 72 * (rack.bytes_per_s or 0) == pytest.approx(576e12)
