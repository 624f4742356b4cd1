"""Tells when trials need not be run because others of the same configuration failed in a way no batch size mends."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.records import Outcome, Trial, TrialResult
from perf_diagnostics.trials.configurations import but_batch

#: Endings that depend on what was asked for; the others on how much memory, time or luck there was.
_BY_WHAT_WAS_ASKED = (Outcome.CRASHED, Outcome.INVALID_SETTINGS)


def failed_alike(trial: Trial, results: Sequence[TrialResult]) -> str | None:
    """Why two other batch sizes of the trial's configuration failed, if both did alike and before their first step.

    None if that is not so, or if one of the configuration's trials came further.
    """
    same = [result for result in results if but_batch(result.trial) == but_batch(trial)]
    reasons = {result.reason for result in same}
    sizes = {result.trial.settings.batch_size for result in same} - {trial.settings.batch_size}
    if len(reasons) != 1 or len(sizes) < 2 or any(_came_further(result) for result in same):
        return None
    return reasons.pop() or None


def _came_further(result: TrialResult) -> bool:
    return result.outcome not in _BY_WHAT_WAS_ASKED or any(len(table) for table in result.steps)
