"""The window under the profiler: recorded after the timed steps, only where it was asked for, whole or not at all."""

from __future__ import annotations

import gzip
import socket
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import torch

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.measure import profiler_window
from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import Environment, Length, Outcome, Settings, Trial
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TRACE, TrialFolder
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.afterwards.deep import DeepWindow
from perf_diagnostics.trials.launch.launcher import ForkServer
from perf_diagnostics.trials.measurement import Measurement, measure
from perf_diagnostics.trials.sweep import Sweep
from perf_diagnostics.workloads import registry

pytestmark = pytest.mark.usefixtures("small_ceilings", "one_thread")

TRIAL = Trial(
    workload="mlp",
    settings=Settings(batch_size=4),
    options={"width": 16, "depth": 1, "samples": 64},
    length=Length.exactly(4, warmup_steps=1),
)


def measured(directory: Path | None, *, deep: bool = True, trial: Trial = TRIAL) -> Measurement:
    workload = registry.find(trial.workload)
    return measure(
        trial,
        lambda settings: workload.build(settings, options=trial.options, seed=0),
        directory=directory,
        deep=deep,
    )


def test_five_steps_with_their_phases_are_recorded(tmp_path: Path) -> None:
    result = measured(tmp_path).result
    assert result.outcome is Outcome.COMPLETED and result.gap("deep_window") is None
    trace = read_trace(tmp_path / TRACE)
    assert sum(name.startswith("ProfilerStep#") for name in trace.names) == profiler_window.MOST_STEPS
    assert {"data_wait", "forward", "backward", "optimizer"} <= set(trace.names)
    assert [path.name for path in tmp_path.iterdir()] == [TRACE]  # no temporary file is left
    text = gzip.decompress((tmp_path / TRACE).read_bytes()).decode()
    assert str(tmp_path) not in text and f'"{socket.gethostname()}"' not in text
    assert len(result.steps[0]) == 5  # 1 + 4: the window's steps are none of the trial's


def test_it_is_recorded_only_where_it_was_asked_for(tmp_path: Path) -> None:
    result = measured(tmp_path, deep=False).result
    assert not list(tmp_path.iterdir()) and result.gap("deep_window") is None


def test_without_a_folder_there_is_a_gap_and_the_trial_stands(tmp_path: Path) -> None:
    result = measured(None).result
    assert result.outcome is Outcome.COMPLETED
    assert "no folder" in result.gap("deep_window").why


def test_a_trace_that_is_too_large_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiler_window, "LARGEST_BYTES", 10)
    result = measured(tmp_path).result
    assert "more than" in result.gap("deep_window").why
    assert not list(tmp_path.iterdir())


def test_a_fault_in_the_window_leaves_the_trial_completed(tmp_path: Path) -> None:
    # 1 warm-up and 4 timed batches, and the crash comes with the sixth: the window's first.
    faulty = replace(TRIAL, workload="faulty", options={**TRIAL.options, "crash_after": 5})
    result = measured(tmp_path, trial=faulty).result
    assert result.outcome is Outcome.COMPLETED
    assert "a crash after 5 batches" in result.gap("deep_window").why
    assert not list(tmp_path.iterdir())


def test_what_takes_too_long_is_refused() -> None:
    def timed(step_s: float, left_s: float | None) -> Timed:
        return Timed(
            trial=TRIAL,
            training=None,
            device=torch.device("cpu"),
            step_s=step_s,
            left_s=lambda: left_s,
            observations=Observations(),
            directory=Path("unused"),
            deep=True,
        )

    # 1 + 2 + 3 steps of 10 s, twice as long under the profiler: 120 s, more than the minute that is always granted.
    with pytest.raises(Unreadable, match="about 120 s"):
        list(DeepWindow()(timed(10.0, 100.0)))
    with pytest.raises(AttributeError):  # there is time, so it goes on to the training, of which there is none here
        list(DeepWindow()(timed(10.0, 121.0)))


@pytest.mark.slow
def test_a_sweep_records_windows_that_its_diagnosis_finds(tmp_path: Path) -> None:
    sentinel = replace(TRIAL, role="sentinel")
    folder = RunFolder.create(
        tmp_path,
        "run",
        planned=(TRIAL, sentinel),
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    launch = ForkServer(("tests.trials_with_small_ceilings",))
    try:
        end = Sweep(folder, launch=launch, deep=True).run()
    finally:
        launch.close()
    assert not end.failed
    # The same trial with and without a window, so that the two can be compared; a sentinel only repeats one.
    assert list(folder.traces()) == [TRIAL.id]
    diagnosis = diagnose(folder.read(), traces=folder.traces())
    assert diagnosis.waterfall.scope == "mlp on cpu, batch 4"
    assert sum(ns for _, ns in diagnosis.waterfall.parts) == diagnosis.waterfall.wall_ns
    assert diagnosis.waterfall.slowdown > 0
    # A new attempt at the trial does not inherit the window of the old one.
    TrialFolder(folder.trial_directory(TRIAL)).begin(TRIAL, now=datetime.now(UTC), pid=1)
    assert not folder.traces()
