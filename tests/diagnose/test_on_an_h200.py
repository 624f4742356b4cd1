"""What the rules make of real trainings on a GPU: runs of tests/planted/scripts/on_a_gpu.py, as they were recorded.

One NVIDIA H200, in a virtual machine with 16 cores, torch 2.11.0+cu130, 2026-11-27. What names the machine was taken
out, and the command is the one that a user would give (a test's server gave it). The script has changed since: but for
``tiny-steps``, ``float32``, ``float64`` and ``pageable-batch`` its batches have more rows now, and its layers begin
otherwise. What crosses between host and device was not looked for yet.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Diagnosis, Family, Finding, Severity
from perf_diagnostics.records import ALL_PHASES, TrialResult
from perf_diagnostics.store.run_folder import RunFolder

RUNS = Path(__file__).parent / "on_an_h200"
NAMES = sorted(path.name for path in RUNS.iterdir())


@cache
def recorded(name: str) -> tuple[TrialResult, Diagnosis]:
    run = RunFolder.open(RUNS / name).read()
    (result,) = run.results
    return result, diagnose(run)


def finding(name: str, code: str) -> Finding:
    return next(one for one in recorded(name)[1].findings if one.code == code)


def alarms(name: str) -> set[str]:
    """What warns of something else than the experiment."""
    found = recorded(name)[1].findings
    return {one.code for one in found if one.severity is not Severity.INFO and one.family is not Family.EXPERIMENT}


@pytest.mark.parametrize("name", NAMES)
def test_the_devices_phases_sum_up_to_the_step(name: str) -> None:
    table = recorded(name)[0].steps[0].steady
    phases_ns = sum(ns for phase in ALL_PHASES if (ns := table.device_ns(phase)) is not None)
    assert len(table) >= 20
    assert phases_ns == pytest.approx(table.wall_ns, abs=len(ALL_PHASES))
    assert abs(recorded(name)[0].value("clock_drift") or 0.0) < 1e-3


@pytest.mark.parametrize("name", ["balanced", "small-pageable-batch"])
def test_of_what_is_healthy_nothing_warns(name: str) -> None:
    assert alarms(name) == set()


@pytest.mark.parametrize("name", ["tiny-steps", "masks-by-index"])
def test_what_the_host_holds_up_is_no_work_of_the_devices(name: str) -> None:
    """Its queue was empty at 64 % of the borders only, for AdamW's one kernel of a millisecond was under way."""
    verdict = recorded(name)[1].verdict
    assert verdict is not None and verdict.code == "HST001"
    assert "CMP002" not in {one.code for one in recorded(name)[1].findings}


def test_of_a_second_there_are_too_few_samples_to_tell_and_the_finding_says_what_is_open() -> None:
    """It waits for the device after each layer."""
    assert alarms("waits-each-layer") == set()
    assert "part of this time may be waiting for launches" in finding("waits-each-layer", "CMP002").summary


def test_products_in_float32_ask_for_less_precision_and_the_maker_says_how_much_it_may_be() -> None:
    verdict = recorded("float32")[1].verdict
    assert verdict is not None and verdict.code == "CMP003"
    assert alarms("float32") == {"CMP003", "CMP007"}
    # 989 and 67 TFLOP/s by NVIDIA's sheet: of 96 % of the step a fifteenth would be left.
    recoverable = finding("float32", "CMP003").recoverable
    assert recoverable is not None and recoverable.high == pytest.approx(0.96 * (1 - 67 / 989), abs=0.01)


def test_products_in_float64_are_told_and_the_boards_power_limit_is_no_fault() -> None:
    assert alarms("float64") == {"CMP016"}
    assert finding("float64", "PWR002").severity is Severity.INFO


def test_large_pageable_copies_of_a_loop_without_a_loader_lay_outside_of_the_phases() -> None:
    """As it was recorded: a copy that no loader's batch went before was no transfer yet."""
    assert alarms("pageable-batch") == {"HST006"}


def test_the_driver_saw_a_kernel_for_as_much_of_the_time_as_there_was_work() -> None:
    """Products of 24 layers in float32 keep the device busy; of 500 small kernels it does 7 ms' worth in no time."""
    busy = {name: recorded(name)[0].series_named("gpu_utilization") for name in ("float32", "tiny-steps")}
    middle = {name: float(np.median(series.values)) for name, series in busy.items() if series is not None}
    assert middle["float32"] == 100 and middle["tiny-steps"] < 25
