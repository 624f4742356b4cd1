"""Plants that need a GPU, as the records that a machine with one would have written; the arithmetic stands beside."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from perf_diagnostics.records import Phase, Run, Series
from perf_diagnostics.testing import run_of, sweep_of, throughput_sweep, trial_of
from tests.planted.plant import Plant, Records

_GPU = "cuda:0"

#: NVML's clocks event reasons (nvml.h): idle, power cap, hardware slowdown, thermal slowdown by software and hardware.
IDLE, POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL = 0x1, 0x4, 0x8, 0x20, 0x40

_GIB = 2.0**30
_MEMORY = {"device_memory_total": 80 * _GIB, "device_memory_peak_allocated": 30 * _GIB}


def _trial(**trial: Any) -> Callable[[int], Run]:
    """One trial on a GPU whose step of 0.1 s is computing, unless the fields say otherwise."""

    def build(seed: int) -> Run:
        given = {"forward": 0.03, "backward": 0.06, "optimizer": 0.01, "noise": 0.01, "device": _GPU, "steps": 200}
        return run_of(trial_of(**(given | trial), seed=seed))

    return build


def _records(**trial: Any) -> Records:
    return Records(_trial(**trial))


def _throttling(bits: int, share: float, **more: Any) -> Records:
    """A GPU at work in every one of 200 samples (one each 100 ms over 20 s), with these bits in a share of them."""
    at = np.arange(200)
    times_ns = at * 100_000_000
    reasons = np.where(at % 100 < share * 100, bits, 0)

    def series(name: str, unit: str, values: Any) -> Series:
        return Series(name, unit, "made up", times_ns, np.broadcast_to(np.asarray(values, dtype=float), at.shape))

    return _records(
        series=(
            series("gpu_throttle_reasons", "bitmask", reasons),
            series("gpu_utilization", "%", 99),
            series("gpu_sm_clock", "MHz", np.where(reasons > 0, 1200, 1800)),
            series("gpu_temperature", "°C", 90 if bits & (SW_THERMAL | HW_THERMAL | HW_SLOWDOWN) else 60),
            series("gpu_power", "W", 400),
        ),
        columns={"start_ns": np.arange(200) * 100_000_000},
        quantities={"steps_began_s": 0.0},
        **more,
    )


#: A step in which the device finds its queue empty at every border: the host enqueues as fast as the device works.
_STARVED = {
    "forward": 0.004,
    "backward": 0.008,
    "optimizer": 0.004,
    "host": {Phase.FORWARD: 0.004, Phase.BACKWARD: 0.008, Phase.OPTIMIZER: 0.004},
    "columns": {"borders": 6, "borders_idle": 6, "starved": 1.0, "host_lead_ns": 0.0},
    "batch_size": 1,
}
#: The same work from a graph: the host is done at once, and the device's queue is never empty.
_FED = {
    "forward": 0.002,
    "backward": 0.004,
    "optimizer": 0.002,
    "host": {Phase.FORWARD: 0.0001, Phase.BACKWARD: 0.0001, Phase.OPTIMIZER: 0.0001},
    "columns": {"borders": 6, "borders_idle": 0, "starved": 0.0, "host_lead_ns": 7e6},
    "batch_size": 1,
}


def _held_back(periods: int, seconds: float) -> Records:
    """A trial of 20 s on the CPU, held back by its quota in so many of 200 periods, for so long."""
    return _records(
        device="cpu",
        facts={"threads": 2, "cpu_count": 4},
        quantities={
            "cpu_periods": 200,
            "cpu_throttled_periods": periods,
            "cpu_throttled_s": seconds,
            "process_cpu_s": 12.0,
        },
    )


def _every(steps: int, period: int, value: float) -> np.ndarray:
    """``value`` more at every so manieth step, counted up."""
    return np.cumsum(np.where(np.arange(steps) % period == period - 1, value, 0.0))


def _recompiling(_seed: int) -> Run:
    """Every fifth of 200 steps meets a new shape: a graph more, and 2 s on top of 0.1 s."""
    graphs = _every(200, 5, 1).astype(int) + 1
    wall = np.where(np.arange(200) % 5 == 4, 2.1e9, 0.1e9)
    columns = {"graphs": graphs, "wall_ns": wall, "host_forward_ns": wall - 0.07e9}
    return run_of(
        trial_of(forward=0.03, backward=0.06, optimizer=0.01, steps=200, columns=columns,
                 settings={"compile_mode": "default"}, quantities={"measured_wall_s": float(wall.sum()) / 1e9})
    )  # fmt: skip


def _pairs_of_precisions(factor: float) -> Callable[[int], Run]:
    """float32 and bfloat16 at four batch sizes, three processes each; bfloat16 is ``factor`` times as fast."""

    def build(seed: int) -> Run:
        common = {
            "a_s": 0.010,
            "b_s": 0.001,
            "batch_sizes": (8, 16, 32, 64),
            "repeats": 3,
            "device": _GPU,
            "noise": 0.01,
        }
        half = {"a_s": 0.010 / factor, "b_s": 0.001 / factor, "settings": {"precision": "bfloat16"}}
        one, two = sweep_of(**common, seed=seed), sweep_of(**(common | half), seed=seed)
        return run_of(*one.results, *two.results)

    return build


def _odd_batch(_seed: int) -> Run:
    """Throughput on a line but for batch 48, which takes half as long again as its neighbours foretell."""
    seconds = {size: 0.010 + 0.001 * size for size in (8, 16, 24, 32, 48, 64, 96, 128)}
    seconds[48] *= 1.5
    return throughput_sweep({size: size / s for size, s in seconds.items()}, device=_GPU, noise=0.01)


def _noise(_seed: int) -> Run:
    """Steps that scatter by 40 %, independently: a noisy machine."""
    return run_of(trial_of(forward=0.03, backward=0.06, noise=0.4, steps=200))


def _gpu_hardly_faster(_seed: int) -> Run:
    cpu = trial_of(forward=0.3, backward=0.6, noise=0.02)
    return run_of(cpu, trial_of(data_wait=0.5, forward=0.05, backward=0.1, device=_GPU, noise=0.02))


PLANTS = (
    Plant(
        name="launch-bound-batch-1",
        number="25",
        says="a small model at batch 1, eager: the device waits for each launch",
        dose="queue empty at every border, host as long as device",
        faulty=_records(**_STARVED),
        control=_records(**_FED),
        expected=("HST001",),
        top=("HST001",),
        must_not=("CMP003", "CMP007", "MEM001", "CMP002"),
    ),
    Plant(
        name="launch-bound-with-a-graph",
        number="26",
        says="the same from a CUDA graph",
        dose="queue never empty",
        faulty=_records(**_FED),
        must_not=("HST001",),
    ),
    Plant(
        name="pageable-large-batch",
        number="29",
        says="256 MB a step are copied from pageable memory before anything is computed",
        dose="copies take 0.04 of 0.14 s",
        faulty=_records(transfer=0.04, facts={"pin_memory": False, "num_workers": 2}),
        control=_records(transfer=0.001, facts={"pin_memory": True, "num_workers": 2}),
        expected=("XFR001",),
        top=("XFR001",),
        must_not=("INP001",),
    ),
    Plant(
        name="pageable-small-batch",
        number="30",
        says="pageable copies that cost one percent: a decoy",
        dose="1 of 100 ms",
        faulty=_records(transfer=0.001, facts={"pin_memory": False, "num_workers": 2}),
        must_not=("XFR001", "XFR002"),
    ),
    Plant(
        name="cache-emptied-each-step",
        number="36",
        says="empty_cache() in the loop: the allocator asks the driver in every step",
        dose="12 allocations a step",
        faulty=_records(columns={"device_allocs": np.arange(200) * 12.0, "alloc_retries": 0.0}),
        control=_records(columns={"device_allocs": 40.0, "alloc_retries": 0.0}),
        expected=("HST003",),
        must_not=("MEM002", "MEM003"),
    ),
    Plant(
        name="allocator-retries",
        number="37",
        says="memory is so full that allocations are retried",
        dose="0.97 of the memory, a retry every 10th step",
        faulty=_records(
            columns={"alloc_retries": _every(200, 10, 1.0), "device_allocs": _every(200, 10, 4.0)},
            quantities=_MEMORY
            | {
                "device_memory_peak_reserved": 77.8 * _GIB,
                "device_memory_peak_allocated": 75 * _GIB,
                "alloc_retries": 20,
            },
        ),
        control=_records(quantities=_MEMORY | {"device_memory_peak_reserved": 34 * _GIB, "alloc_retries": 0}),
        expected=("MEM003|MEM001",),
        noted=("MEM003",),
        must_not=("INP001", "HST001"),
    ),
    Plant(
        name="fragmented-memory",
        number="37",
        says="most of what the allocator holds is free, and in pieces; allocations are retried",
        dose="70 of 80 GiB held, 30 in use, 35 in split blocks; a retry every 10th step",
        faulty=_records(
            columns={"alloc_retries": _every(200, 10, 1.0)},
            quantities=_MEMORY
            | {
                "device_memory_peak_reserved": 74 * _GIB,
                "device_memory_inactive_split": 35 * _GIB,
                "alloc_retries": 20,
            },
        ),
        control=_records(
            quantities=_MEMORY
            | {
                "device_memory_peak_reserved": 34 * _GIB,
                "device_memory_inactive_split": 1 * _GIB,
                "alloc_retries": 0,
            }
        ),
        expected=("MEM002",),
    ),
    Plant(
        name="full-but-quiet",
        number="N-g",
        says="95 % of the memory, nothing retried, nothing split: a decoy",
        dose="none",
        faulty=_records(
            columns={"alloc_retries": 0.0, "device_allocs": 300.0},
            quantities=_MEMORY
            | {
                "device_memory_peak_reserved": 76 * _GIB,
                "device_memory_peak_allocated": 74 * _GIB,
                "device_memory_inactive_split": 0.5 * _GIB,
                "alloc_retries": 0,
            },
        ),
        must_not=("MEM002", "MEM003"),
    ),
    Plant(
        name="growing-allocations",
        number="14",
        says="tensors on the device grow with every step",
        dose="50 MB a step of 2 GB",
        faulty=_records(
            columns={"allocated_bytes": 2e9 + np.arange(200) * 50e6}, quantities={"device_memory_total": 80 * _GIB}
        ),
        control=_records(columns={"allocated_bytes": 2e9}, quantities={"device_memory_total": 80 * _GIB}),
        expected=("MEM004",),
        must_not=("MEM001",),
    ),
    Plant(
        name="swapping",
        number="-",
        says="the trial's memory lies in swap and is read back from disk",
        dose="20 major faults a step, 4 GB in swap",
        faulty=_records(quantities={"major_faults": 4000, "swapped_bytes": 4e9, "host_memory_total": 32e9}),
        control=_records(quantities={"major_faults": 0, "swapped_bytes": 0, "host_memory_total": 32e9}),
        expected=("MEM006",),
        must_not=("MEM004",),
    ),
    Plant(
        name="power-capped",
        number="39",
        says="the power limit holds the clock down",
        dose="in 60 % of the samples at work",
        faulty=_throttling(POWER_CAP, 0.6),
        control=_throttling(0, 0.0),
        noted=("PWR002",),
        must_not=("PWR001",),
    ),
    Plant(
        name="too-hot",
        number="40",
        says="the board slows itself down for its heat",
        dose="the hardware's thermal bit in 30 % of the samples at work",
        faulty=_throttling(HW_THERMAL | HW_SLOWDOWN, 0.3),
        control=_throttling(0, 0.0),
        expected=("PWR001",),
        top=("PWR001",),
        must_not=("PWR002",),
    ),
    Plant(
        name="clock-rests",
        number="-",
        says="the bit for an idle clock between the steps: a decoy",
        dose="the idle bit in 40 % of the samples",
        faulty=_throttling(IDLE, 0.4),
        must_not=("PWR001", "PWR002"),
    ),
    Plant(
        name="quota-throttled",
        number="46",
        says="the cgroup's CPU quota is used up in most of its periods",
        dose="120 of 200 periods, 8 of 20 s",
        faulty=_held_back(120, 8.0),
        control=_held_back(0, 0.0),
        expected=("CPU003",),
        top=("CPU003",),
        must_not=("HST006",),
    ),
    Plant(
        name="recompiling",
        number="38",
        says="torch.compile meets new shapes again and again",
        dose="a graph more every 5th step, 2 s each",
        faulty=Records(_recompiling),
        expected=("HST007",),
        top=("HST007",),
        must_not=("EXP010",),
    ),
    Plant(
        name="noisy-machine",
        number="-",
        says="steps scatter by 40 %, without a cause in them",
        dose="40 %",
        faulty=Records(_noise),
        control=Records(lambda seed: run_of(trial_of(forward=0.03, backward=0.06, noise=0.01, steps=200, seed=seed))),
        noted=("EXP007",),
        must_not=("STB002", "STB004", "INP001"),
    ),
    Plant(
        name="odd-batch",
        number="-",
        says="one batch size is slower than its neighbours foretell",
        dose="batch 48 takes 1.5 times as long",
        faulty=Records(_odd_batch),
        noted=("SWP004",),
        must_not=("SWP003",),
    ),
    Plant(
        name="precision-without-effect",
        number="33",
        says="bfloat16 is as slow as float32",
        dose="1.00 times",
        faulty=Records(_pairs_of_precisions(1.0)),
        control=Records(_pairs_of_precisions(2.0)),
        noted=("SWP005",),
        must_not=("CMP001",),
    ),
    Plant(
        name="past-the-peak",
        number="-",
        says="the largest batches are slower a sample than a smaller one",
        dose="20 % at the largest",
        faulty=Records(
            lambda _seed: throughput_sweep({8: 400, 16: 700, 32: 1000, 64: 950, 128: 800}, device=_GPU, noise=0.01)
        ),
        noted=("SWP003",),
        must_not=("SWP004",),
    ),
    Plant(
        name="gpu-hardly-faster",
        number="-",
        says="a GPU that waits for its data is hardly faster than the processor",
        dose="0.9 s against 0.65 s, of which 0.5 s wait",
        faulty=Records(_gpu_hardly_faster),
        expected=("INP001",),
        noted=("CMP001",),
        top=("INP001", "INP002", "INP003"),
        must_not=("CMP003", "CMP007"),
    ),
    Plant(
        name="mostly-padding",
        number="-",
        says="two thirds of each batch are padding",
        dose="0.66",
        faulty=_records(columns={"tokens": 3000, "padding_tokens": 2000}),
        control=_records(columns={"tokens": 3000, "padding_tokens": 60}),
        expected=("CMP004",),
        top=("CMP004",),
        must_not=("INP001",),
    ),
    Plant(
        name="busy-gpu",
        number="N-b",
        says="a large model that keeps its GPU busy",
        dose="none",
        faulty=_records(
            host={Phase.FORWARD: 0.004, Phase.BACKWARD: 0.004, Phase.OPTIMIZER: 0.001},
            columns={"borders": 6, "borders_idle": 0, "starved": 0.0, "host_lead_ns": 8e7},
            settings={"precision": "bfloat16"},
            facts={"pin_memory": True, "num_workers": 4},
        ),
    ),
)
