"""The trainings that one callback sees, one after another: each is begun, ended and told about on its own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from perf_diagnostics.integrations.attached import RESULTS_DIR, Attached, check_name
from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.integrations.record.recording import disabled, recorded_here
from perf_diagnostics.integrations.record.telling import say, tell
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.observation import in_words
from perf_diagnostics.records import Outcome

if TYPE_CHECKING:
    from perf_diagnostics.integrations.framework_loop import FrameworkLoop


class Trainings:
    """What a callback knows about the trainings it sees, one after another: one run for each.

    Args:
        name: of the first training's run, followed by ``-2`` and so on for later ones; default: the time and the
            model's class.
        results_dir: where runs lie.
        quiet: say nothing at the end.
        deep: record a profiler window of each training.

    Raises:
        InvalidSettings: the name cannot be one.
        RunError: there is a run of that name.
    """

    def __init__(self, *, name: str | None, results_dir: Path | str, quiet: bool, deep: bool = False) -> None:
        self._results_dir = Path(results_dir).absolute()
        if recorded_here():
            check_name(name, self._results_dir)
        self._name = name
        self._quiet = quiet
        self._deep = deep
        self._begun = 0
        self._pid = 0
        self.loop: FrameworkLoop | None = None
        #: What was measured in the training that is under way, or in the last one.
        self.last = Attached(None)

    def begin(self, make: Callable[[str | None, Path], FrameworkLoop], equip: Callable[[FrameworkLoop], None]) -> None:
        """A training begins, whatever the two find missing; then it is not measured, and all they did is taken off.

        Args:
            make: the loop, from the run's name and the folder where runs lie.
            equip: has the loop time the framework's parts.
        """
        self.end((Outcome.CRASHED, "another training began before this one had ended", str(Outcome.CRASHED)))
        if disabled():
            return
        self._begun += 1
        self._pid = os.getpid()
        name = self._name if self._name is None or self._begun == 1 else f"{self._name}-{self._begun}"
        loop = None
        try:
            loop = make(name, self._results_dir)
            equip(loop)
        except FAULTS as fault:
            say(f"this training is not measured: {in_words(fault)}")
            if loop is not None:
                loop.end((Outcome.CRASHED, in_words(fault), str(Outcome.CRASHED)))
            return
        self.loop = loop
        if self._deep:
            self.loop.record_window()
        self.last = Attached(self.loop.marked)

    def end(self, ending: Ending) -> None:
        """The training that is under way has ended; without one nothing happens."""
        loop, self.loop = self.loop, None
        if loop is None:
            return
        loop.end(ending)
        if not self._quiet and os.getpid() == self._pid and loop.marked.recording.speaks:
            tell(loop.marked.recording, loop.marked.observations, loop.marked.about.notes)


class OfTrainings:
    """What the frameworks' callbacks have in common: they measure each training into a run of its own."""

    def __init__(
        self,
        *,
        name: str | None = None,
        results_dir: Path | str = RESULTS_DIR,
        quiet: bool = False,
        deep: bool = False,
    ) -> None:
        """Nothing is measured before the first training begins.

        Args:
            name: of the run; default: the time and the model's class. Later trainings get ``-2`` and so on.
            results_dir: where runs lie.
            quiet: do not print the line with the run and the verdict.
            deep: record a profiler window, as :func:`~perf_diagnostics.integrations.attach` does.

        Raises:
            InvalidSettings: the name cannot be one.
            RunError: there is a run of that name.
        """
        super().__init__()
        self._trainings = Trainings(name=name, results_dir=results_dir, quiet=quiet, deep=deep)

    @property
    def diagnostics(self) -> Attached:
        """The training that is under way, or the last one: its steps, its folder, and at its end its records."""
        return self._trainings.last
