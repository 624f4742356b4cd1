"""A run of a script that is not to be a whole training: with settings of its own changed, or for some steps only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from perf_diagnostics.integrations.about import FORCED
from perf_diagnostics.integrations.again.ended_together import EndedTogether
from perf_diagnostics.integrations.again.forcible import note_of, steps_until_effect
from perf_diagnostics.integrations.ends.endings import Ending
from perf_diagnostics.measure.steps.beside_steps import CompiledGraphs
from perf_diagnostics.measure.steps.steady import QUIET_STEPS
from perf_diagnostics.records import Outcome

if TYPE_CHECKING:
    from perf_diagnostics.integrations.again.forced_settings import ForcedSettings
    from perf_diagnostics.integrations.record.recording import Recording
    from perf_diagnostics.integrations.watching.watch import Watch

#: Why a trial stopped that has measured what it was asked for.
ENOUGH = "enough_steps"

#: The warm-up waits for so many steps more at most where they go on compiling, as in a sweep
#: (:data:`perf_diagnostics.trials.steps.loop.SETTLING_STEPS`).
_MOST_COMPILING_STEPS = 40


class Again:
    """What is different in this run of a script.

    Args:
        settings: forced on the script, by name (:mod:`.forced_settings`).
        steps: measured steps after which the process ends, at once; None: the script's own end.
        warm_up_steps: the least there are before them.
    """

    def __init__(self, settings: Mapping[str, Any], steps: int | None, warm_up_steps: int = 0) -> None:
        self._settings = settings
        self._steps = steps
        self._warm_up_steps = warm_up_steps
        #: Ends all processes of the script; None where each comes to its own end.
        self.together = None if steps is None else EndedTogether()
        self._forced: ForcedSettings | None = None

    def begin(self, watch: Watch, patches: ExitStack, stop: Callable[[Ending], None]) -> None:
        """Torch is there: put in what is changed, and have ``stop`` called between two steps when there are enough."""
        from perf_diagnostics.integrations.again.forced_settings import ForcedSettings

        watch.recording.warm_up_until(self._warm_up_steps)
        if self._settings:
            self._forced = ForcedSettings(self._settings)
            self._forced.install(patches)
            put_into = self._forced.install_in_calls(partial(setattr, watch.trained, "autocast"), patches)
            if put_into is not None:
                watch.before_timed = put_into
            watch.about.notes.append(note_of(self._settings))
            watch.about.forced[FORCED] = dict(self._settings)
            watch.recording.warm_up_until(watch.recording.warm_up_steps + steps_until_effect(self._settings))
            if "compile_mode" in self._settings:
                _warm_up_while_compiling(watch.recording, patches)
        if self.together is not None:
            _at_first_step(self.together.trains, patches)
            watch.recording.enough = self._steps
            watch.recording.when_enough = lambda: stop((Outcome.COMPLETED, "", ENOUGH))

    def judged(self, ending: Ending) -> Ending:
        """The ending of a run, in which a setting that changed nothing is a fault."""
        without_effect = "" if self._forced is None else self._forced.without_effect()
        if without_effect and ending[0] is Outcome.COMPLETED:
            return Outcome.INVALID_SETTINGS, without_effect, ending[2]
        return ending


def _at_first_step(then: Callable[[], None], patches: ExitStack) -> None:
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def first(*_: Any) -> None:
        hook.remove()
        then()

    hook = register_optimizer_step_pre_hook(first)
    patches.callback(hook.remove)


def _warm_up_while_compiling(recording: Recording, patches: ExitStack) -> None:
    """A step that compiles says nothing about the others: the warm-up goes on until some have compiled nothing."""
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    graphs, seen = CompiledGraphs(), 0
    most = recording.warm_up_steps + _MOST_COMPILING_STEPS

    def steps(*_: Any) -> None:
        nonlocal seen
        if recording.probe.warmup and (now := graphs()) > seen:
            seen = now
            recording.warm_up_until(min(most, recording.steps + 1 + QUIET_STEPS))

    patches.callback(register_optimizer_step_pre_hook(steps).remove)
