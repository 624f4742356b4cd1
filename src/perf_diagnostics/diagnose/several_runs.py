"""Several runs read as one: trainings that were recorded one by one, such as the same with 1, 2 and 4 ranks."""

from __future__ import annotations

from collections.abc import Sequence

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Run


def together(runs: Sequence[Run]) -> Run:
    """One run with the trials and results of all of these, in their order.

    The first run's date, version and surroundings stand for all; each result has its own.

    Raises:
        InvalidSettings: there is no run, or one is given twice: its trials would pass for repeats.
    """
    if not runs:
        raise InvalidSettings("Give at least one run to read.")
    for place, run in enumerate(runs):
        if run.results and any(_trained(run) == _trained(other) for other in runs[:place]):
            raise InvalidSettings(f"Run {run.name!r} is given twice; its trials would pass for repeats.")
    first = runs[0]
    if len(runs) == 1:
        return first
    return Run(
        name=" + ".join(run.name for run in runs),
        created_at=first.created_at,
        tool_version=first.tool_version,
        planned=tuple({trial.id: trial for run in runs for trial in run.planned}.values()),
        results=tuple(result for run in runs for result in run.results),
        command=first.command,
        environment=first.environment,
        notes=tuple(dict.fromkeys(note for run in runs for note in run.notes)),
    )


def _trained(run: Run) -> tuple[str, list[tuple[str, str, list[int]]]]:
    """What tells one run from another, however its folder is called: when it began, and what each trial recorded."""
    return run.created_at, [
        (result.trial.id, result.started_at, [len(table) for table in result.steps]) for result in run.results
    ]
