"""Pairs of causes whose records look alike: the one that explains the seconds stands first, and the other after it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Finding, Severity
from perf_diagnostics.records import TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.rules.boards import BEGAN_S, bits, sampled

STEPS = 200
EVERY_8TH = np.arange(STEPS) % 8 == 0
HOST = {"num_workers": 0, "threads": 2, "cpu_count": 2, "optimizer": "AdamW", "optimizer_implementation": "foreach"}
GPU = HOST | {
    "cpu_count": 16,
    "num_workers": 4,
    "persistent_workers": True,
    "pin_memory": True,
    "optimizer_implementation": "fused",
}


def cpu(times_ms: dict[str, float], *, thread_ms: float | None = None, **trial: Any) -> TrialResult:
    """A trial on the CPU; its thread computes all the time, or so many ms of a step."""
    step_s = sum(times_ms.values()) / 1e3
    columns = {"thread_cpu_ns": (step_s * 1e3 if thread_ms is None else thread_ms) * 1e6, "gc_ns": 0, "graphs": 0}
    columns["data_wait_cpu_ns"] = 0.05 * times_ms.get("data_wait", 0.0) * 1e6
    quantities = {"memory_bandwidth": 20e9, "trainable_parameters": 2e4, "other_cpu_s": 0.0, "cpu_pressure_s": 0.0}
    return trial_of(
        **{name: ms / 1e3 for name, ms in times_ms.items()},
        steps=STEPS,
        noise=trial.pop("noise", 0.02),
        facts=HOST | trial.pop("facts", {}),
        columns=columns | trial.pop("columns", {}),
        quantities=quantities
        | {"process_cpu_s": 1.9 * step_s * STEPS, "workers_cpu_s": 0.0, "involuntary_switches": 10.0}
        | trial.pop("quantities", {}),
        **trial,
    )


def gpu(times_ms: dict[str, float], *, paced_by_host: bool = False, **trial: Any) -> TrialResult:
    """A trial on a device, in bfloat16; ``paced_by_host``: its queue is always empty."""
    host = {"starved": 1.0, "borders_idle": 6, "host_lead_ns": 1e5} if paced_by_host else {"host_lead_ns": 5e6}
    quantities = {"memory_bandwidth": 2e12, "trainable_parameters": 5e7, "device_memory_total": 80e9}
    return trial_of(
        **{name: ms / 1e3 for name, ms in times_ms.items()},
        device="cuda:0",
        steps=STEPS,
        noise=0.02,
        settings={"precision": "bfloat16"} | trial.pop("settings", {}),
        facts=GPU | trial.pop("facts", {}),
        columns=host | trial.pop("columns", {}),
        quantities=quantities | trial.pop("quantities", {}),
        **trial,
    )


def spread(name: str, per_step_s: float) -> dict[str, float]:
    """A cost a step of the pass that looks at operators, with an interval of 10 %."""
    return {f"{name}_s": per_step_s, f"{name}_low_s": 0.9 * per_step_s, f"{name}_high_s": 1.1 * per_step_s}


def reads(count: float, idle_ms: float) -> dict[str, float]:
    """So many reads of the device's values a step, and the idle time after them."""
    costs = spread("reads_back_idle", idle_ms / 1e3) | spread("waits_idle", idle_ms / 1e3)
    return {"reads_back_per_step": count, "waits_per_step": count} | costs


def told(*trials: TrialResult) -> Diagnosis:
    return diagnose(run_of(*trials))


def faults(diagnosis: Diagnosis) -> list[str]:
    return [finding.code for finding in diagnosis.findings if finding.severity is not Severity.INFO]


def finding(diagnosis: Diagnosis, code: str) -> Finding:
    return next(one for one in diagnosis.findings if one.code == code)


def before(diagnosis: Diagnosis, cause: str, symptom: str) -> bool:
    order = [one.code for one in diagnosis.findings]
    return order.index(cause) < order.index(symptom) and symptom in finding(diagnosis, cause).explains


LOOP = {"forward": 10.0, "backward": 20.0, "optimizer": 2.0}


# -- synchronisation and launches


