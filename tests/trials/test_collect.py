"""What the supervisor adds to a result: energy gross and net over the right windows, and peaks of the steps only."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.measure.boards.boards import series_source
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Environment, Outcome, Quantity, Series, StepTable, TrialResult
from perf_diagnostics.store.trial_folder import TrialFolder
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.collect import Watched, Windows, collect, with_readings
from perf_diagnostics.trials.launch.supervise import Ending
from perf_diagnostics.trials.measurement import Measurement
from perf_diagnostics.trials.worker import write_measured

GPU = "GPU-aaaa"


def s(seconds: float) -> int:
    return round(seconds * 1e9)


def power(watts: list[tuple[float, float]], *, until_s: float) -> Series:
    """Power that holds each value from its second on, read every 50 ms."""
    times = np.arange(0, until_s, 0.05)
    starts = np.array([start for start, _ in watts])
    values = np.array([value for _, value in watts])[np.searchsorted(starts, times, side="right") - 1]
    return Series("gpu_power", "W", series_source(GPU), np.round(times * 1e9).astype(np.int64), values)


def test_the_devices_join_what_the_trials_own_process_said_of_where_it_ran() -> None:
    here = Environment(host={"cpu_model": "EPYC"})
    gpu = {"name": "cuda:0", "driver": "550.54", "power_limit_w": 300.0}
    watched = Watched(
        ending=Ending(0),
        readings=((), ()),
        observations=Observations(),
        began_ns=0,
        started_at=datetime.now(UTC),
        oom_kills=None,
        devices=(gpu,),
    )
    found = with_readings(dataclasses.replace(trial_of(), environment=here), watched, Windows()).environment
    assert found.devices == (gpu,) and found.host == here.host
    nobody = dataclasses.replace(watched, devices=())
    assert with_readings(trial_of(), nobody, Windows()).environment.devices == ()


def collected(windows: Windows, *series: Series, device: str = "cuda:0", **quantities: float) -> TrialResult:
    numbers = tuple(Quantity(name, value, "bytes", "test") for name, value in quantities.items())
    watched = Watched(
        ending=Ending(0),
        readings=(series, numbers),
        observations=Observations(),
        began_ns=0,
        started_at=datetime.now(UTC),
        oom_kills=None,
    )
    return with_readings(trial_of(device=device), watched, windows)


def test_net_energy_is_gross_less_the_idle_power_measured_in_the_same_trial() -> None:
    # 70 W at rest from 1 to 6 s, 300 W in the steps from 8 to 18 s
    draw = power([(0, 90), (1, 70), (7, 300), (19, 90)], until_s=20)
    result = collected(Windows((s(8), s(18)), 40, (s(1), s(6.2))), draw)
    assert result.value("device_idle_power") == pytest.approx(70, rel=0.01)
    assert result.value("energy_device") == pytest.approx(3000, rel=0.01)
    assert result.value("energy_device_net") == pytest.approx(3000 - 700, rel=0.01)
    assert result.value("energy_device_steps") == 40


def test_without_a_rest_the_energy_is_gross_only() -> None:
    result = collected(Windows((s(8), s(18)), 40), power([(0, 300)], until_s=20))
    assert result.value("energy_device") == pytest.approx(3000, rel=0.01)
    assert result.value("energy_device_net") is None
    assert result.value("device_idle_power") is None


def test_a_rest_in_which_the_card_was_lost_is_a_gap_and_the_gross_energy_is_judged_alone() -> None:
    result = collected(Windows((s(8), s(18)), 40, (s(1), s(6.2))), power([(0, 300)], until_s=3))
    assert result.value("energy_device") is None
    assert {gap.signal for gap in result.gaps} >= {"energy_device", "device_idle_power"}


def test_a_counter_that_contradicts_the_power_leaves_a_warning_beside_the_number() -> None:
    times = np.arange(0, 20, 0.05)
    joules = 300 * np.floor(times / 0.1) * 0.1
    counter = Series("gpu_energy", "J", series_source(GPU), np.round(times * 1e9).astype(np.int64), joules)
    result = collected(Windows((s(8), s(18)), 40), counter, power([(0, 150)], until_s=20))
    assert result.value("energy_device") == pytest.approx(3000, rel=0.01)
    gap = result.gap("energy_cross_check")
    assert gap is not None and "50% apart" in gap.why


def test_a_trial_on_the_cpu_takes_no_boards_energy() -> None:
    result = collected(Windows((s(8), s(18)), 40), power([(0, 300)], until_s=20), device="cpu")
    assert result.value("energy_device") is None
    assert result.gap("energy_device") is None


def memory(*gigabytes: float) -> Series:
    times = np.arange(len(gigabytes)) * 1_000_000_000
    return Series("host_memory", "bytes", "psutil rss", times, np.array(gigabytes) * 1e9)


def test_memory_that_a_pass_after_the_steps_took_is_not_the_trials_peak() -> None:
    # one reading a second; the steps end at 2.5 s, and what counts operations then takes 5 GB
    result = collected(Windows((s(1), s(2.5)), 40), memory(1, 2, 1.5, 5), device="cpu", host_tree_memory_peak=5e9)
    assert result.value("host_tree_memory_peak") == 2e9


def test_a_trial_that_never_came_to_its_steps_keeps_the_peak_it_had() -> None:
    result = collected(Windows(), memory(1, 2, 5), device="cpu", host_tree_memory_peak=5e9)
    assert result.value("host_tree_memory_peak") == 5e9


def test_the_steps_begin_on_the_clock_of_the_series() -> None:
    """Sampling began at 100 s, measuring at 103 s; of 60 steps of 0.7 s two were warm-up after all."""
    result = trial_of(forward=0.7, steps=60, warmup_steps=5)
    table = result.steps[0]
    start = np.concatenate([[0, 5, 9, 13, 17], 21 + 0.7 * np.arange(60)]) * 1e9
    steady = dataclasses.replace(
        result, steps=(StepTable({**table.columns, "start_ns": start, "warmup": np.arange(65) < 7}),)
    )
    watched = Watched(
        ending=Ending(0),
        readings=((), ()),
        observations=Observations(),
        began_ns=s(100),
        started_at=datetime.now(UTC),
        oom_kills=None,
    )
    windows = Windows((s(103), s(145)), 60)
    assert with_readings(steady, watched, windows).value("steps_began_s") == pytest.approx(3 + 2 * 0.7)
    assert with_readings(result, watched, windows).value("steps_began_s") is None


def cut_off(tmp_path: Path, outcome: Outcome) -> TrialResult:
    """A trial whose process was killed at its deadline, having written that its steps ended so."""
    written = dataclasses.replace(trial_of(steps=7, warmup_steps=0), outcome=outcome)
    folder = TrialFolder(tmp_path / written.trial.id)
    folder.begin(written.trial, now=datetime.now(UTC), pid=1)
    folder.write_part(written.steps[0])
    write_measured(folder.path, Measurement(written))
    watched = Watched(
        ending=Ending(-9, timed_out=True, killed=True),
        readings=((), ()),
        observations=Observations(),
        began_ns=0,
        started_at=datetime.now(UTC),
        oom_kills=None,
    )
    return collect(written.trial, folder, watched)


def test_a_deadline_in_the_passes_after_the_steps_takes_nothing_from_the_trial(tmp_path: Path) -> None:
    result = cut_off(tmp_path, Outcome.COMPLETED)
    assert (result.outcome, len(result.steps[0])) == (Outcome.COMPLETED, 7)
    gap = result.gap("afterwards")
    assert gap is not None and "time was over" in gap.why


def test_a_deadline_within_the_steps_is_a_timeout(tmp_path: Path) -> None:
    result = cut_off(tmp_path, Outcome.INTERRUPTED)
    assert (result.outcome, len(result.steps[0])) == (Outcome.TIMEOUT, 7)
    assert result.gap("afterwards") is None


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (1, "exited with code 1 without a result; it raised a.Error: no compiler"),
        (2, "its last line was: Set VERBOSE=1."),
    ],
)
def test_a_trial_without_a_result_says_what_it_raised(code: int, says: str, tmp_path: Path) -> None:
    printed = (
        "old.Error: 1\n\nTraceback (most recent call last):\n  File\n    ^^\na.Error: no compiler\n\nSet VERBOSE=1.\n"
    )
    (tmp_path / "output.txt").write_text(printed)
    watched = Watched(
        ending=Ending(code),
        readings=((), ()),
        observations=Observations(),
        began_ns=0,
        started_at=datetime.now(UTC),
        oom_kills=None,
    )
    result = collect(trial_of().trial, TrialFolder(tmp_path), watched)
    assert result.outcome is Outcome.CRASHED and result.reason.endswith(says)
