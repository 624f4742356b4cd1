"""A run of a script that is not to be a whole training: with settings of its own changed, or for some steps only."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from perf_diagnostics.integrations.again.forcible import steps_until_effect
from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.records import Outcome

if TYPE_CHECKING:
    from perf_diagnostics.integrations.again.forced_settings import ForcedSettings
    from perf_diagnostics.integrations.watching.watch import Watch

#: Why a trial stopped that has measured what it was asked for.
ENOUGH = "enough_steps"


class Again:
    """What is different in this run of a script.

    Args:
        settings: forced on the script, by name (:mod:`.forced_settings`).
        steps: measured steps after which the process ends, at once; None: the script's own end.
    """

    def __init__(self, settings: Mapping[str, Any], steps: int | None) -> None:
        self._settings = settings
        self._steps = steps
        self._forced: ForcedSettings | None = None

    def begin(self, watch: Watch, patches: ExitStack, stop: Callable[[Ending], None]) -> None:
        """Torch is there: put in what is changed, and have ``stop`` called between two steps when there are enough."""
        from perf_diagnostics.integrations.again.forced_settings import ForcedSettings

        if self._settings:
            self._forced = ForcedSettings(self._settings)
            self._forced.install(patches)
            named = ", ".join(f"{name}={value}" for name, value in self._settings.items())
            watch.about.notes.append(f"The script ran with {named} in place of its own.")
            watch.recording.warm_up_until(watch.recording.warm_up_steps + steps_until_effect(self._settings))
        if self._steps is not None:
            watch.recording.enough = self._steps
            watch.recording.when_enough = lambda: stop((Outcome.COMPLETED, "", ENOUGH))

    def judged(self, ending: Ending) -> Ending:
        """The ending of a run, in which a setting that changed nothing is a fault."""
        without_effect = "" if self._forced is None else self._forced.without_effect()
        if without_effect and ending[0] is Outcome.COMPLETED:
            return Outcome.INVALID_SETTINGS, without_effect, ending[2]
        return ending


def leave_now() -> None:
    """End this process without the script's own end: what it would save or print there is not asked for."""
    for worker in multiprocessing.active_children():
        worker.kill()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
