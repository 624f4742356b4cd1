"""How the trials of all pairs are counted and timed, where each call of the sweep sees one pair only."""

from __future__ import annotations

from collections.abc import Callable

from perf_diagnostics.records import Trial, TrialResult
from perf_diagnostics.trials.launch.launcher import Launcher, Request, TrialProcess
from perf_diagnostics.trials.sweep import Progress


class Started:
    """A launcher that tells how long the starting of trials has taken: the first one waits for the fork server."""

    def __init__(self, launch: Launcher, clock: Callable[[], float]) -> None:
        self._launch = launch
        self.clock = clock
        self.spent_s = 0.0

    def start(self, request: Request) -> TrialProcess:
        began = self.clock()
        process = self._launch.start(request)
        self.spent_s += self.clock() - began
        return process

    def close(self) -> None:
        self._launch.close()


class Counted:
    """Counts the trials of a call, and puts down in ``took_s`` what each took, in s, by id.

    The total is what is going to be tried, not what is planned: how many pairs fit into the time is known better after
    each of them, and :meth:`expect` says it anew.
    """

    def __init__(self, progress: Progress, launch: Started, took_s: dict[str, float]) -> None:
        self._progress = progress
        self._total = 0
        self._number = 0
        self._launch = launch
        self._took_s = took_s
        self._began = (0.0, 0.0)

    def expect(self, trials: int) -> None:
        """So many trials are to come, as far as can be told now."""
        self._total = self._number + trials

    def started(self, trial: Trial, *, number: int, total: int, left_s: float | None) -> None:
        self._number += 1
        self._began = (self._launch.clock(), self._launch.spent_s)
        self._progress.started(trial, number=self._number, total=max(self._total, self._number), left_s=left_s)

    def ended(self, result: TrialResult) -> None:
        began, spent_s = self._began
        self._took_s[result.trial.id] = self._launch.clock() - began - (self._launch.spent_s - spent_s)
        self._progress.ended(result)

    def close(self) -> None:
        self._progress.close()
