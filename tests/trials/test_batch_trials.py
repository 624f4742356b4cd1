"""Attempts as trials: what an ending says about a size, what the host would not hold, and a search on disk."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from perf_diagnostics.cli.largest_batch import answer
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.records import Environment, Json, Outcome, Settings, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials import batch_trials
from perf_diagnostics.trials.batch_trials import (
    LENGTH,
    BatchTrials,
    HostRoom,
    judged,
    predicted_peak,
    with_longest_sequences,
)
from perf_diagnostics.trials.largest_batch import Bounds, Fit, search
from perf_diagnostics.trials.launch.launcher import launcher
from perf_diagnostics.workloads import registry

GB = 1e9


def fit_of(*, smaller_fitted: bool = True, **trial: Any) -> Fit:
    return judged(trial_of(**trial), smaller_fitted=smaller_fitted).fit


@pytest.mark.parametrize(
    ("outcome", "fit"),
    [
        (Outcome.OUT_OF_MEMORY_DEVICE, Fit.TOO_LARGE),
        (Outcome.OUT_OF_MEMORY_HOST, Fit.TOO_LARGE),
        (Outcome.CRASHED, Fit.FAILED),
        (Outcome.NAN_LOSS, Fit.FAILED),
        (Outcome.TIMEOUT, Fit.OUT_OF_TIME),
        (Outcome.SKIPPED_OVER_TIME_BUDGET, Fit.OUT_OF_TIME),
        (Outcome.INTERRUPTED, Fit.INTERRUPTED),
    ],
)
def test_every_ending_says_something_else(outcome: Outcome, fit: Fit) -> None:
    assert fit_of(outcome=outcome, reason="why") is fit


def test_settings_that_are_refused_are_an_error_unless_smaller_batches_ran() -> None:
    assert fit_of(outcome=Outcome.INVALID_SETTINGS, smaller_fitted=False) is Fit.FAILED
    assert fit_of(outcome=Outcome.INVALID_SETTINGS, smaller_fitted=True) is Fit.TOO_LARGE
    refused = {one: judged(trial_of(outcome=one), smaller_fitted=True).refused for one in Outcome}
    assert refused[Outcome.INVALID_SETTINGS] and not refused[Outcome.OUT_OF_MEMORY_DEVICE]


def test_a_size_fits_only_if_a_step_had_so_many_samples() -> None:
    whole = judged(trial_of(batch_size=32, forward=0.5), smaller_fitted=True)
    assert (whole.fit, whole.samples_per_s) == (Fit.FITS, pytest.approx(64))
    partial = judged(trial_of(batch_size=32, columns={"samples": 20}), smaller_fitted=True)
    assert partial.fit is Fit.TOO_LARGE
    assert "the largest step had 20 of 32" in partial.why and partial.refused
    # With accumulation over 2 batches a full step has 64.
    assert fit_of(batch_size=32, settings={"accumulation_steps": 2}) is Fit.FITS


def test_memory_is_continued_along_its_line() -> None:
    assert predicted_peak({}, 0.0, 8) is None
    # one point: 0.3 GB before, 0.4 GB more at batch 8; batch 16 is taken to need twice as much more
    assert predicted_peak({8: 0.7 * GB}, 0.3 * GB, 16) == pytest.approx(1.1 * GB)
    # two points, 0.1 GB a sample
    assert predicted_peak({8: 1.0 * GB, 16: 1.8 * GB}, 0.3 * GB, 32) == pytest.approx(3.4 * GB)
    # memory that fell between two sizes is no reason to expect less
    assert predicted_peak({8: 1.0 * GB, 16: 0.9 * GB}, 0.3 * GB, 32) == pytest.approx(0.9 * GB)


@pytest.mark.parametrize(("available", "room"), [(10, 9), (6, 5), (1, 0)])
def test_a_tenth_of_the_hosts_memory_stays_free_whoever_uses_the_rest(available: float, room: float) -> None:
    assert HostRoom(10, available).for_a_trial == pytest.approx(room)


@pytest.mark.parametrize(
    ("workload", "given", "chosen"),
    [
        ("distilbert-sst2", {}, {"padding": "max_length"}),
        ("distilbert-sst2", {"padding": "longest"}, {"padding": "longest"}),
        ("tiny-transformer", {"layers": 1}, {"padding": "max_length", "layers": 1}),
        ("mlp", {"width": 4}, {"width": 4}),
    ],
)
def test_sequences_are_the_longest_there_can_be(workload: str, given: dict[str, Json], chosen: dict[str, Json]) -> None:
    assert with_longest_sequences(registry.find(workload), given) == chosen


class SimulatedSweep:
    """Takes the sweep's place: memory grows by 0.1 GB a sample on 0.5 GB, and 64 samples are all the device holds."""

    ran: list[int]

    def __init__(self, folder: RunFolder, **_more: Any) -> None:
        self.folder = folder

    def run(self) -> None:
        with self.folder.lock():
            for trial in self.folder.pending():
                SimulatedSweep.ran.append(trial.settings.batch_size)
                self.folder.begin(trial)
                self.folder.finish(self._result(trial))

    def _result(self, trial: Trial) -> TrialResult:
        import dataclasses

        size = trial.settings.batch_size
        if size > 64:
            return TrialResult(trial=trial, outcome=Outcome.OUT_OF_MEMORY_DEVICE, reason="CUDA out of memory")
        numbers = {"host_memory_peak": (0.5 + 0.1 * size) * GB, "host_memory_before": 0.5 * GB}
        return dataclasses.replace(trial_of(batch_size=size, steps=3, quantities=numbers), trial=trial)