def test_time_outside_the_phases_is_the_idle_time_after_reads():
    # 6 of 38 ms lie outside of all phases, and the device idles 6 ms a step after its values are read.
    diagnosis = told(gpu(LOOP | {"other": 6.0}, quantities=reads(5, 6.0)))
    assert diagnosis.verdict.code == "XFR005"
    assert before(diagnosis, "XFR005", "HST006")


def test_a_read_after_every_layer_empties_the_queue_and_is_no_proof_of_slow_launches():
    diagnosis = told(gpu(LOOP, paced_by_host=True, quantities=reads(20, 10.0)))
    assert diagnosis.verdict.code == "XFR005"
    launches = finding(diagnosis, "HST001")
    assert launches.severity is Severity.INFO
    assert "in a profiler window" in launches.summary  # what would tell the two apart


def test_one_read_a_step_does_not_explain_a_queue_that_is_always_empty():
    diagnosis = told(gpu(LOOP, paced_by_host=True, quantities=reads(1, 2.0)))
    assert diagnosis.verdict.code == "HST001"


def test_reads_that_are_the_scalers_are_the_optimizers():
    waits = {"optimizer_waits_per_step": 1.0} | spread("optimizer_waits_idle", 0.008)
    slow = gpu(
        LOOP | {"optimizer": 15.0},
        quantities=reads(1, 8.0) | waits,
        settings={"precision": "float16"},
        facts={"optimizer_implementation": "foreach"},
    )
    diagnosis = told(slow)
    assert diagnosis.verdict.code == "OPT003"
    assert all(before(diagnosis, "OPT003", symptom) for symptom in ("OPT001", "XFR005", "HST002"))


def test_blocking_launches_are_why_the_host_sets_the_pace():
    diagnosis = told(gpu(LOOP, paced_by_host=True, facts={"cuda_launch_blocking": True, "anomaly_detection": False}))
    assert diagnosis.verdict.code == "HST008"
    assert before(diagnosis, "HST008", "HST001")


def test_a_cache_that_is_emptied_now_and_then_is_no_periodic_saving():
    # Every 20th step, one in twenty, takes 70 ms longer in forward and asks the driver for memory again.
    emptied = np.arange(STEPS) % 20 == 7
    forward = np.where(emptied, 80e6, 10e6)
    columns = {
        "device_forward_ns": forward,
        "wall_ns": forward + 22e6,
        "device_allocs": 40.0 + np.cumsum(emptied),
        "alloc_retries": 0.0,
    }
    diagnosis = told(gpu(LOOP, columns=columns))
    assert diagnosis.verdict.code == "HST003"
    assert before(diagnosis, "HST003", "STB004")
    assert "in the forward pass" in finding(diagnosis, "STB004").remedies[0].says


# -- processors


def test_launches_are_slow_because_nine_threads_share_two_cores():
    # The thread that launches ran for 10 of 32 ms.
    shared = {"cpu_count": 2, "num_workers": 8}
    busy = {"involuntary_switches": 3000 * 6.4, "workers_cpu_s": 12.0, "process_cpu_s": 2.0, "measured_wall_s": 6.4}
    diagnosis = told(gpu(LOOP, paced_by_host=True, facts=shared, quantities=busy, columns={"thread_cpu_ns": 10e6}))
    assert diagnosis.verdict.code == "CPU001"
    assert before(diagnosis, "CPU001", "HST001")
    launching_alone = told(gpu(LOOP, paced_by_host=True, columns={"thread_cpu_ns": 31e6}))
    assert launching_alone.verdict.code == "HST001"


def test_a_small_model_on_sixteen_threads_suffers_from_the_threads():
    tiny = {"forward": 0.5, "backward": 1.0, "optimizer": 0.8}
    crowd = {"threads": 16, "optimizer_tensors": 120}
    diagnosis = told(cpu(tiny, thread_ms=0.7, facts=crowd, quantities={"involuntary_switches": 5000 * 0.46}))
    assert diagnosis.verdict.code == "CPU001"
    assert before(diagnosis, "CPU001", "HST010")
    assert before(diagnosis, "CPU001", "OPT001")


