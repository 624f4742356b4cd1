"""Results of trials in somebody's own process are in a run folder as soon as each has ended."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from perf_diagnostics.errors import RunError
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.testing import run_of, trial_of
from perf_diagnostics.trials.here.kept_results import kept_in


def test_a_session_that_is_cut_off_leaves_what_had_ended(tmp_path: Path) -> None:
    first = trial_of(data_wait=0.5, forward=0.5)
    later = [dataclasses.replace(first.trial, repeat=number) for number in (1, 2)]
    run = run_of(first)
    with (
        pytest.raises(KeyboardInterrupt),
        kept_in(tmp_path / "deep" / "results", run, [first.trial, *later]) as keep,
    ):
        keep(first)
        keep(TrialResult(trial=later[0], outcome=Outcome.SKIPPED_OVER_TIME_BUDGET, reason="no time was left"))
        raise KeyboardInterrupt
    (path,) = (tmp_path / "deep" / "results").iterdir()
    folder = RunFolder.open(path)
    kept = folder.read()
    assert [result.outcome for result in kept.results] == [Outcome.COMPLETED, Outcome.SKIPPED_OVER_TIME_BUDGET]
    assert len(kept.results[0].steps[0]) == len(first.steps[0])
    assert [trial.repeat for trial in folder.pending()] == [2]
    assert (kept.tool_version, kept.notes) == (run.tool_version, run.notes)


def test_a_place_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    first = trial_of(data_wait=0.5, forward=0.5)
    with pytest.raises(RunError, match="is a file"), kept_in(tmp_path / "file", run_of(first), [first.trial]):
        raise AssertionError("nothing can be kept there")
