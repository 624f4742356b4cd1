"""Marks on one fit of Lightning's Trainer: which of its actions and methods are which phase."""

from __future__ import annotations

import functools
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from perf_diagnostics.integrations.framework_loop import FrameworkLoop, stand_in
from perf_diagnostics.integrations.frameworks import of_lightning
from perf_diagnostics.integrations.model.mixed_precision import autocast_named
from perf_diagnostics.integrations.record.recording import disabled
from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT, FORWARD, OPTIMIZER, TRANSFER
from perf_diagnostics.measure.code.worker_looks import WorkerLooks
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.workloads.loaders import loader_facts


def phase_of(action: str) -> int | None:
    """The phase of one of the Trainer's actions, as an index into ALL_PHASES; None where it is none.

    The names are those of Lightning 2: ``[_TrainingEpochLoop].train_dataloader_next``,
    ``[Strategy]SingleDeviceStrategy.training_step``, ``[LightningModule]Mine.optimizer_step``, and, with manual
    optimization, ``optimizer_step``.
    """
    owner, _, method = action.rpartition(".")
    if owner.startswith("[Strategy]"):
        return {"batch_to_device": TRANSFER, "training_step": FORWARD}.get(method)
    if method == "train_dataloader_next":
        return DATA_WAIT
    if action == "optimizer_step" or (owner.startswith("[LightningModule]") and method == "optimizer_step"):
        return OPTIMIZER
    return None


def new_loop(trainer: Any, module: Any, name: str | None, results_dir: Path) -> FrameworkLoop:
    """The marks on one fit, of which nothing is known or timed yet."""
    return FrameworkLoop(
        workload=type(module).__name__,
        name=name,
        results_dir=results_dir,
        model=module,
        optimizer=next(iter(trainer.optimizers), None),
    )


class FirstWorkers:
    """Looks in the workers that a fit starts before it tells anybody that its training begins, or for a loader that it
    makes anew.

    Args:
        trainer: one that is about to fit, and has not set its loader up.
    """

    def __init__(self, trainer: Any) -> None:
        self._looks = WorkerLooks(Observations())
        self._off = ExitStack()
        if disabled():
            return
        setup_data = trainer.fit_loop.setup_data

        @functools.wraps(setup_data)
        def looked_at(*args: Any, **kwargs: Any) -> Any:
            with self._looks.in_workers():
                return setup_data(*args, **kwargs)

        stand_in(self._off, trainer.fit_loop, "setup_data", looked_at)

    def belong_to(self, loop: FrameworkLoop) -> None:
        """The training has begun."""
        earlier, self._looks = self._looks, loop.marked.recording.worker_looks
        self._looks.go_on_from(earlier)
        loop.patches.callback(self.end)

    def end(self) -> None:
        """No more are started."""
        self._off.close()
        self._looks = WorkerLooks(Observations())


def describe_fit(loop: FrameworkLoop, trainer: Any) -> None:
    """Note down what the Trainer says of its fit."""
    loop.marked.gradients.in_turn(trainer.optimizers[1:])
    loop.marked.recording.exchanges.modules = lambda: [trainer.strategy.model]
    loop.marked.autocast = autocast_named(trainer.precision)
    loop.marked.more_facts = loader_facts(trainer.train_dataloader)
    with loop.marked.observations.guard("facts"):
        loop.marked.more_facts |= of_lightning(trainer)
    if getattr(trainer.lightning_module, "_compiler_ctx", None) is not None:
        _is_compiled(loop, trainer)


def _is_compiled(loop: FrameworkLoop, trainer: Any) -> None:
    """``fit(torch.compile(module))``: Lightning takes the wrapper off and compiles the module's ``training_step``."""
    loop.marked.more_facts["compiled"] = True
    if trainer.lightning_module.automatic_optimization:  # else it calls backward, too
        strategy = trainer.strategy
        loop.stand_in(strategy, "training_step", loop.marked.counts_as_call(strategy.training_step))


def count_batches(loop: FrameworkLoop, trainer: Any) -> None:
    """Count each training batch where it is moved: its mask is still in the host's memory, and can be looked at."""
    move = trainer.strategy.batch_to_device

    @functools.wraps(move)
    def batch_to_device(batch: Any, *args: Any, **kwargs: Any) -> Any:
        if trainer.training:
            loop.marked.count(batch)
        return move(batch, *args, **kwargs)

    loop.stand_in(trainer.strategy, "batch_to_device", batch_to_device)


def time_fetches(loop: FrameworkLoop, epochs: Any) -> None:
    """The loop calls one method before it fetches a batch, and another one after it, also where there is none."""
    before, after = epochs._on_before_fetch, epochs._on_after_fetch

    @functools.wraps(before)
    def _on_before_fetch() -> None:
        before()
        loop.marked.begins(DATA_WAIT)

    @functools.wraps(after)
    def _on_after_fetch() -> None:
        loop.marked.ends(DATA_WAIT, raised=False)
        after()

    loop.stand_in(epochs, "_on_before_fetch", _on_before_fetch)
    loop.stand_in(epochs, "_on_after_fetch", _on_after_fetch)
