"""Records of which other tools are known to draw a wrong conclusion, and what is said of them here instead."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Finding, Severity
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.diagnose.rules.cmp013_low_gpu_utilisation import LowGpuUtilisation
from perf_diagnostics.diagnose.rules.mem001_memory_pressure import MemoryPressure
from perf_diagnostics.diagnose.rules.mem007_checkpointing import Checkpointing
from perf_diagnostics.diagnose.rules.opt005_recomputation import Recomputation
from perf_diagnostics.diagnose.rules.swp003_past_the_peak import PastThePeak
from perf_diagnostics.diagnose.rules.swp004_odd_batch_size import OddBatchSize
from perf_diagnostics.records import Phase, Series, StepTable
from perf_diagnostics.testing import run_of, sweep_of, throughput_sweep, trial_of
from tests.diagnose.answers import ask_group, ask_trial, changes, clear, found, number, only_group

GIB = 2**30


def faults(diagnosis: Diagnosis) -> list[str]:
    """The codes of what is more than an observation."""
    return [one.code for one in diagnosis.findings if one.severity is not Severity.INFO]


def advised(diagnosis: Diagnosis) -> set[str]:
    """The settings that any advice would change."""
    return {name for one in diagnosis.findings for change in changes(one) for name in change}


def test_a_gpu_that_is_seldom_busy_is_no_reason_for_a_larger_batch() -> None:
    """ "Below 50 %, increase the batch" was wrong where loaders, launches and gaps kept the device waiting."""
    series = [Series("gpu_utilization", "%", "NVML", np.arange(20) * 10**8, np.full(20, 20.0))]
    trial = {"device": "cuda:0", "forward": 0.3, "backward": 0.6, "other": 0.1, "series": series}
    finding = found(ask_trial(LowGpuUtilisation(), **trial))
    assert finding.severity is Severity.INFO and not finding.remedies
    diagnosis = diagnose(run_of(trial_of(**trial)))
    assert diagnosis.verdict is None or diagnosis.verdict.code != "CMP013"
    assert "batch_size" not in advised(diagnosis)


@pytest.mark.parametrize("times", [1.0, 2.0, 4.0])
def test_how_long_backward_takes_beside_forward_says_nothing_of_checkpointing(times: float) -> None:
    """A cut at 2.7 misses four checkpointed segments (2.1), and calls anomaly mode (1.8) healthy."""
    trial = {
        "forward": 0.1,
        "backward": 0.1 * times,
        "facts": {"recomputed_flops_share": 0.0, "matmul_precision": "highest"},
        "quantities": {"host_memory_peak": 1 * GIB, "host_memory_total": 8 * GIB},
    }
    assert number(clear(ask_trial(Recomputation(), **trial)), "operations done again").value == 0
    clear(ask_group(Checkpointing(), run_of(trial_of(**trial))))
    assert "gradient_checkpointing" not in advised(diagnose(run_of(trial_of(**trial))))


def test_a_sweep_that_saturates_has_no_odd_batch_size_though_none_has_one_sample() -> None:
    """Milliseconds plus a ratio, in absolute value, made the largest batch of each healthy sweep "most anomalous"."""
    run = sweep_of(a_s=0.02, b_s=0.0005, batch_sizes=(8, 16, 32, 64, 128, 256))
    reply = clear(ask_group(OddBatchSize(), run))
    assert reply.evidence[0].value == pytest.approx(0.0, abs=1e-3)


def test_a_batch_size_that_is_faster_than_expected_is_not_odd() -> None:
    step_s = {size: 0.02 + 0.0005 * size for size in (8, 16, 32, 64, 128, 256)}
    step_s[64] *= 0.7
    reply = ask_group(OddBatchSize(), throughput_sweep({size: size / s for size, s in step_s.items()}))
    assert not isinstance(reply, Finding)
    step_s[64] *= 1.3 / 0.7  # and the one that is as much slower is
    finding = found(ask_group(OddBatchSize(), throughput_sweep({size: size / s for size, s in step_s.items()})))
    assert finding.batch_sizes == (64,)


def test_throughput_that_stays_level_over_batch_sizes_is_no_fault() -> None:
    """Samples a second over the batch, against the smallest: perfect saturation was "0.07, poor"."""
    run = throughput_sweep(dict.fromkeys((8, 16, 32, 64, 128), 1000.0), facts={"num_workers": 0}, noise=0.01)
    assert faults(diagnose(run)) == []
    clear(ask_group(PastThePeak(), run))
    group = only_group(run)
    assert group.recommended.batch_size == 8  # the smallest that reaches 95 % of the best


def test_waiting_for_data_is_judged_where_one_would_train() -> None:
    """A share above 30 % was looked for at the smallest batch only."""
    forward = {Phase.FORWARD: 0.010}
    only_small = sweep_of(
        a_s=forward | {Phase.DATA_WAIT: 0.010}, b_s={Phase.FORWARD: 0.001}, batch_sizes=(1, 8, 64, 512)
    )
    only_large = sweep_of(a_s=forward, b_s={Phase.FORWARD: 0.001, Phase.DATA_WAIT: 0.001}, batch_sizes=(1, 8, 64, 512))
    verdicts = [diagnose(run).verdict for run in (only_small, only_large)]
    assert verdicts[1] is not None and verdicts[1].code == "INP001"
    assert verdicts[0] is None or verdicts[0].code != "INP001"


@pytest.mark.parametrize(("total", "full"), [(256, False), (64, False), (17, True)])
def test_memory_is_full_or_not_by_what_the_machine_has(total: int, full: bool) -> None:
    """16 GB resident "may cause swapping" regardless of the machine's memory."""
    reply = ask_trial(
        MemoryPressure(), quantities={"host_memory_peak": 16.5 * GIB, "host_memory_total": float(total * GIB)}
    )
    assert isinstance(reply, Finding) is full


