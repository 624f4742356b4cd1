"""The deep window: a few steps under torch.profiler after the timed ones, written as a trace beside the trial's files.

The profiler slows what it watches, so nothing that was timed lies in its window, and nobody takes a time from it: the
diagnosis takes shares of its steps, and sets their length against the length of the undisturbed ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from perf_diagnostics.measure.observation import Unreadable
from perf_diagnostics.measure.profiler_window import LEAST_STEPS, MOST_STEPS, activities, write_trace
from perf_diagnostics.records import Phase, Quantity
from perf_diagnostics.store.trial_folder import TRACE
from perf_diagnostics.trials.afterwards.afterwards import Timed
from perf_diagnostics.trials.steps.training_step import TrainingStep

#: The profiler's schedule: one step in which workers and loaders start again, two that it runs itself warm in, and
#: what is kept.
WAIT, WARM_UP = 1, 2

#: Steps longer than this have so many events that the fewest will do.
_LONG_STEP_S = 1.0

#: Whoever asks for a window may wait for it beyond the trial's time, but not for ever. A step is taken to be up to
#: twice as long under the profiler.
_LONGEST_S = 60.0
_SLOWDOWN = 2.0


class DeepWindow:
    """Records ``trace.json.gz`` where the trial was asked for one (``Timed.deep``).

    The steps are the trial's own, on the trained model; shapes are recorded, stacks are not. Phases are marked as
    ranges of their names.
    """

    name = "deep_window"

    def __call__(self, timed: Timed) -> Iterator[Quantity]:
        """Nothing is a quantity here: the trace is the record.

        Raises:
            Unreadable: there is no folder, no time, or the trace is too large.
        """
        if timed.deep:
            self._record(timed)
        yield from ()

    def _record(self, timed: Timed) -> None:
        if timed.directory is None:
            raise Unreadable("the trial has no folder to write a trace into", lasting=True)
        target = timed.directory / TRACE
        steps = LEAST_STEPS if timed.step_s > _LONG_STEP_S else MOST_STEPS
        expected_s = (WAIT + WARM_UP + steps) * timed.step_s * _SLOWDOWN
        left_s = timed.left_s()
        if left_s is not None and expected_s > max(left_s, _LONGEST_S):
            raise Unreadable(f"{WAIT + WARM_UP + steps} steps under the profiler would take about {expected_s:.0f} s")
        step = TrainingStep(timed.training, timed.trial.settings, timed.device, Ranges())
        profiler = torch.profiler.profile(
            activities=activities(timed.device),
            schedule=torch.profiler.schedule(wait=WAIT, warmup=WARM_UP, active=steps, repeat=1),
            on_trace_ready=lambda done: write_trace(done.export_chrome_trace, target),
            record_shapes=True,
            with_stack=False,
        )
        with profiler:
            for _ in range(WAIT + WARM_UP + steps):
                step()
                profiler.step()


class Ranges:
    """Takes the place of the probe: phases become named ranges of the trace, and nothing is timed."""

    def __init__(self) -> None:
        self.epoch = 0

    def data_wait(self) -> AbstractContextManager[None]:
        return _range(Phase.DATA_WAIT)

    def transfer(self) -> AbstractContextManager[None]:
        return _range(Phase.TRANSFER)

    def forward(self) -> AbstractContextManager[None]:
        return _range(Phase.FORWARD)

    def backward(self) -> AbstractContextManager[None]:
        return _range(Phase.BACKWARD)

    def optimizer(self) -> AbstractContextManager[None]:
        return _range(Phase.OPTIMIZER)

    def end_step(
        self, *, samples: int, tokens: int | None = None, padding_tokens: int | None = None, loss: Any = None
    ) -> None:
        """The profiler marks the steps itself."""


@contextmanager
def _range(phase: Phase) -> Iterator[None]:
    with torch.profiler.record_function(str(phase)):
        yield
