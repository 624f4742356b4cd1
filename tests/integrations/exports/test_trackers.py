"""Numbers sent to whatever tracker is open, by the two ways trackers have."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.exports.trackers import log_run
from perf_diagnostics.records import OWN_TRAINING, Outcome
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.tried_runs import WORKERS, experiment, tried, waiting_run

HALF = (0.50, 0.505, 0.495, 0.50, 0.50)


class LikeMlflow:
    """``mlflow.log_metrics(metrics, step=None)`` and ``mlflow.log_params(params)``."""

    def __init__(self) -> None:
        self.metrics: list[tuple[int | None, dict[str, float]]] = []
        self.params: dict[str, Any] = {}

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        self.metrics.append((step, metrics))

    def log_params(self, params: dict[str, Any]) -> None:
        self.params |= params


class LikeWandb:
    """A W&B run: ``log(data, step=None)`` drops a step below the last; ``summary.update``."""

    def __init__(self) -> None:
        self.logged: list[tuple[int, dict[str, float]]] = []
        self.summary: dict[str, Any] = {}

    def log(self, data: dict[str, float], step: int | None = None) -> None:
        assert step is not None and (not self.logged or step > self.logged[-1][0])
        self.logged.append((step, data))


RUN = run_of(
    trial_of(data_wait=0.09, forward=0.01, batch_size=16),
    trial_of(forward=0.1, batch_size=8, repeat=0),  # 80 samples/s
    trial_of(forward=0.05, batch_size=8, repeat=1),  # 160 samples/s
)


def test_mlflow_gets_throughput_against_batch_size_and_the_verdict() -> None:
    tracker = LikeMlflow()
    assert log_run(tracker, RUN) == 2
    assert [step for step, _ in tracker.metrics] == [8, 16]
    name = "perf_diagnostics/synthetic cpu/throughput_samples_per_s"
    assert tracker.metrics[0][1][name] == pytest.approx(120)  # the mean of the repeats
    assert tracker.metrics[1][1]["perf_diagnostics/synthetic cpu/share/data_wait"] == pytest.approx(0.9)
    assert tracker.params["perf_diagnostics/verdict"].startswith("INP001")


@pytest.mark.parametrize("kind", [LikeMlflow, LikeWandb])
def test_a_crash_is_told_before_what_was_slow_until_then(kind: type[LikeMlflow | LikeWandb]) -> None:
    crashed = trial_of(data_wait=0.08, forward=0.02, steps=33, outcome=Outcome.CRASHED, reason="KeyError: 'x'")
    run = dataclasses.replace(run_of(crashed), notes=(OWN_TRAINING,))
    tracker = kind()
    log_run(tracker, run)
    told = tracker.params if isinstance(tracker, LikeMlflow) else tracker.summary
    assert told["perf_diagnostics/verdict"] == "EXP002 failed-trials; until then INP001 input-bound"
    assert told["perf_diagnostics/summary"].startswith("The training crashed after 36 recorded steps. The reason: KeyE")


def test_a_diagnosis_that_is_given_takes_the_place_of_one_from_the_records_alone() -> None:
    run = waiting_run()
    tracker, alone = LikeMlflow(), LikeMlflow()
    log_run(tracker, run, diagnose(run, experiments=tried((experiment(WORKERS), HALF))))
    log_run(alone, run)
    # 0.50, 0.505, 0.495, 0.50 and 0.50 of the base's time: half of it is won
    assert tracker.params["perf_diagnostics/tried"].startswith(
        "num_workers=2, persistent_workers=True: confirmed, 50 %"
    )
    assert "Tried: num_workers=2" in tracker.params["perf_diagnostics/summary"]
    assert "perf_diagnostics/tried" not in alone.params
    assert "Tried" not in alone.params["perf_diagnostics/summary"]


def test_wandb_gets_rising_steps_and_a_summary() -> None:
    tracker = LikeWandb()
    log_run(tracker, RUN)
    assert [step for step, _ in tracker.logged] == [8, 16]
    assert "perf_diagnostics/summary" in tracker.summary


def test_names_hold_nothing_a_tracker_refuses() -> None:
    tracker = LikeMlflow()
    log_run(tracker, run_of(trial_of(device="cuda:0", settings={"num_workers": 2})))
    assert all(set("=:") & set(name) == set() for _, metrics in tracker.metrics for name in metrics)


def test_what_is_no_tracker_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="neither log_metrics"):
        log_run(object(), RUN)