def test_growing_memory_without_retries_or_faults_is_not_why_large_batches_are_slow() -> None:
    """Memory that grew by 50 % was "likely causing throttling or memory swapping"."""
    rates = {8: 515.0, 16: 603.0, 32: 616.0, 64: 583.0, 128: 500.0}
    run = run_of(
        *(
            trial_of(
                forward=size / rate,
                batch_size=size,
                noise=0.005,
                quantities={"host_memory_peak": (1 + size / 16) * GIB, "host_memory_total": 64.0 * GIB},
            )
            for size, rate in rates.items()
        )
    )
    finding = found(ask_group(PastThePeak(), run))
    told = finding.summary.lower()
    assert not any(word in told for word in ("swap", "throttl", "memory", "retr", "page"))


def test_steps_that_scatter_are_no_thermal_throttling() -> None:
    """A coefficient of variation above 0.2 was "system interference or thermal throttling", with no clock read."""
    diagnosis = diagnose(run_of(trial_of(device="cuda:0", forward=0.3, backward=0.6, noise=0.3, steps=200)))
    told = " ".join(one.summary.lower() for one in diagnosis.findings)
    assert "throttl" not in told and "thermal" not in told and "temperature" not in told
    assert "PWR001" in {one.code for one in diagnosis.unchecked}


@pytest.mark.parametrize(("idle", "doubted"), [(0, False), (2, False), (3, True), (4, True)])
def test_time_on_a_devices_stream_is_not_called_work_where_its_queue_ran_empty(idle: int, doubted: bool) -> None:
    """Events around a phase count the gaps inside it, and launch-bound code read as compute-bound elsewhere."""
    columns = {"starved": 0.0, "borders_idle": idle}  # of the six borders of a step
    finding = found(ask_trial(ComputeBound(), device="cuda:0", forward=0.3, backward=0.6, other=0.1, columns=columns))
    assert ("may be waiting for launches" in finding.summary) is doubted
    assert not doubted or f"{round(100 * idle / 6)} % of the borders" in finding.summary


