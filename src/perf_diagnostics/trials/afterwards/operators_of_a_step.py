"""The pass that looks through one step operator by operator: for work that is done for nothing, and where it is asked.

What a watched loop has looked for in a step of its own (:mod:`perf_diagnostics.measure.one_step`) is looked for in a
step after the timed ones here, so that a sweep tells it as well.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from perf_diagnostics.measure.observation import Observations, Unreadable, in_words
from perf_diagnostics.measure.one_step.look import STEADY_STEPS, StepLook
from perf_diagnostics.measure.one_step.zero_products import SIGNAL
from perf_diagnostics.records import Phase, Quantity, Settings
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.steps.phases import LookedAt
from perf_diagnostics.trials.steps.training_step import TrainingStep

#: A step that is looked through is taken to be so many times as long, with what is tried again of it afterwards: 1.8
#: times were seen of steps of 0.43 s with 1,139 operators, and 4 of 0.23 s with 420, most of it tried again.
_SLOWDOWN = 2

#: Of the time that the trial has taken so far this part may go into it, and so much of a short one; and so much of a
#: budget is kept for it at most: of shorter steps it takes less, and of longer ones it takes none.
SHARE = 0.15
LEAST_S = 1.0
MOST_KEPT_S = 5.0

_NO_TIME = "what is left of the trial's time does not hold enough steps that are looked through"
_ONE_BATCH = "each pass over the data is one batch, so that all that is made of it is the same in each step"


def kept_s(settings: Settings, budget_s: float) -> float:
    """Of so many seconds for a trial's steps, those that are kept for the look, if there is one."""
    wanted = settings.ceiling is None and settings.compile_mode is None
    return min(MOST_KEPT_S, SHARE * max(0.0, budget_s)) if wanted else 0.0


class OperatorsOfAStep:
    """Brings facts: what one step's operators take, and which of them take it for nothing, by lines of the code.

    A few later steps follow where something seems to be the same in each, as far as there is time.
    """

    name: ClassVar[str] = SIGNAL

    def __call__(self, timed: Timed) -> Iterator[Quantity]:
        """Nothing is a quantity here: what is told goes to ``timed.facts``.

        Raises:
            Unreadable: there is no time for it, or nothing of the model is trained.
        """
        if timed.look and timed.trial.settings.ceiling is None:
            self._look(timed)
        yield from ()

    def _look(self, timed: Timed) -> None:
        allowed = _Allowed(timed)
        if not allowed.affords(_SLOWDOWN):
            raise Unreadable("what is left of the trial's time does not hold a step that is looked through")
        model, optimizer = timed.training.model, timed.training.optimizer
        look = StepLook(timed.observations, lambda: [model], optimizers=lambda: [optimizer])
        if not look.trained_models():
            raise Unreadable("the optimizer trains nothing of the workload's model", lasting=True)
        why = _NO_TIME
        try:
            with Observations().guard() as attempt:
                why = _steps_through(timed, look, allowed)
            if attempt.problem is not None:
                why = in_words(attempt.problem)
        finally:  # nothing stays in torch, Ctrl-C or not
            look.training_ended(why)
        timed.facts.update(look.facts)


def _steps_through(timed: Timed, look: StepLook, allowed: _Allowed) -> str:
    """Run the steps, and say why no more of them are looked through."""
    phases = _ShownForward(look)
    step = TrainingStep(timed.training, timed.trial.settings, timed.device, phases)
    steps = 0
    while look.may_begin(STEADY_STEPS):
        if not allowed.affords((look.due_after or 0) + _SLOWDOWN):
            return _NO_TIME
        for _ in range(look.due_after or 0):
            step()
            steps += 1
        if steps > 1 and phases.epoch >= steps - 1:
            return _ONE_BATCH
        look.begin(several=False)
        if not look.under_way:
            return ""
        step()
        steps += 1
        look.end()
    return ""


class _ShownForward(LookedAt):
    """Stands in the place of the probe, and has all of forward looked at, not the model's calls alone."""

    def __init__(self, look: StepLook) -> None:
        self.epoch = 0
        self._look = look

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: object = None
    ) -> None:
        """Nothing is kept of the step itself."""

    @contextmanager
    def _span(self, phase: Phase) -> Iterator[None]:
        if phase is Phase.FORWARD:
            self._look.shows_from_here()
        yield


class _Allowed:
    """The time that may go into the look, from when this is made; what it has taken is no longer there."""

    def __init__(self, timed: Timed) -> None:
        self._timed = timed
        self._allowed_s = max(LEAST_S, SHARE * timed.spent_s)
        self._began_s = time.monotonic()

    def affords(self, steps: int) -> bool:
        """Whether so many plain steps fit into what is left of it, and of the trial's budget."""
        left_s = self._allowed_s - (time.monotonic() - self._began_s)
        return self._timed.affords(steps) and steps * self._timed.step_s <= left_s
