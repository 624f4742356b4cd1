"""The trials that somebody asked for, apart from the sentinels, which only watch whether the machine changes."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.wording import counted, listing
from perf_diagnostics.records import Run


def asked_for(run: Run) -> Run:
    """The run without its sentinels: what is counted, and what may be missing from a conclusion."""
    return dataclasses.replace(
        run,
        planned=tuple(trial for trial in run.planned if not trial.role),
        results=tuple(result for result in run.results if not result.trial.role),
    )


def lost_sentinels(run: Run) -> str:
    """``1 of 2 sentinels skipped``; empty where all completed, or none was planned."""
    results = [result for result in run.results if result.trial.role]
    waiting = sum(bool(trial.role) for trial in run.pending)
    endings = (
        (sum(result.outcome.failed for result in results), "failed"),
        (sum(result.outcome.skipped for result in results), "skipped"),
        (waiting, "not run"),
    )
    total = counted(len(results) + waiting, "sentinel")
    lost = [(count, ending) for count, ending in endings if count]
    first = [f"{count} of {total} {ending}" for count, ending in lost[:1]]
    return listing([*first, *(f"{count} {ending}" for count, ending in lost[1:])])
