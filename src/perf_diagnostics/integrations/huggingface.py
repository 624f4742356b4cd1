"""A callback for the Trainer of Hugging Face's transformers that measures its trainings.

::

    from perf_diagnostics.integrations.huggingface import PerformanceDiagnosticsCallback

    trainer = Trainer(..., callbacks=[PerformanceDiagnosticsCallback()])
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from perf_diagnostics.integrations.ends.endings import ending_of
from perf_diagnostics.integrations.framework_loop import FrameworkLoop
from perf_diagnostics.integrations.frameworks import of_transformers
from perf_diagnostics.integrations.model.mixed_precision import autocast_named
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, OTHER, TRANSFER
from perf_diagnostics.integrations.trainings import OfTrainings
from perf_diagnostics.records import Outcome

try:
    _TrainerCallback: Any = import_module("transformers.trainer_callback").TrainerCallback
except ImportError as error:
    raise ImportError(
        f"The Trainer's callback needs transformers ({error}): pip install transformers 'accelerate>=1.1'."
    ) from error

NAN_FILTER_NOTE = (
    "The Trainer looks for nan and inf in the loss of every batch, and on an accelerator the host waits for the device "
    "to do so. TrainingArguments(logging_nan_inf_filter=False) leaves it out; a nan then shows in the logged loss."
)


class PerformanceDiagnosticsCallback(OfTrainings, _TrainerCallback):  # type: ignore[misc]
    """Measures each training of a Trainer into a run of its own, and says at its end what limits it.

    A step is one optimizer step, all its accumulated batches included. Getting these batches, which the Trainer does
    before ``on_step_begin``, is ``data_wait``; moving them is ``transfer``; ``compute_loss`` is ``forward``;
    ``accelerator.backward`` is ``backward``; clipping, step, scheduler and zero_grad are ``optimizer``.
    Logging, evaluation and saving lie between two steps and are the later one's ``other``.

    Methods of the Trainer that calls it are stood in for while it trains. Nothing that goes wrong in measuring reaches
    the training. ``PERF_DIAGNOSTICS_DISABLED=1`` turns all of it off.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        trainer = _calling_trainer()
        self._trainings.begin(
            functools.partial(_new_loop, trainer, others), functools.partial(_equip, trainer, self._trainings.end)
        )

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._trainings.loop is not None:
            self._trainings.loop.marked.pass_begins(int(state.epoch or 0), others.get("train_dataloader"))

    def on_step_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._trainings.loop is not None:
            self._trainings.loop.marked.step_begins()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._trainings.loop is not None:
            self._trainings.loop.marked.begins(OPTIMIZER)

    def on_step_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        if self._trainings.loop is not None:
            self._trainings.loop.marked.ends(OPTIMIZER, raised=False)
            self._trainings.loop.step_ends()

    def on_train_end(self, args: Any, state: Any, control: Any, **others: Any) -> None:
        self._trainings.end((Outcome.COMPLETED, "", "loop_ended"))


def _calling_trainer() -> Any:
    """The Trainer whose event this is: a callback is not told, but its caller's caller is the Trainer's method."""
    wanted = import_module("transformers").Trainer
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = frame.f_locals.get("self")
        if isinstance(found, wanted):
            return found
        frame = frame.f_back
    return None


def _new_loop(trainer: Any, given: dict[str, Any], name: str | None, results_dir: Path) -> FrameworkLoop:
    """The marks on one training, of which nothing is known or timed yet."""
    if trainer is None:
        raise LookupError("the callback was not called by a transformers.Trainer")
    model, optimizer = given.get("model"), given.get("optimizer")
    return FrameworkLoop(
        workload=type(model).__name__,
        name=name,
        results_dir=results_dir,
        model=model,
        optimizer=getattr(optimizer, "optimizer", optimizer),
    )


def _equip(trainer: Any, end: Callable[[Any], None], loop: FrameworkLoop) -> None:
    """Stand in for the parts of a Trainer that are phases."""
    marked, accelerator = loop.marked, trainer.accelerator
    marked.recording.exchanges.modules = lambda: [trainer.model_wrapped]
    marked.autocast = autocast_named(accelerator.mixed_precision)
    _note_facts(loop, trainer)
    inside = _Inside()
    data = import_module("accelerate.data_loader")
    loop.time(data, "send_to_device", TRANSFER, when=lambda: inside.fetch)
    loop.time(trainer, "_get_num_items_in_batch", OTHER, when=lambda: inside.fetch)
    loop.time(trainer, "get_batch_samples", DATA_WAIT)
    loop.time(trainer, "_prepare_inputs", TRANSFER, when=lambda: inside.step)
    loop.time(trainer, "compute_loss", FORWARD, when=lambda: inside.step)
    loop.time(accelerator, "backward", BACKWARD, when=lambda: inside.step)
    if not loop.time(trainer, "_clip_grad_norm", OPTIMIZER):  # transformers 4 clips in its long method
        loop.time(accelerator, "clip_grad_norm_", OPTIMIZER, when=lambda: not inside.step)
    loop.time(trainer, "_get_grad_norm", OPTIMIZER)
    inside.follow(loop, trainer, end)
    loop.training_steps = _positive(getattr(trainer.state, "max_steps", None))


def _positive(steps: object) -> int | None:
    return steps if isinstance(steps, int) and steps > 0 else None


class _Inside:
    """Where the Trainer is: an evaluation calls the same methods, and is no training."""

    def __init__(self) -> None:
        self.fetch = False
        self.step = False

    def follow(self, loop: FrameworkLoop, trainer: Any, end: Callable[[Any], None]) -> None:
        """Watch the Trainer go in and out, and end the training with whatever error leaves it.

        The Trainer tells callbacks of no exception.
        """
        get, train = trainer.get_batch_samples, trainer.training_step

        @functools.wraps(get)
        def get_batch_samples(*args: Any, **kwargs: Any) -> Any:
            self.fetch = True
            try:
                return get(*args, **kwargs)
            except BaseException as error:
                end(ending_of(error))
                raise
            finally:
                self.fetch = False

        @functools.wraps(train)
        def training_step(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self.step = True
            loop.marked.count(inputs)
            try:
                return train(model, inputs, *args, **kwargs)
            except BaseException as error:
                end(ending_of(error))
                raise
            finally:
                self.step = False

        loop.stand_in(trainer, "get_batch_samples", get_batch_samples)
        loop.stand_in(trainer, "training_step", training_step)
        # What runs outside of these: an epoch has a method in transformers 5; before, it is a part of one long one, of
        # which callbacks are called in a method of their own.
        owner, method = (
            (trainer, "_run_epoch") if hasattr(trainer, "_run_epoch") else (trainer.callback_handler, "call_event")
        )
        run = getattr(owner, method)

        @functools.wraps(run)
        def told(*args: Any, **kwargs: Any) -> Any:
            try:
                return run(*args, **kwargs)
            except BaseException as error:
                end(ending_of(error))
                raise

        loop.stand_in(owner, method, told)


def _note_facts(loop: FrameworkLoop, trainer: Any) -> None:
    """What the Trainer is set to, as far as it decides on speed."""
    from perf_diagnostics.workloads.loaders import loader_facts

    loader = trainer.callback_handler.train_dataloader
    filters = bool(trainer.args.logging_nan_inf_filter)
    loop.marked.more_facts = {"nan_inf_filter": filters, **loader_facts(loader)}
    with loop.marked.observations.guard("facts"):
        loop.marked.more_facts |= of_transformers(trainer)
    if filters and trainer.args.device.type != "cpu":
        loop.marked.about.notes.append(NAN_FILTER_NOTE)