def test_threads_that_hold_each_other_up_may_look_like_steps_that_grow():
    forward_ns = 10e6 * (1 + 1.5 * np.linspace(0, 1, STEPS))
    columns = {"host_forward_ns": forward_ns, "wall_ns": forward_ns + 22e6}
    crowd = {"threads": 24, "cpu_count": 2}
    growing = told(cpu(LOOP, columns=columns))
    assert growing.verdict.code == "STB006"
    lost = {"involuntary_switches": 1640 * 0.04 * STEPS}
    diagnosis = told(cpu(LOOP, thread_ms=15.0, facts=crowd, columns=columns, quantities=lost))
    assert diagnosis.verdict.code == "CPU001"
    assert before(diagnosis, "CPU001", "STB006")


def test_a_quota_that_runs_out_slows_the_optimizer_too():
    held = {"cpu_periods": 106, "cpu_throttled_periods": 90, "cpu_throttled_s": 20.0, "trainable_parameters": 5e6}
    diagnosis = told(cpu(LOOP | {"optimizer": 18.0}, facts={"threads": 4, "cpu_count": 8}, quantities=held))
    assert diagnosis.verdict.code == "CPU003"
    assert before(diagnosis, "CPU003", "OPT001")


def test_a_hot_device_that_waits_for_its_host_gains_nothing_by_a_higher_clock():
    board = {
        "series": (sampled("gpu_throttle_reasons", bits((0x20, 0.5))), sampled("gpu_sm_clock", 1300.0, outside=1980.0)),
        "columns": {"start_ns": (np.arange(STEPS) * 350_000_000).tolist()},
        "quantities": {"steps_began_s": BEGAN_S},
    }
    assert finding(told(gpu(LOOP, **board)), "PWR001").recoverable is not None
    waiting = told(gpu(LOOP, paced_by_host=True, **board | {"columns": {**board["columns"]} | {"starved": 1.0}}))
    assert finding(waiting, "PWR001").recoverable is None


# -- input


@pytest.mark.parametrize("make", [cpu, gpu])
def test_behind_workers_that_do_not_keep_up_a_faster_optimizer_wins_nothing(make):
    # Each step waits 30 ms for workers that compute all the time: a step without optimizer would wait 60 ms.
    workers = {"num_workers": 2, "cpu_count": 4, "persistent_workers": True, "optimizer_implementation": "single"}
    computing = {"workers_cpu_s": 2 * 0.09 * STEPS * 0.95, "memory_bandwidth": 20e9, "trainable_parameters": 2e4}
    slow = make(LOOP | {"data_wait": 30.0, "optimizer": 30.0}, facts=workers, quantities=computing)
    diagnosis = told(slow)
    assert diagnosis.verdict.code == "INP001"
    optimizer = finding(diagnosis, "OPT001")
    assert optimizer.recoverable.low == 0.0
    assert "the loader does not keep up" in optimizer.summary


def test_without_workers_the_loop_loads_itself_and_each_fix_wins_its_own():
    slow = cpu(LOOP | {"data_wait": 10.0, "optimizer": 30.0}, facts={"optimizer_implementation": "single"})
    assert finding(told(slow), "OPT001").recoverable.low > 0.3


def test_waits_in_a_few_steps_leave_most_of_the_gain():
    # One step in four waits: three quarters of what the optimizer costs are to be won.
    wait_ns = np.where(np.arange(STEPS) % 4 == 0, 60e6, 0.0)
    workers = {"num_workers": 3, "cpu_count": 8, "persistent_workers": True, "optimizer_implementation": "single"}
    step_ns = wait_ns + 60e6
    columns = {"host_data_wait_ns": wait_ns, "wall_ns": step_ns, "thread_cpu_ns": 60e6}
    alone = cpu(LOOP | {"optimizer": 30.0}, noise=0.0, facts=workers, columns={"thread_cpu_ns": 60e6})
    waiting = cpu(LOOP | {"optimizer": 30.0}, noise=0.0, facts=workers, columns=columns)
    share = 60 / 75  # a mean step takes 75 ms instead of 60
    expected = 0.75 * share * finding(told(alone), "OPT001").recoverable.low
    assert finding(told(waiting), "OPT001").recoverable.low == pytest.approx(expected, rel=0.05)


# -- memory


