"""A callback and a profiler for Lightning's Trainer that measure its fits; for ``lightning`` and ``pytorch_lightning``.

::

    from perf_diagnostics.integrations.lightning import PerformanceDiagnosticsCallback, PerformanceDiagnosticsProfiler

    trainer = Trainer(callbacks=[PerformanceDiagnosticsCallback()])
    trainer = Trainer(profiler=PerformanceDiagnosticsProfiler())
"""

from __future__ import annotations

import functools
import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from perf_diagnostics.integrations.ends.endings import ending_of
from perf_diagnostics.integrations.framework_loop import FrameworkLoop
from perf_diagnostics.integrations.lightning_loop import (
    FirstWorkers,
    count_batches,
    describe_fit,
    new_loop,
    phase_of,
    time_fetches,
)
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, OTHER, TRANSFER
from perf_diagnostics.integrations.trainings import OfTrainings
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.records import Outcome

#: The two names under which the same library is installed, each with classes of its own.
PACKAGES = ("lightning.pytorch", "pytorch_lightning")

_OVER = (Outcome.COMPLETED, "", "loop_ended")


def _package() -> Any:
    """The one that is in use already, else the one that is installed: importing both takes seconds.

    A Trainer of the other one takes our classes as well, its callback since 2.6 (before, it asks for one of its own).
    """
    for name in PACKAGES:
        if name in sys.modules:
            return sys.modules[name]
    for name in PACKAGES:
        if find_spec(name.partition(".")[0]) is not None:
            return import_module(name)
    raise ImportError(
        "Lightning's callback and profiler need lightning (or pytorch-lightning): pip install 'lightning>=2.4'."
    )


_PACKAGE: Any = _package()
_Callback: Any = _PACKAGE.Callback
_Profiler: Any = import_module(f"{_PACKAGE.__name__}.profilers").Profiler


