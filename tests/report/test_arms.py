"""The numbers of trials and the lines they form."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.records import Outcome, Phase, Quantity, Run, Settings, StepTable, Trial, TrialResult
from perf_diagnostics.report.arms import OUTCOME_WORDS, arms_of, energy, figures_of, largest, share
from tests.report.conftest import GIB, cpu_result, gpu_result


def result_of(wall_ms: list[float], *, samples: int = 8, warmup: int = 1, **more: object) -> TrialResult:
    """A CPU trial of whole milliseconds whose forward takes half of each step."""
    wall = [int(ms * 1e6) for ms in wall_ms]
    table = StepTable(
        {
            "wall_ns": wall,
            "samples": [samples] * len(wall),
            "warmup": [i < warmup for i in range(len(wall))],
            "host_forward_ns": [ns // 2 for ns in wall],
        }
    )
    fields = {"steps": (table,), **more}
    trial = Trial(workload="w", settings=Settings(batch_size=samples))
    return TrialResult(trial=trial, outcome=Outcome.COMPLETED, **fields)  # type: ignore[arg-type]


def run_of(*results: TrialResult) -> Run:
    planned = tuple(result.trial for result in results)
    return Run(name="r", created_at="", tool_version="0", planned=planned, results=results)


def test_throughput_is_all_samples_over_all_time_without_the_warmup():
    figures = figures_of(result_of([900, 100, 300]))
    assert figures.steps == 2
    assert figures.warmup_steps == 1
    assert figures.throughput is not None
    assert figures.throughput.value == pytest.approx(16 / 0.4)  # not the mean of 80 and 26.7
    assert figures.step_s is not None
    assert figures.step_s.value == pytest.approx(0.2)


def test_a_phase_nobody_marked_is_absent_and_other_is_the_rest():
    figures = figures_of(result_of([100, 100, 100]))
    assert figures.phase_s[Phase.FORWARD] == pytest.approx(0.05)
    assert figures.share[Phase.OTHER].value == pytest.approx(0.5)
    assert Phase.BACKWARD not in figures.phase_s


def test_a_trial_without_steps_has_no_numbers():
    figures = figures_of(dataclasses.replace(result_of([1]), steps=(), outcome=Outcome.CRASHED))
    assert (figures.steps, figures.throughput, figures.step_s, dict(figures.share)) == (0, None, None, {})


def test_energy_per_sample_is_over_the_counters_own_window():
    quantities = (Quantity("energy_device", 120.0, "J", "NVML"), Quantity("energy_device_steps", 3, "1", "probe"))
    figures = figures_of(result_of([1, 100, 100], quantities=quantities))
    assert figures.energy_per_sample_j == pytest.approx(120 / (3 * 8))


def test_energy_of_one_board_is_over_the_samples_of_its_own_rank():
    quantities = (Quantity("energy_device", 120.0, "J", "NVML"), Quantity("energy_device_steps", 3, "1", "probe"))
    alone = result_of([1, 100, 100], quantities=quantities)
    figures = figures_of(dataclasses.replace(alone, steps=alone.steps * 4))
    assert figures.energy_per_sample_j == pytest.approx(120 / (3 * 8))


def test_energy_of_all_boards_is_over_the_samples_of_all_ranks():
    quantities = (
        Quantity("energy_device", 480.0, "J", "NVML, 4 boards"),
        Quantity("energy_device_steps", 3, "1", "NVML"),
        Quantity("energy_device_samples", 3 * 8 * 4, "1", "NVML"),
        Quantity("energy_device_boards", 4, "1", "NVML"),
    )
    alone = result_of([1, 100, 100], quantities=quantities)
    figures = figures_of(dataclasses.replace(alone, steps=alone.steps * 4))
    assert figures.energy_per_sample_j == pytest.approx(480 / 96)


def test_energy_that_was_not_read_is_absent_and_a_measured_zero_is_zero():
    assert figures_of(result_of([1, 100])).energy_per_sample_j is None
    zero = (Quantity("energy_device", 0.0, "J", "NVML"), Quantity("energy_device_steps", 3, "1", "probe"))
    assert figures_of(result_of([1, 100], quantities=zero)).energy_per_sample_j == 0.0
    window = (Quantity("energy_device", 5.0, "J", "NVML"), Quantity("energy_device_steps", 0, "1", "probe"))
    assert figures_of(result_of([1, 100], quantities=window)).energy_per_sample_j is None


def test_the_device_clock_is_used_where_the_stream_was_timed():
    assert figures_of(gpu_result(8)).clock == "device"
    assert figures_of(cpu_result(8)).clock == "host"


def test_lines_are_named_by_what_tells_them_apart(run):
    assert [arm.label for arm in arms_of(run)] == ["cuda:0", "cpu"]  # the fastest accelerator's first
    base = cpu_result(8)
    trials = [
        dataclasses.replace(base, trial=dataclasses.replace(base.trial, settings=base.trial.settings.replace(**change)))
        for change in ({}, {"num_workers": 2}, {"precision": "bfloat16"})
    ]
    labels = {arm.label for arm in arms_of(run_of(*trials))}
    assert labels == {
        "cpu float32 num_workers=default",
        "cpu float32 num_workers=2",
        "cpu bfloat16 num_workers=default",
    }


def test_repeats_of_one_setting_are_one_point():
    base = cpu_result(8)
    again = dataclasses.replace(base, trial=dataclasses.replace(base.trial, repeat=1))
    (arm,) = arms_of(run_of(base, again))
    assert len(arm.points) == 1
    assert len(arm.results) == 2


def test_the_largest_memory_of_the_repeats_counts_and_zero_is_not_absent():
    none, zero = result_of([1, 100]), result_of([1, 100], quantities=(Quantity("host_memory_peak", 0, "bytes", "x"),))
    (arm,) = arms_of(run_of(none))
    assert largest(arm.points[0], "host_memory_peak") is None
    (arm,) = arms_of(run_of(zero))
    assert largest(arm.points[0], "host_memory_peak") == 0


def test_a_line_knows_why_a_size_has_no_values(run):
    cpu = next(arm for arm in arms_of(run) if arm.label == "cpu")
    assert cpu.loss(256) == "out of memory"
    assert cpu.loss(512) == "skipped, too large"
    assert cpu.loss(32) == ""
    assert cpu.sizes == (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
    assert set(OUTCOME_WORDS) == set(Outcome)


def test_values_that_are_there_are_the_fixtures(run):
    gpu = next(arm for arm in arms_of(run) if arm.label == "cuda:0")
    point = next(p for p in gpu.points if p.batch_size == 32)
    assert energy(point) == pytest.approx((38.0 + 4.1 * 32) * 0.2 / 32)
    assert largest(point, "device_memory_peak_allocated") == pytest.approx((1.1 + 0.052 * 32) * GIB)
    assert sum(share(point, phase) or 0 for phase in Phase) == pytest.approx(1, abs=1e-6)
