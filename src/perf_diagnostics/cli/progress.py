"""Tells the terminal what a sweep is doing: a live line on a terminal, one plain line a trial elsewhere."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Any

from perf_diagnostics.report.outcome_line import outcome_line

if TYPE_CHECKING:
    from perf_diagnostics.records import Trial, TrialResult
    from perf_diagnostics.trials.sweep import Progress


def progress(*, quiet: bool, forecast: bool = False) -> Progress:
    """The progress display that suits where the output goes.

    Args:
        quiet: tell nothing.
        forecast: how many trials there will be is foreseen anew after each of them, as where a time budget ends it.
    """
    if quiet:
        from perf_diagnostics.trials.sweep import Silent

        return Silent()
    return LiveProgress(forecast=forecast) if sys.stderr.isatty() else PlainProgress(forecast=forecast)


def place_of(number: int, total: int, *, forecast: bool) -> str:
    """How far one has come: ``3/30``; where the total is a forecast, how many more there may be instead.

    A forecast falls and rises with what the trials take, and a total that does so looks like trials that got lost.

    >>> place_of(3, 30, forecast=False), place_of(3, 30, forecast=True), place_of(30, 30, forecast=True)
    ('3/30', '3, about 27 more', '30, likely the last')
    """
    if not forecast:
        return f"{number}/{total}"
    return f"{number}, about {total - number} more" if total > number else f"{number}, likely the last"


class PlainProgress:
    """One line when a trial has ended; nothing is rewritten, so a log stays readable."""

    def __init__(self, *, forecast: bool = False) -> None:
        self._forecast = forecast
        self._place = ""
        self._told: set[str] = set()

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        # A search does not know how many there will be, and gives 1.
        self._place = f"[{place_of(number, total, forecast=self._forecast)}] " if total > 1 else ""

    def ended(self, result: TrialResult) -> None:
        # Whoever read the log may have seen enough (`2>&1 | head`); the measuring goes on, and its results are on disk.
        with contextlib.suppress(BrokenPipeError):
            print(f"{self._place}{outcome_line(result, told=self._told)}", file=sys.stderr, flush=True)
        self._told |= {result.reason} if result.outcome != "completed" else set()

    def close(self) -> None:
        """Every line is out already."""


class LiveProgress:
    """A bar with the trial under way, what is left and the most it will take; finished trials scroll above it."""

    def __init__(self, *, forecast: bool = False) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._forecast = forecast
        self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[place]}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=self._console,
            transient=True,
        )
        self._task: Any = None
        self._told: set[str] = set()

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        left = "" if left_s is None else f"at most {max(0, left_s):.0f} s left"
        place = place_of(number, total, forecast=self._forecast)
        if self._task is None:
            self._task = self._bar.add_task(trial.label, total=total, left=left, place=place)
            self._bar.start()
        self._bar.update(self._task, description=trial.label, completed=number - 1, total=total, left=left, place=place)

    def ended(self, result: TrialResult) -> None:
        self._bar.console.print(outcome_line(result, told=self._told), markup=False, highlight=False)
        self._told |= {result.reason} if result.outcome != "completed" else set()
        self._bar.advance(self._task)

    def close(self) -> None:
        self._bar.stop()