def a_loop(data_wait: float = 0.2, other: float = 0.3, **trial: Any) -> Diagnosis:
    """A training on the CPU of 9 ms in its three phases; times in ms."""
    ms = {"data_wait": data_wait / 1e3, "forward": 0.003, "backward": 0.005, "optimizer": 0.001, "other": other / 1e3}
    known = {"num_workers": 0, "threads": 2, "cpu_count": 2, "optimizer": "SGD", "optimizer_implementation": "fused"}
    return diagnose(run_of(trial_of(**{**ms, "noise": 0.02, "steps": 200, "facts": known, **trial})))


@pytest.mark.parametrize("pause_ms", [8.0, 40.0])
def test_a_pause_between_steps_is_the_verdict_with_its_whole_length(pause_ms: float) -> None:
    """8 ms of Python between steps read as compute-bound, and 40 ms of sleep as a step of 9.9 ms without a fault."""
    diagnosis = a_loop(other=pause_ms)
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "HST006"
    (finding,) = (one for one in diagnosis.findings if one.code == "HST006")
    assert finding.evidence[0].value == pytest.approx(100 * pause_ms / (9.2 + pause_ms), rel=0.02)


def test_a_slow_evaluation_every_ten_steps_is_periodic_work_and_no_wait_for_data() -> None:
    """Fetching the validation's batches read as input-bound; here that is outside of the phases, and returns."""
    seconds = np.where(np.arange(200) % 10 == 9, 0.15, 0.0003)
    columns = {
        "host_data_wait_ns": 2e5,
        "host_forward_ns": 3e6,
        "host_backward_ns": 5e6,
        "host_optimizer_ns": 1e6,
        "wall_ns": 1e9 * seconds + 9.2e6,
    }
    diagnosis = a_loop(columns=columns, without=["measured_wall_s"])
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "STB004"
    assert not [code for code in faults(diagnosis) if code.startswith("INP")]


def test_eight_seconds_of_a_first_step_do_not_dilute_a_slow_loader() -> None:
    """A mean over all steps made 23 % of 73 %."""
    run = run_of(trial_of(data_wait=0.0248, forward=0.003, backward=0.005, optimizer=0.001, other=0.0002, steps=50))
    (result,) = run.results
    table = result.steps[0]
    assert table.columns["warmup"][0]
    late = {
        **table.columns,
        "wall_ns": table.wall_ns.copy(),
        "host_forward_ns": table.columns["host_forward_ns"].copy(),
    }
    late["wall_ns"][0] += 8 * 10**9
    late["host_forward_ns"][0] += 8 * 10**9
    slow_start = dataclasses.replace(result, steps=(StepTable(late),))
    (finding,) = (one for one in diagnose(run_of(slow_start)).findings if one.code == "INP001")
    assert finding.evidence[0].value == pytest.approx(100 * 24.8 / 34.0, abs=0.5)


@pytest.mark.parametrize(("implementation", "advice"), [("for-loop", {"fused", "foreach"}), ("foreach", {"fused"})])
def test_an_update_of_600_tensors_one_by_one_is_advised_a_faster_implementation(
    implementation: str, advice: set[str]
) -> None:
    """Compute-bound, with no word of fused or foreach."""
    known = {"optimizer": "AdamW", "optimizer_implementation": implementation, "optimizer_tensors": 600}
    trial = {
        "forward": 0.003,
        "backward": 0.005,
        "optimizer": 0.020,
        "facts": {"num_workers": 0, "threads": 2, "cpu_count": 2, **known},
        "quantities": {"trainable_parameters": 1e6, "parameters": 1e6, "memory_bandwidth": 2e10},
    }
    diagnosis = diagnose(run_of(trial_of(noise=0.02, **trial)))
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "OPT001"
    (finding,) = (one for one in diagnosis.findings if one.code == "OPT001")
    assert {c["optimizer_implementation"] for c in changes(finding) if "optimizer_implementation" in c} == advice


def test_the_longer_of_forward_and_backward_is_named_first() -> None:
    (finding,) = (one for one in a_loop(other=0.1).findings if one.code == "CMP002")
    assert finding.summary.index("backward") < finding.summary.index("forward")
