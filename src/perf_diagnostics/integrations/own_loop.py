"""``OwnLoop``: marks the phases of a training loop by hand, where watching it from outside cannot see them."""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Generic, TypeVar

from perf_diagnostics.integrations.attached import RESULTS_DIR, Attached, check_name
from perf_diagnostics.integrations.ends.endings import ending_of
from perf_diagnostics.integrations.record.recording import disabled, recorded_here
from perf_diagnostics.integrations.record.telling import tell
from perf_diagnostics.records import Outcome

if TYPE_CHECKING:
    import torch

    from perf_diagnostics.integrations.marked import MarkedLoop

T = TypeVar("T")
Span = contextlib.AbstractContextManager[None]


class OwnLoop(Attached):
    """Measures a loop by the marks that are put into it. Any mark may be left out: its time is then ``other``.

    ::

        with OwnLoop("my-training", model=model) as loop:
            for batch in loop.batches(loader):
                with loop.step():
                    with loop.transfer():  batch = move(batch)
                    with loop.forward():   loss = loss_fn(model(batch.x), batch.y)
                    with loop.backward():  loss.backward()
                    with loop.optimizer(): optimizer.step()

    A step ends with the ``step()`` block, or, where there is none, with the ``optimizer()`` block. The time between two
    steps belongs to the second one. Marks may nest; time counts for the innermost one. Inside a loop with gradient
    accumulation put several forward and backward marks into one ``step()``. Use it from one thread.

    Nothing that goes wrong in measuring reaches the training; it becomes a gap in the record.
    ``PERF_DIAGNOSTICS_DISABLED=1`` turns all of it off.

    Args:
        workload: what the training is called in the record and, after the time, in the run's name.
        name: of the run; default: the time and ``workload``.
        results_dir: where runs lie.
        model: its size and device are recorded.
        optimizer: its class and implementation are recorded.
        device: where the training runs; default: the model's device, or the current CUDA device if CUDA is in use.
        clock: host clock in ns.
        quiet: do not print the line with the run and the verdict, which goes to standard error at the end.
        deep: record a profiler window, as :func:`~perf_diagnostics.integrations.attach` does.

    Raises:
        InvalidSettings: the name cannot be one.
        RunError: there is a run of that name.
    """

    def __init__(
        self,
        workload: str = "own-loop",
        *,
        name: str | None = None,
        results_dir: Path | str = RESULTS_DIR,
        model: torch.nn.Module | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        device: torch.device | str | None = None,
        clock: Callable[[], int] = time.perf_counter_ns,
        quiet: bool = False,
        deep: bool = False,
    ) -> None:
        if recorded_here():
            check_name(name, Path(results_dir))
        self._quiet = quiet
        self._loop: MarkedLoop | None = None
        if not disabled():
            from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
            from perf_diagnostics.integrations.marked import MarkedLoop
            from perf_diagnostics.integrations.own_cost import with_own_cost
            from perf_diagnostics.integrations.readings.boards_at_rest import boards_at_rest

            self._loop = MarkedLoop(
                workload=workload,
                name=name,
                results_dir=Path(results_dir),
                model=model,
                optimizer=optimizer,
                device=device,
                clock=clock,
            )
            self._loop.recording.with_own_cost = with_own_cost
            if deep:
                self._loop.recording.record_window()
            abrupt_ends.add(self._loop)
            boards_at_rest.begin()
            self._loop.gradients.start()
            self._loop.watch_checkpoints()
            self._loop.watch_calls()
            # Who lets a loop go without closing it (a notebook's cell that runs again) is not watched for good.
            weakref.finalize(self, self._loop.let_go).atexit = False
        super().__init__(self._loop)

    def __enter__(self) -> OwnLoop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is None:
            return
        self._loop.end(*((Outcome.COMPLETED, "", "loop_ended") if error is None else ending_of(error)))
        if not self._quiet and self._loop.recording.speaks:
            tell(self._loop.recording, self._loop.observations)
        self._quiet = True  # close() may be called again

    def close(self) -> None:
        """End measuring and write the result, where no ``with`` block does it."""
        self.__exit__(None, None, None)

    def batches(self, loader: Iterable[T]) -> Batches[T]:
        """The loader's batches; the wait for each is ``data_wait``. Going through it again is the next epoch."""
        return Batches(loader, self._loop)

    def transfer(self) -> Span:
        """Copies to the device."""
        return _NOTHING if self._loop is None else self._loop.transfer

    def forward(self) -> Span:
        """Model and loss."""
        return _NOTHING if self._loop is None else self._loop.forward

    def backward(self) -> Span:
        """Gradients."""
        return _NOTHING if self._loop is None else self._loop.backward

    def optimizer(self) -> Span:
        """Unscaling, clipping, step, scheduler, zero_grad."""
        return _NOTHING if self._loop is None else self._loop.optimizer

    def step(self, *, samples: int | None = None, tokens: int | None = None) -> Span:
        """One training step.

        Args:
            samples: trained on in it; default: counted by the shapes of what :meth:`batches` gave.
            tokens: processed in it, padding included; default: counted likewise where batches have ``input_ids``.
        """
        return _NOTHING if self._loop is None else self._loop.step(samples, tokens)


class Batches(Generic[T]):
    """A loader whose ``next`` is the wait for data."""

    def __init__(self, loader: Iterable[T], loop: MarkedLoop | None) -> None:
        self._loader = loader
        self._loop = loop

    def __iter__(self) -> Iterator[T]:
        if self._loop is None:
            return iter(self._loader)
        return self._loop.timed(self._loader)

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]


_NOTHING: Span = contextlib.nullcontext()
