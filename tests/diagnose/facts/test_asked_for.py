"""Trials somebody asked for, apart from sentinels."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.facts.asked_for import asked_for, lost_sentinels
from perf_diagnostics.records import Outcome, TrialResult
from perf_diagnostics.testing import run_of, trial_of


def sentinel(block: int, outcome: Outcome = Outcome.COMPLETED) -> TrialResult:
    result = trial_of(repeat=block, outcome=outcome)
    return dataclasses.replace(result, trial=dataclasses.replace(result.trial, role="sentinel"))


def test_sentinels_are_not_among_the_trials_that_somebody_asked_for() -> None:
    run = run_of(
        trial_of(),
        sentinel(0),
        sentinel(1, Outcome.SKIPPED_OVER_TIME_BUDGET),
        pending=[trial_of(batch_size=16).trial, sentinel(2).trial],
    )
    asked = asked_for(run)
    assert (len(asked.results), len(asked.completed), len(asked.pending)) == (1, 1, 1)
    assert lost_sentinels(run) == "1 of 3 sentinels skipped and 1 not run"


def test_sentinels_that_all_completed_are_not_worth_a_word() -> None:
    assert lost_sentinels(run_of(trial_of(), sentinel(0), sentinel(1))) == ""
    assert lost_sentinels(run_of(trial_of())) == ""
    assert lost_sentinels(run_of(sentinel(0, Outcome.CRASHED))) == "1 of 1 sentinel failed"
