"""Pretends to run trials: writes the files a trial's process would write, at once, with times given by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from perf_diagnostics.records import Outcome, Settings, Trial
from perf_diagnostics.store.files import codec
from perf_diagnostics.store.trial_folder import TrialFolder
from perf_diagnostics.testing import trial_of
from perf_diagnostics.trials.launch.launcher import Request
from perf_diagnostics.trials.measurement import Measurement
from perf_diagnostics.trials.worker import PartFiles, write_measured

#: Above what Linux gives to any process.
_NOBODY = 2**22 + 1


@dataclasses.dataclass
class Ended:
    pid: int = _NOBODY

    def wait(self, timeout_s: float) -> int:
        return 0


@dataclasses.dataclass
class Pretended:
    """A launcher whose trials take ``step_s(settings)`` a step; ``before`` is called with each, and may raise.

    Where ``step_s`` is None, the trial crashes. ``more`` are further arguments of ``trial_of``.
    """

    step_s: Callable[[Settings], float | None]
    before: Callable[[Trial], None] = lambda _trial: None
    more: Callable[[Trial], dict[str, Any]] = lambda _trial: {}
    started: list[Trial] = dataclasses.field(default_factory=list)

    def start(self, request: Request) -> Ended:
        trial = codec.decode(Trial, request.trial, where="the request")
        self.before(trial)
        self.started.append(trial)
        seconds = self.step_s(trial.settings)
        folder = TrialFolder(Path(request.directory))
        made = trial_of(
            forward=seconds or 1.0,
            batch_size=trial.settings.batch_size,
            steps=0 if seconds is None else trial.length.max_steps,
            outcome=Outcome.CRASHED if seconds is None else Outcome.COMPLETED,
            reason="planted" if seconds is None else "",
            **self.more(trial),
        )
        result = dataclasses.replace(made, trial=trial)
        PartFiles(folder).write([table for table in result.steps if len(table)])
        write_measured(folder.path, Measurement(result))
        return Ended()

    def close(self) -> None:
        """Nothing is kept."""
