"""Trials are left out when two other batch sizes of their configuration failed alike before the first step."""

from __future__ import annotations

from pathlib import Path

import pytest

from perf_diagnostics.records import Environment, Outcome, Settings, StepTable, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.failed_alike import failed_alike

TRIAL = Trial(workload="w", settings=Settings(batch_size=8))


def ended(batch_size: int, reason: str = "KeyError: 'x' (train.py:3)", **change: object) -> TrialResult:
    settings = Settings(batch_size=batch_size)
    fields = {"outcome": Outcome.CRASHED, "reason": reason, **change}
    return TrialResult(trial=Trial(workload="w", settings=settings), **fields)  # type: ignore[arg-type]


def test_two_other_sizes_that_failed_alike() -> None:
    assert failed_alike(TRIAL, [ended(1), ended(2)]) == "KeyError: 'x' (train.py:3)"


@pytest.mark.parametrize(
    "results",
    [
        [],
        [ended(1)],
        [ended(1), ended(1)],  # one size only: it may be that size's fault
        [ended(1), ended(8)],  # the other one is this trial's own size, in an earlier repeat
        [ended(1, "batch_size=1 is too small"), ended(2, "batch_size=2 is too small")],
        [ended(1), ended(2), ended(4, "", outcome=Outcome.COMPLETED)],
        [ended(1), ended(2, outcome=Outcome.OUT_OF_MEMORY_HOST)],
        [ended(1, ""), ended(2, "")],
    ],
)
def test_anything_else_is_run(results: list[TrialResult]) -> None:
    assert failed_alike(TRIAL, results) is None


def test_a_failure_after_a_step_is_no_failure_of_what_was_asked() -> None:
    table: StepTable = trial_of(steps=3).steps[0]
    assert failed_alike(TRIAL, [ended(1), ended(2, steps=(table,))]) is None


def test_other_settings_are_another_configuration() -> None:
    fused = Trial(workload="w", settings=Settings(batch_size=8, optimizer_implementation="fused"))
    assert failed_alike(fused, [ended(1), ended(2)]) is None


def test_a_sweep_leaves_them_without_a_result_and_a_resumed_one_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datetime import UTC, datetime

    from perf_diagnostics.trials.sweep import Sweep

    trials = [ended(size).trial for size in (1, 2, 4, 8)]
    folder = RunFolder.create(
        tmp_path, "run", planned=trials, command="", environment=Environment(), tool_version="0", now=datetime.now(UTC)
    )
    ran: list[int] = []

    def run_one(_sweep: Sweep, trial: Trial, *_given: object) -> TrialResult:
        ran.append(trial.settings.batch_size)
        return ended(trial.settings.batch_size)

    monkeypatch.setattr(Sweep, "_run_one", run_one)
    end = Sweep(folder, launch=object(), examine=False).run()  # type: ignore[arg-type]
    assert ran == [1, 2]
    assert [trial.settings.batch_size for trial, _ in end.left_out] == [4, 8]
    assert [trial.settings.batch_size for trial in folder.pending()] == [4, 8]
    end = Sweep(folder, launch=object(), examine=False).run()  # type: ignore[arg-type]
    assert ran == [1, 2, 4, 8]
    assert end.left_out == ()
