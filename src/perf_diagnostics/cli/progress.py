"""Tells the terminal what a sweep is doing: a live line on a terminal, one plain line a trial elsewhere."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from perf_diagnostics.report.outcome_line import outcome_line

if TYPE_CHECKING:
    from perf_diagnostics.records import Trial, TrialResult
    from perf_diagnostics.trials.sweep import Progress


def progress(*, quiet: bool) -> Progress:
    """The progress display that suits where the output goes."""
    if quiet:
        from perf_diagnostics.trials.sweep import Silent

        return Silent()
    return LiveProgress() if sys.stderr.isatty() else PlainProgress()


class PlainProgress:
    """One line when a trial has ended; nothing is rewritten, so a log stays readable."""

    def __init__(self) -> None:
        self._place = ""
        self._told: set[str] = set()

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        self._place = f"[{number}/{total}] " if total > 1 else ""  # a search does not know how many there will be

    def ended(self, result: TrialResult) -> None:
        # Whoever read the log may have seen enough (`2>&1 | head`); the measuring goes on, and its results are on disk.
        with contextlib.suppress(BrokenPipeError):
            print(f"{self._place}{outcome_line(result, told=self._told)}", file=sys.stderr, flush=True)
        self._told |= {result.reason} if result.outcome != "completed" else set()

    def close(self) -> None:
        """Every line is out already."""


class LiveProgress:
    """A bar with the trial under way, what is left and the most it will take; finished trials scroll above it."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task: Any = None
        self._told: set[str] = set()

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        left = "" if left_s is None else f"at most {max(0, left_s):.0f} s left"
        if self._task is None:
            self._task = self._bar.add_task(trial.label, total=total, left=left)
            self._bar.start()
        self._bar.update(self._task, description=trial.label, completed=number - 1, total=total, left=left)

    def ended(self, result: TrialResult) -> None:
        self._bar.console.print(outcome_line(result, told=self._told), markup=False, highlight=False)
        self._told |= {result.reason} if result.outcome != "completed" else set()
        self._bar.advance(self._task)

    def close(self) -> None:
        self._bar.stop()
