"""A run with everything a report can show: work, ceilings, memory by phase, energy, slow steps, ranks, sentinels."""

from __future__ import annotations

import dataclasses

import numpy as np

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, StepWaterfall
from perf_diagnostics.records import MEASURED_PHASES, Run, StepTable, TrialResult
from perf_diagnostics.testing import run_of, trial_of

MIB = 2**20
GIGA = 1e9

#: A step of batch b does 0.5 GFLOP * b in 0.01 s * b, which is 50 GFLOP/s, half of what a large product reaches.
CEILING = 100 * GIGA
#: It reads and writes 0.05 GB * b: 10 FLOP/byte, right of the ridge at 100 / 20 = 5 FLOP/byte.
BANDWIDTH = 20 * GIGA

WORK = {"matmul_ceiling": CEILING, "memory_bandwidth": BANDWIDTH}

WINDOW = StepWaterfall(
    scope="synthetic on cpu, batch 4",
    steps=5,
    wall_ns=200_000_000,
    parts=(("compute", 150_000_000), ("waiting_for_input", 40_000_000), ("new_part", 10_000_000), ("allocation", 0)),
    on_device=True,
    slowdown=1.25,
    prompt_share=0.4,
)


def cpu(batch_size: int, **quantities: float) -> TrialResult:
    """A trial on the CPU whose step takes 0.01 s a sample: 30 % forward, 50 % backward, the rest data wait."""
    step_s = 0.01 * batch_size
    numbers = WORK | {
        "flops_per_step": 0.5 * GIGA * batch_size,
        "traffic_bytes_per_step": 0.05 * GIGA * batch_size,
        "probe_overhead_s": 8e-6,
        "probe_overhead_low_s": 6e-6,
        "probe_overhead_high_s": 11e-6,
        "host_memory_uss": 300.0 * MIB,
        "swapped_bytes": 0.0,
        **{f"memory_peak_{phase}": (100.0 + 10 * i) * MIB for i, phase in enumerate(MEASURED_PHASES)},
        **quantities,
    }
    return trial_of(
        data_wait=0.2 * step_s, forward=0.3 * step_s, backward=0.5 * step_s, batch_size=batch_size, quantities=numbers
    )


def gpu(batch_size: int) -> TrialResult:
    """A trial on a T4: 100 steps of 0.1 s at 70 W, 30 W of them when idle."""
    return trial_of(
        forward=0.1,
        batch_size=batch_size,
        device="cuda:0",
        facts={"device_name": "Tesla T4"},
        quantities={
            "energy_device": 700.0,
            "energy_device_net": 400.0,
            "energy_device_uncertainty": 7.0,
            "energy_device_window_s": 10.0,
            "energy_device_steps": 100.0,
            "device_idle_power": 30.0,
        },
    )


def with_slow_steps(result: TrialResult) -> TrialResult:
    """Step 20 of 100 takes a second longer in the garbage collector, step 60 half a second longer, nobody knows why."""
    columns = {name: values.copy() for name, values in result.steps[0].columns.items()}
    warmup = int(columns["warmup"].sum())
    columns["gc_ns"] = np.zeros(len(columns["wall_ns"]), dtype=np.int64)
    for step, extra_ns in ((20, 1_000_000_000), (60, 500_000_000)):
        columns["wall_ns"][warmup + step] += extra_ns
        for backward in {"host_backward_ns", "device_backward_ns"} & columns.keys():
            columns[backward][warmup + step] += extra_ns
    columns["gc_ns"][warmup + 20] = 1_000_000_000
    # The clock around the steps saw them, too; else the trial would not close and nothing were concluded from it.
    quantities = tuple(
        dataclasses.replace(quantity, value=quantity.value + 1.5) if quantity.name == "measured_wall_s" else quantity
        for quantity in result.quantities
    )
    return dataclasses.replace(result, steps=(StepTable(columns),), quantities=quantities)


def with_ranks(result: TrialResult, *others: TrialResult) -> TrialResult:
    """The same trial with the steps of more ranks beside its own."""
    return dataclasses.replace(result, steps=(*result.steps, *(other.steps[0] for other in others)))


def sentinel(block: int, step_s: float) -> TrialResult:
    """The short trial that only watches the machine."""
    result = trial_of(forward=step_s, batch_size=1, repeat=block, steps=20)
    return dataclasses.replace(result, trial=dataclasses.replace(result.trial, role="sentinel"))


def rich_run() -> Run:
    ranks = with_ranks(with_slow_steps(cpu(4)), cpu(4))
    sentinels = [sentinel(block, step_s) for block, step_s in enumerate((0.010, 0.0101, 0.0102, 0.0103))]
    return run_of(cpu(1), cpu(2), ranks, gpu(8), with_slow_steps(gpu(16)), *sentinels)


def rich_diagnosis(run: Run) -> Diagnosis:
    return dataclasses.replace(diagnose(run), waterfall=WINDOW)