@pytest.fixture
def simulated(monkeypatch: pytest.MonkeyPatch) -> type[SimulatedSweep]:
    monkeypatch.setattr(batch_trials, "Sweep", SimulatedSweep)
    SimulatedSweep.ran = []
    return SimulatedSweep


def attempts(tmp_path: Path, *, room_gb: float = 1000.0, **more: Any) -> tuple[RunFolder, BatchTrials]:
    trial = Trial(workload="mlp", settings=Settings(batch_size=1), length=LENGTH)
    where = tmp_path / "search"
    folder = RunFolder.open(where) if where.exists() else run_folder(tmp_path, trial)
    room = HostRoom(10 * room_gb * GB, (room_gb + room_gb) * GB)  # a tenth of the limit is room_gb
    return folder, BatchTrials(folder, trial, launch=None, room=lambda: room, **more)  # type: ignore[arg-type]


def run_folder(root: Path, trial: Trial) -> RunFolder:
    return RunFolder.create(
        root,
        "search",
        planned=[trial],
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )


def test_the_devices_limit_is_found(tmp_path: Path, simulated: type[SimulatedSweep]) -> None:
    _, attempt = attempts(tmp_path)
    found = search(attempt, Bounds(resolution=0.0))
    assert found.largest is not None and found.largest.size == 64
    assert found.too_large is not None and found.too_large.size == 65
    assert found.recommended is not None and found.recommended.size == 60  # 64 less 5 %


def test_the_host_is_never_filled(tmp_path: Path, simulated: type[SimulatedSweep]) -> None:
    # 3 GB may be used: 0.5 + 0.1 * 25 = 3.0 GB
    _, attempt = attempts(tmp_path, room_gb=3.0)
    found = search(attempt, Bounds(resolution=0.0))
    assert max(simulated.ran) == 25
    assert found.largest is not None and found.largest.size == 25
    assert found.too_large is not None and found.too_large.size not in simulated.ran
    assert found.too_large.why.startswith("not started: it would take about")


def test_a_search_that_goes_on_runs_nothing_twice(tmp_path: Path, simulated: type[SimulatedSweep]) -> None:
    folder, attempt = attempts(tmp_path)
    for size in (1, 2, 4, 8):
        attempt(size)
    _, again = attempts(tmp_path)
    found = search(again, Bounds())
    assert len(simulated.ran) == len(set(simulated.ran))
    assert found.recommended is not None
    assert {t.settings.batch_size for t in folder.header().planned} == {one.size for one in found.tried}


def test_a_spent_budget_ends_the_search(tmp_path: Path, simulated: type[SimulatedSweep]) -> None:
    seconds = iter([0.0, 1.0, 2.0, 99.0, 99.0])
    _, attempt = attempts(tmp_path, time_budget_s=10.0, clock=lambda: next(seconds))
    found = search(attempt, Bounds())
    assert found.ended_by is not None and found.ended_by.fit is Fit.OUT_OF_TIME
    assert "the time budget of 10 s is spent" in found.ended_by.why


def test_the_answer_names_what_ran_what_did_not_and_what_is_faster(
    tmp_path: Path, simulated: type[SimulatedSweep]
) -> None:
    _, attempt = attempts(tmp_path)
    bounds = Bounds(resolution=0.0)
    lines = "\n".join(answer(search(attempt, bounds), bounds))
    assert "Largest batch that ran: batch 64 (6.43 GiB on the host" in lines
    assert "Smallest that did not run: batch 65: CUDA out of memory" in lines
    assert "To train with, 5% below it, and run: batch 60" in lines
    assert "The largest size that fits may be slower. Fastest over three steps: batch 64" in lines


@pytest.mark.slow
def test_a_real_search_in_real_processes(tmp_path: Path) -> None:
    options: dict[str, Json] = {"oom_above": 11, "width": 16, "depth": 1, "samples": 64}
    trial = Trial(workload="faulty", settings=Settings(batch_size=4), options=options, length=LENGTH)
    folder = run_folder(tmp_path, trial)
    launch = launcher()
    try:
        found = search(BatchTrials(folder, trial, launch), Bounds(start=4))
    finally:
        launch.close()
    assert [one.size for one in found.tried] == [4, 8, 16, 12, 10, 11]
    assert found.recommended is not None and found.recommended.size == 10
    assert found.too_large is not None and "OutOfMemoryError" in found.too_large.why
    assert found.largest is not None and (found.largest.host_peak_bytes or 0) > 50e6
    run = folder.read()
    assert len(run.results) == 6
    diagnose(run)  # a search is a run like any other