def _steps_of(trainer: Any) -> int | None:
    """How many optimizer steps a fit will have, where its Trainer is told."""
    steps: object
    epochs: object
    batches: object
    steps, epochs, batches = trainer.max_steps, trainer.max_epochs, trainer.num_training_batches
    if isinstance(steps, int) and steps > 0:
        return steps
    if not isinstance(epochs, int) or not isinstance(batches, int) or epochs < 0:
        return None
    each = int(trainer.accumulate_grad_batches) or 1
    return epochs * max(1, batches // each)


def _no_more(workers: FirstWorkers | None) -> None:
    """The fit is over, or was never begun."""
    if workers is not None:
        workers.end()


def _first_workers(before: FirstWorkers | None, trainer: Any, stage: str) -> FirstWorkers | None:
    """Those of a fit that is being set up, in place of those of the fit before."""
    _no_more(before)
    try:
        return FirstWorkers(trainer) if stage == "fit" else None
    except FAULTS:
        return None  # their lines are missing then; what else is, the training's own marks find


class PerformanceDiagnosticsCallback(OfTrainings, _Callback):  # type: ignore[misc]
    """Measures each fit into a run of its own, and says at its end what limits it.

    A step is one training batch in which an optimizer stepped, with the accumulated batches before it. With automatic
    optimization forward and backward run inside the optimizer's step; each counts on its own. With manual optimization
    what ``training_step`` does besides backward and step is ``forward``. Validation, its batches, logging and
    checkpoints are ``other``; the sanity check comes before the first step.

    Methods of the Trainer's strategy and loop are stood in for while it fits. Nothing that goes wrong in measuring
    reaches the training. ``PERF_DIAGNOSTICS_DISABLED=1`` turns all of it off.
    """

    _stepped = False
    _workers: FirstWorkers | None = None

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._workers = _first_workers(self._workers, trainer, stage)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        self._stepped = False
        self._trainings.begin(functools.partial(new_loop, trainer, pl_module), functools.partial(self._equip, trainer))

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        if self._trainings.loop is not None:
            self._trainings.loop.marked.pass_begins(trainer.current_epoch, trainer.train_dataloader)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        if self._stepped and self._trainings.loop is not None:
            self._stepped = False
            self._trainings.loop.step_ends()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._trainings.end(_OVER)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._trainings.end(ending_of(exception))
        _no_more(self._workers)

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._trainings.end(_OVER)
        _no_more(self._workers)

    def _equip(self, trainer: Any, loop: FrameworkLoop) -> None:
        """Stand in for the parts of a Trainer that are phases."""
        if self._workers is not None:
            self._workers.belong_to(loop)
        describe_fit(loop, trainer)
        loop.training_steps = _steps_of(trainer)
        strategy, epochs = trainer.strategy, trainer.fit_loop.epoch_loop

        def trains() -> bool:
            return bool(trainer.training)

        count_batches(loop, trainer)
        loop.time(strategy, "batch_to_device", TRANSFER, when=trains)
        loop.time(strategy, "training_step", FORWARD)
        loop.time(strategy, "backward", BACKWARD)
        loop.time(strategy, "optimizer_step", OPTIMIZER, first=self._steps)
        loop.time(epochs, "update_lr_schedulers", OPTIMIZER)
        loop.time(epochs.automatic_optimization, "_optimizer_zero_grad", OPTIMIZER)
        loop.time(epochs, "on_run_start", DATA_WAIT)  # makes the loader's iterator, which starts its workers
        time_fetches(loop, epochs)
        loop.marked.step_begins()

    def _steps(self, *_args: Any, **_kwargs: Any) -> None:
        self._stepped = True


class PerformanceDiagnosticsProfiler(OfTrainings, _Profiler):  # type: ignore[misc]
    """Measures each fit as the callback does, mostly from the actions that the Trainer names to its profiler.

    What differs: making the loader's iterator is ``other``, and so are schedulers; a step ends with its batch's
    ``run_training_batch``.
    """

    _stepped = False
    _handled: BaseException | None = None
    _phases: dict[str, int | None]
    _workers: FirstWorkers | None = None

    def setup(self, stage: str, local_rank: int | None = None, log_dir: str | None = None) -> None:
        """Before anything else of a fit."""
        super().setup(stage, local_rank, log_dir)
        self._workers = _first_workers(self._workers, getattr(self._lightning_module, "trainer", None), stage)

    def start(self, action_name: str) -> None:
        """An action begins."""
        if action_name == "run_training_epoch" and self._trainings.loop is None:
            self._begin()
        loop = self._trainings.loop
        if loop is None:
            return
        if action_name == "run_training_epoch":
            trainer = self._lightning_module.trainer
            loop.marked.pass_begins(trainer.current_epoch, trainer.train_dataloader)
            loop.marked.step_begins()
        phase = self._phase(action_name)
        if phase is not None:
            self._stepped = self._stepped or phase == OPTIMIZER
            loop.marked.begins(phase)

    def stop(self, action_name: str) -> None:
        """It has ended."""
        loop = self._trainings.loop
        if loop is None:
            return
        if self._phase(action_name) is not None:
            loop.marked.ends(OTHER, raised=False)
        elif action_name == "run_training_batch" and self._stepped and self._error() is None:
            self._stepped = False
            loop.step_ends()
        elif action_name == "run_training_epoch":
            error = self._error()
            if error is not None:
                self._trainings.end(ending_of(error))

    def _error(self) -> BaseException | None:
        """What has just been raised inside the action that ends: the Trainer ends actions in ``finally``."""
        error = sys.exc_info()[1]
        return None if error is self._handled else error

    def teardown(self, stage: str | None) -> None:
        """The fit is over."""
        super().teardown(stage)
        if "_trainings" in vars(self):  # also called when an object goes that was never made
            self._trainings.end(_OVER)
            _no_more(self._workers)

    def _begin(self) -> None:
        self._stepped = False
        self._handled = sys.exc_info()[1]  # fit() may be called where somebody is handling an error
        self._phases = {}
        trainer = self._lightning_module.trainer
        self._trainings.begin(functools.partial(new_loop, trainer, trainer.lightning_module), self._equip)

    def _equip(self, loop: FrameworkLoop) -> None:
        trainer = self._lightning_module.trainer
        if self._workers is not None:
            self._workers.belong_to(loop)
        describe_fit(loop, trainer)
        loop.training_steps = _steps_of(trainer)
        count_batches(loop, trainer)
        loop.time(trainer.strategy, "backward", BACKWARD)  # the action of that name is missing in a manual backward
        loop.marked.about.why_unseen["transfer"] = "the Trainer moved no batch; its time is in other"

    def _phase(self, action: str) -> int | None:
        try:
            phase = self._phases[action]
        except KeyError:
            phase = self._phases[action] = phase_of(action)
        if phase == TRANSFER and not self._lightning_module.trainer.training:
            return None
        return phase
