"""``attach``: measures a training loop that is left as it is."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from perf_diagnostics.errors import InvalidSettings, RunError
from perf_diagnostics.integrations.record.recording import disabled, recorded_here
from perf_diagnostics.records import Outcome, Run
from perf_diagnostics.store.files.whole_files import checked_name

if TYPE_CHECKING:
    import torch

    from perf_diagnostics.integrations.marked import MarkedLoop
    from perf_diagnostics.integrations.watching.watch import Watch

T = TypeVar("T")

RESULTS_DIR = "results"


class Attached:
    """What :func:`attach` gives; after the block it knows what was measured."""

    def __init__(self, watch: Watch | MarkedLoop | None) -> None:
        self._watch = watch

    @property
    def steps(self) -> int:
        """Steps seen so far, warm-up included; 0 where measuring is turned off."""
        return 0 if self._watch is None else self._watch.recording.steps + self._watch.probe.state.plain_steps

    @property
    def folder(self) -> Path | None:
        """The run's folder, once something is written."""
        run_folder = None if self._watch is None else self._watch.recording.folder
        return None if run_folder is None else run_folder.path

    @property
    def traces(self) -> dict[str, Path]:
        """The profiler window by its trial, where ``deep`` has asked for one, as rules and reports take it."""
        run_folder = None if self._watch is None else self._watch.recording.folder
        return {} if run_folder is None else run_folder.traces()

    @property
    def run(self) -> Run | None:
        """The records, in the form that rules and reports read; None inside the block, or where no step was seen."""
        return None if self._watch is None else self._watch.recording.run

    def __repr__(self) -> str:
        """What an interactive session shows of it: how far it is, and where the rest is."""
        what = type(self).__name__
        if self._watch is None:
            return f"<{what}: PERF_DIAGNOSTICS_DISABLED is set, nothing is measured>"
        if self._watch.recording.result is None:
            return f"<{what}: steps so far: {self.steps}; .run has the records once it ended>"
        where = "" if self.folder is None else f" in {self.folder}"
        return f"<{what}: steps: {self.steps}{where}; BottleneckReport.of(its.run) is the report>"


class Attaching(contextlib.ContextDecorator, contextlib.AbstractContextManager[Attached]):
    """What :func:`attach` gives: the block of one ``with``, or, as a decorator, of each call of a function."""

    def __init__(self, begin: Callable[[], contextlib.AbstractContextManager[Attached]]) -> None:
        #: None once it was entered, for it holds the model.
        self._begin: Callable[[], contextlib.AbstractContextManager[Attached]] | None = begin
        self._block: contextlib.AbstractContextManager[Attached] = contextlib.nullcontext(Attached(None))

    def _recreate_cm(self) -> Attaching:
        return self if self._begin is None else Attaching(self._begin)  # a decorator is asked for at each call

    def __enter__(self) -> Attached:
        if self._begin is None:
            raise RunError(
                "This attach(...) was entered before, and measures one run only; call attach(...) again for another "
                "one, in the with itself: `with attach(model, optimizer, loader):`."
            )
        block = self._begin()
        seen = block.__enter__()
        self._begin, self._block = None, block
        return seen

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, trace)


def attach(
    model: torch.nn.Module | Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
    loader: Iterable[Any] | None = None,
    *,
    name: str | None = None,
    results_dir: Path | str = RESULTS_DIR,
    quiet: bool = False,
    deep: bool = False,
) -> Attaching:
    """Measure the training loop inside the block, which stays as it is, into a run folder.

    A step ends when the optimizer has stepped (of several: when each of them has). All that was put into torch comes
    off at the end of the block. Nothing that goes wrong in measuring reaches the training; it becomes a gap in the
    record. ``PERF_DIAGNOSTICS_DISABLED=1`` turns all of it off.

    Args:
        model: what the loop calls; torch.compile's or DDP's wrapper around it is found. Several as a list.
        optimizer: what steps. Several (a GAN's two) as a list. None: whatever steps, or, where no optimizer of torch is
            there, the loop itself: a step ends where it goes on to its next batch or forward after it has changed the
            parameters.
        loader: whose batches are the input; default: every DataLoader that is read while training.
        name: of the run; default: the time and the model's class.
        results_dir: where runs lie.
        quiet: do not print the line with the run and the verdict, which goes to standard error.
        deep: once enough steady steps were measured, record a few more under torch.profiler, which count in nothing;
            their trace says what forward and backward do inside.

    Raises:
        InvalidSettings: the name cannot be one, or what is given is no model, optimizer or loader.
        RunError: there is a run of that name, or what this gives is used in ``with`` a second time.
    """
    return Attaching(lambda: _attached(model, optimizer, loader, name, Path(results_dir), quiet=quiet, deep=deep))


