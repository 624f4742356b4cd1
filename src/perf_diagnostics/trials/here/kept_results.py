"""Writes results of trials that ran in somebody's own process into a run folder, each as soon as it has ended."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from perf_diagnostics.records import Run, Trial, TrialResult
from perf_diagnostics.store.run_folder import RunFolder


@contextlib.contextmanager
def kept_in(results_dir: Path | str, run: Run, planned: Sequence[Trial]) -> Iterator[Callable[[TrialResult], None]]:
    """Make a new run folder, hold its lock for the block, and give what to call with each result.

    Args:
        results_dir: the folder in which the run's is made.
        run: whose environment, version and notes are put down.
        planned: the trials that are about to be run.

    Raises:
        RunError: the folder cannot be made.
    """
    folder = RunFolder.create(
        results_dir,
        planned=planned,
        command=run.command,
        environment=run.environment,
        tool_version=run.tool_version,
        now=datetime.now(UTC),
        notes=run.notes,
    )
    with folder.lock():

        def keep(result: TrialResult) -> None:
            if not result.outcome.skipped:
                folder.begin(result.trial)
                folder.write_parts(result.trial, [table for table in result.steps if len(table)])
            folder.finish(result)

        yield keep
