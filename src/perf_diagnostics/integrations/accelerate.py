"""Measures a training loop on Hugging Face's Accelerate, which stays as it is.

::

    from perf_diagnostics.integrations.accelerate import attach_accelerator

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with attach_accelerator(accelerator):
        for batch in loader:
            ...
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations.attached import RESULTS_DIR, Attached, check_name
from perf_diagnostics.integrations.ends.endings import ending_of
from perf_diagnostics.integrations.model.mixed_precision import autocast_named
from perf_diagnostics.integrations.record.recording import disabled
from perf_diagnostics.integrations.record.telling import tell
from perf_diagnostics.records import Outcome

try:
    _data: Any = import_module("accelerate.data_loader")
except ImportError as error:
    raise ImportError(f"attach_accelerator() needs accelerate ({error}): pip install 'accelerate>=1.1'.") from error


@contextlib.contextmanager
def attach_accelerator(
    accelerator: Any,
    *,
    name: str | None = None,
    results_dir: Path | str = RESULTS_DIR,
    quiet: bool = False,
    deep: bool = False,
) -> Iterator[Attached]:
    """Measure the loop inside the block, which trains what ``accelerator.prepare`` has been given, into a run folder.

    As :func:`~perf_diagnostics.integrations.attach`, and besides: copies to the device are ``transfer``; a prepared
    loader, which fetches the next batch before it gives out the last one, counts a batch in the step that trains on it,
    while the wait is counted where it happens, a step early; the precision is the accelerator's. At the end a line says
    where the run lies and what limits the training.

    A step ends when each optimizer has stepped: with ``accelerator.accumulate`` that is at the last batch of each
    round, and where the gradient scaler skips a step, the step goes on.

    Args:
        accelerator: an ``accelerate.Accelerator`` that has prepared a model and an optimizer.
        name: of the run; default: the time and the model's class.
        results_dir: where runs lie.
        quiet: do not print the line with the run and the verdict.
        deep: record a profiler window, as :func:`~perf_diagnostics.integrations.attach` does.

    Raises:
        InvalidSettings: nothing is prepared, or the name cannot be one.
        RunError: there is a run of that name.
    """
    if accelerator.is_main_process:
        check_name(name, Path(results_dir))
    if not accelerator._dataloaders:
        raise InvalidSettings("the accelerator has no loader yet; call accelerator.prepare() before, or use attach().")
    models, optimizers = list(accelerator._models), [one.optimizer for one in accelerator._optimizers]
    if not models or not optimizers:
        raise InvalidSettings("the accelerator has no model or no optimizer yet; call accelerator.prepare() before.")
    if disabled():
        yield Attached(None)
        return
    from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
    from perf_diagnostics.integrations.model.prepared import without_left_over
    from perf_diagnostics.integrations.own_cost import with_own_cost
    from perf_diagnostics.integrations.readings.boards_at_rest import boards_at_rest
    from perf_diagnostics.integrations.watching import checkpoints, loader_patches, patches, updates
    from perf_diagnostics.integrations.watching.accelerated_watch import AcceleratedWatch
    from perf_diagnostics.measure.model_scan import class_name

    models, known = without_left_over(models, optimizers)
    watch = AcceleratedWatch(
        models=models,
        optimizers=known,
        workload=class_name(models[0]),
        name=name,
        results_dir=Path(results_dir).absolute(),
    )
    watch.recording.with_own_cost = with_own_cost
    abrupt_ends.add(watch)
    boards_at_rest.begin()
    if deep:
        watch.recording.record_window()
    ending = Outcome.COMPLETED, "", "loop_ended"
    with ExitStack() as installed:
        with watch.observations.guard("steps"):
            watch.computes_in(autocast_named(accelerator.mixed_precision))
            patches.watch_backward(watch, installed)
            checkpoints.watch_checkpoints(watch.checkpointed, installed)
            updates.watch_updates(watch, optimizers, installed)
            loader_patches.watch_loaders(watch, None, installed)
            watch.watch_transfers(_data, "send_to_device", installed)
        try:
            yield Attached(watch)
        except BaseException as error:
            ending = ending_of(error)
            raise
        finally:
            installed.close()
            watch.end(*ending)
            if not quiet and watch.recording.speaks:
                tell(watch.recording, watch.observations)