@contextlib.contextmanager
def _attached(
    model: torch.nn.Module | Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None,
    loader: Iterable[Any] | None,
    name: str | None,
    results_dir: Path,
    *,
    quiet: bool,
    deep: bool,
) -> Iterator[Attached]:
    if recorded_here():
        check_name(name, results_dir)
    if disabled():
        yield Attached(None)
        return
    import torch
    from torch.utils.data import DataLoader

    from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
    from perf_diagnostics.integrations.ends.endings import ending_of
    from perf_diagnostics.integrations.own_cost import with_own_cost
    from perf_diagnostics.integrations.readings.boards_at_rest import boards_at_rest
    from perf_diagnostics.integrations.record.telling import tell
    from perf_diagnostics.integrations.watching import checkpoints, loader_patches, patches, transfers, updates
    from perf_diagnostics.integrations.watching.watch import Watch
    from perf_diagnostics.measure.model_scan import class_name

    models = _all_of(model, torch.nn.Module, "model")
    optimizers = [] if optimizer is None else _all_of(optimizer, torch.optim.Optimizer, "optimizer")
    if loader is not None and not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise InvalidSettings(f"attach() was given loader={_shown(loader)}, which cannot be iterated.")
    watch = Watch(
        models=models,
        optimizers=optimizers,
        workload=class_name(models[0]),
        name=name,
        results_dir=results_dir,
    )
    watch.recording.with_own_cost = with_own_cost
    if deep:
        watch.recording.record_window()
    abrupt_ends.add(watch)
    boards_at_rest.begin()
    ending, pid = (Outcome.COMPLETED, "", "loop_ended"), os.getpid()
    with contextlib.ExitStack() as installed:
        with watch.observations.guard("steps"):
            patches.watch_backward(watch, installed)
            checkpoints.watch_checkpoints(watch.checkpointed, installed)
            watch.steps.when_on_device = lambda: transfers.watch_transfers(watch, installed)
            updates.watch_updates(watch, optimizers or None, installed)
            patches.watch_updates_by_hand(watch, installed)
            patches.watch_other_backwards(watch, installed)
            if loader is None or isinstance(loader, DataLoader):
                # What Accelerate prepares is no loader itself, but reads one.
                inner = None if loader is None else (loader, getattr(loader, "base_dataloader", loader))
                loader_patches.watch_loaders(watch, inner, installed)
            elif not loader_patches.watch_iterable(watch, loader, installed):
                why = f"a {type(loader).__name__} cannot be watched; use OwnLoop.batches(). Its time is in other"
                watch.about.why_unseen["data_wait"] = why
        try:
            yield Attached(watch)
        except BaseException as error:
            ending = ending_of(error)
            raise
        finally:
            installed.close()
            watch.end(*ending)
            if not quiet and watch.recording.speaks and os.getpid() == pid:
                tell(watch.recording, watch.observations)


def _all_of(given: object, kind: type[T], what: str) -> list[T]:
    several = list(given) if isinstance(given, list | tuple) else [given]
    found = [one for one in several if isinstance(one, kind)]
    if found and len(found) == len(several):
        return found
    by_hand = " An optimizer of your own is left out: optimizer=None." if what == "optimizer" else ""
    raise InvalidSettings(
        f"attach() was given {what}={_shown(given)}; it takes a {kind.__module__.split('.')[0]} {what}, "
        f"or a list of several: attach(model, optimizer, loader).{by_hand}"
    )


def _shown(given: object) -> str:
    """The beginning of a value in one line: an optimizer's own text goes over many."""
    return " ".join(f"{given!r:.80}".split())


def check_name(name: str | None, results_dir: Path) -> None:
    """Refuse a run's name before the training begins, for afterwards it would be too late.

    Raises:
        InvalidSettings: it cannot be a name.
        RunError: it is taken.
    """
    if name is not None and (results_dir / checked_name(name)).exists():
        raise RunError(f"{results_dir / name} already exists; choose another name, or remove it.")