def test_steps_that_free_and_allocate_are_symptoms_of_a_full_device():
    columns = {
        "device_forward_ns": np.where(EVERY_8TH, 30e6, 10e6),
        "wall_ns": np.where(EVERY_8TH, 52e6, 32e6),
        "alloc_retries": np.cumsum(EVERY_8TH).astype(float),
        "device_allocs": 40.0 + np.cumsum(EVERY_8TH),
    }
    full = {"device_memory_peak_reserved": 78.5e9, "device_memory_peak_allocated": 76e9, "alloc_retries": 25.0}
    diagnosis = told(gpu(LOOP, columns=columns, quantities=full))
    assert faults(diagnosis)[:3] == ["MEM001", "MEM003", "HST003"]
    torn = full | {"device_memory_peak_allocated": 40e9, "device_memory_inactive_split": 30e9}
    diagnosis = told(gpu(LOOP, columns=columns, quantities=torn))
    assert faults(diagnosis)[:4] == ["MEM002", "MEM001", "MEM003", "HST003"]


def test_a_leak_is_why_memory_is_full():
    columns = {"allocated_bytes": 10e9 + 0.33e9 * np.arange(STEPS), "reserved_bytes": 12e9 + 0.33e9 * np.arange(STEPS)}
    full = {"device_memory_peak_reserved": 78e9, "device_memory_peak_allocated": 76e9, "alloc_retries": 3.0}
    diagnosis = told(gpu(LOOP, columns=columns, quantities=full))
    assert diagnosis.verdict.code == "MEM004"
    assert before(diagnosis, "MEM004", "MEM001")


def test_pages_read_back_from_disk_cost_more_than_one_phase_of_what_they_slow():
    # 200 pages a step at 0.1 ms each are 20 of 85 ms; the wait for data, a part of which they are, 10.
    pages = {"major_faults": 200.0 * STEPS, "swapped_bytes": 2e9, "host_memory_total": 16e9, "host_memory_peak": 15.8e9}
    times = {"data_wait": 10.0, "forward": 20.0, "backward": 40.0, "optimizer": 15.0}
    diagnosis = told(cpu(times, quantities=pages | {"trainable_parameters": 5e6}))
    assert [code for code in faults(diagnosis) if code != "INP001"][:2] == ["MEM001", "MEM006"]
    assert diagnosis.verdict.code == "MEM001"


# -- the optimizer


@pytest.mark.parametrize(("touched", "first"), [(2_000, "OPT007"), (100_000, "OPT001")])
def test_a_table_that_is_hardly_touched_is_why_the_update_takes_long(touched: int, first: str):
    """40 of 100 ms are the update, nine tenths of it the table's; where all of its rows were looked up, it is none."""
    table = {"embedding_gradient_numbers": 9_000_000, "embedding_rows": 100_000, "embedding_rows_touched": touched}
    times = {"forward": 30.0, "backward": 30.0, "optimizer": 40.0}
    diagnosis = told(cpu(times, facts=table | {"gradients_used": 10_000_000}, quantities={"trainable_parameters": 1e7}))
    assert diagnosis.verdict.code == first
    if first == "OPT007":
        assert before(diagnosis, "OPT007", "OPT001")


# -- ranks


def test_an_exchange_for_each_micro_batch_is_the_verdict_though_few_of_them_were_timed():
    def rank(seed: int) -> TrialResult:
        took = np.full(STEPS, np.nan)
        took[[5, 6]] = 15e6
        hidden = np.where(np.isnan(took), np.nan, 1e6)
        times = {"forward": 30.0, "backward": 100.0, "optimizer": 3.0}
        return cpu(times, seed=seed, columns={"exchange_ns": took, "exchange_hidden_ns": hidden})

    first, second = rank(1), rank(2)
    counted = {"accumulation_steps": 4, "exchanges_per_step_least": 4.0, "exchanges_per_step_most": 4.0}
    both = dataclasses.replace(
        first,
        steps=(*first.steps, *second.steps),
        facts={**first.facts, "ranks": 2, "data_parallel": "DistributedDataParallel", **counted},
    )
    # Of 4 x 14 ms that are exposed in a step of 133 ms, three quarters are for nothing.
    diagnosis = told(both)
    assert diagnosis.verdict.code == "COM009"
    once = dataclasses.replace(
        both, facts={**both.facts, "exchanges_per_step_least": 1.0, "exchanges_per_step_most": 1.0}
    )
    assert "COM009" not in {one.code for one in told(once).findings}
