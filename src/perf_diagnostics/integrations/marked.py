"""What stands behind the marks of an own loop: phases, steps and counts on a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.counts import Counts
from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.model.called_masks import Call, Copies, MaskReader, count_call
from perf_diagnostics.integrations.model.gradient_looks import GradientLooks
from perf_diagnostics.integrations.model.masked_calls import watch_masks
from perf_diagnostics.integrations.model.product_looks import ProductLooks
from perf_diagnostics.integrations.model.user_hooks import user_hooks
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.integrations.shield import FAULTS, LoopObservations, Shield
from perf_diagnostics.integrations.steps.loop_memory import LoopMemory
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, TRANSFER, LoopProbe
from perf_diagnostics.integrations.steps.passes import Passes
from perf_diagnostics.integrations.watching.checkpoints import watch_checkpoints
from perf_diagnostics.measure.steps.device_clock import captures, event_source
from perf_diagnostics.records import Json, Outcome
from perf_diagnostics.workloads.workload import BatchCount

T = TypeVar("T")


class Mark:
    """One phase's context manager; made once, entered at every step."""

    __slots__ = ("_index", "_loop")

    def __init__(self, loop: MarkedLoop, index: int) -> None:
        self._loop = loop
        self._index = index

    def __enter__(self) -> None:
        self._loop.begins(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.ends(self._index, raised=error is not None)


class StepMark:
    """One step's context manager."""

    __slots__ = ("_loop", "_samples", "_tokens")

    def __init__(self, loop: MarkedLoop, samples: int | None, tokens: int | None) -> None:
        self._loop = loop
        self._samples = samples
        self._tokens = tokens

    def __enter__(self) -> None:
        self._loop.step_begins()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.step_ends(self._samples, self._tokens, raised=error is not None)


class MarkedLoop:
    """The state of one loop that is marked by hand; see :class:`~perf_diagnostics.integrations.own_loop.OwnLoop`."""

    def __init__(
        self,
        *,
        workload: str,
        name: str | None,
        results_dir: Path,
        model: torch.nn.Module | None,
        optimizer: torch.optim.Optimizer | None,
        device: torch.device | str | None,
        clock: Callable[[], int],
    ) -> None:
        self.observations = LoopObservations()
        self.about = About(workload)
        self.probe = LoopProbe(bridged=False, clock=clock, memory=LoopMemory(self.observations))
        self.recording = Recording(
            self.probe,
            self.about,
            self.observations,
            describe=self._describe,
            name=name,
            results_dir=results_dir,
            clock=clock,
        )
        self._shield = Shield(self.observations, self._trip)
        self._off = False
        self._models = [] if model is None else [model]
        self.recording.exchanges.modules = lambda: self._models
        self.recording.looks = ProductLooks(self.observations, lambda: self._models)
        self._optimizers = [] if optimizer is None else [optimizer]
        #: What the gradients of the first steps are like, where somebody starts it.
        self.gradients = GradientLooks(
            self._models, self._optimizers, self.observations, lambda: self.probe.running and self.probe.warmup
        )
        self._device = None if device is None else torch.device(device)
        self._ended = False
        self._placed = self._settled = False
        self._in_step = False
        self._passes = 0
        #: What the batches of the step hold, and its calls where no batch was seen.
        self._batches: list[int | BatchCount | None] = []
        self._masked: int | BatchCount | None = 0
        self._copies = Copies()
        self._micro_steps = 1
        self._batch_samples: int | None = None
        self._training_passes = Passes()
        #: Whether torch.utils.checkpoint was called, and what that is seen by.
        self._checkpoints = False
        self._patches = ExitStack()
        #: What a framework knows about its training: facts, and the type its mixed precision computes in.
        self.more_facts: dict[str, Json] = {}
        self.autocast: torch.dtype | None = None
        self.transfer, self.forward = Mark(self, TRANSFER), Mark(self, FORWARD)
        self.backward, self.optimizer = Mark(self, BACKWARD), Mark(self, OPTIMIZER)

    def _trip(self) -> None:
        self._off = True

    def watch_checkpoints(self) -> None:
        """Note until the end whether activations are computed again."""
        with self.observations.guard("gradient_checkpointing"):
            watch_checkpoints(self._checkpointed, self._patches)

    def watch_masks(self) -> None:
        """Count padding by the masks that the model is called with, until the end."""
        with self.observations.guard("padding_tokens"):
            for model in self._models:
                watch_masks(model, self._count_masked, self._patches)

    def _count_masked(self, reader: MaskReader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._off:
            return
        try:
            closure = OPTIMIZER in (self.probe.state.inside, *self.probe.open)
            self._masked = count_call(
                self._batches, self._masked, Call(reader, args, kwargs, self._copies.source_of), once=closure
            )
        except FAULTS as fault:
            self._shield.take(fault)

    def _checkpointed(self) -> None:
        self._checkpoints = self._checkpoints or self.probe.running

    def begins(self, index: int) -> None:
        """A phase begins."""
        if self._off:
            return
        try:
            self.probe.enter(index)
        except FAULTS as fault:
            self._shield.take(fault)

    def ends(self, index: int, *, raised: bool) -> None:
        """The innermost phase ends; an optimizer's end is the step's where no step is marked."""
        if self._off:
            return
        try:
            self.probe.leave()
            if index == OPTIMIZER and not raised and not self._in_step and not self.probe.depth:
                self._end_step(None, None)
        except FAULTS as fault:
            self._shield.take(fault)

    def step(self, samples: int | None, tokens: int | None) -> StepMark:
        """A mark around one step."""
        return StepMark(self, samples, tokens)

    def step_begins(self) -> None:
        if self._off:
            return
        try:
            self._in_step = True
            if not self.probe.running:
                self.probe.start()
        except FAULTS as fault:
            self._shield.take(fault)

    def step_ends(self, samples: int | None, tokens: int | None, *, raised: bool) -> None:
        """A marked step ends; one that raised is no step, and its time goes to the next one."""
        if self._off:
            return
        try:
            self._in_step = False
            if not raised:
                self._end_step(samples, tokens)
        except FAULTS as fault:
            self._shield.take(fault)

    def pass_begins(self, epoch: int) -> None:
        """A framework begins a pass over the data, by its own count."""
        if self._off:
            return
        try:
            self.probe.epoch = epoch
            self.about.pass_reads.pass_begins()
        except FAULTS as fault:
            self._shield.take(fault)

    def pass_ended(self) -> None:
        """The wait that has just ended brought no batch."""
        self.probe.pass_ended()
        try:
            self.about.pass_reads.pass_ended()
        except FAULTS as fault:
            self._shield.take(fault)

    def timed(self, loader: Iterable[T]) -> Iterator[T]:
        """The batches, each wait for one timed."""
        self.begins(DATA_WAIT)
        try:
            self.probe.epoch = self._passes
            self._passes += 1
            try:
                self.about.pass_reads.pass_begins()
                self._training_passes.begin(loader)
                self.about.loader_facts = self._training_passes.facts
            except FAULTS as fault:
                self._shield.take(fault)
            iterator = iter(loader)
        finally:
            self.ends(DATA_WAIT, raised=False)
        return _Timed(iterator, self)

    def count(self, batch: Any) -> None:
        """A batch has come."""
        if self._off:
            return
        try:
            self._batches.append(describe.count_batch(batch))
        except FAULTS as fault:
            self._shield.take(fault)

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        """Stop measuring, and write the result."""
        if self._ended:
            return
        self._ended = self._off = True
        self.recording.break_off(outcome, reason)
        self._patches.close()
        self.gradients.stop()
        self._describe()
        try:
            self.recording.finish(outcome, reason, stop_reason)
        finally:
            abrupt_ends.remove(self)

    def _end_step(self, samples: int | None, tokens: int | None) -> None:
        counts = Counts.of(self._batches)
        if not counts.batches:  # the samples of the calls are not known
            held = self._masked if isinstance(self._masked, BatchCount) else BatchCount(0)
            counts.tokens, counts.padding_tokens = held.tokens, held.padding_tokens
            tokens = counts.tokens if tokens is None else tokens
        else:
            self._micro_steps = counts.batches
            samples = counts.samples if samples is None else samples
            tokens = counts.tokens if tokens is None else tokens
        if self._batch_samples is None and samples:
            self._batch_samples = max(1, samples // self._micro_steps)
        padding = counts.padding_tokens if tokens == counts.tokens else None
        self.recording.end_step(samples, tokens, padding)
        self._batches.clear()
        self._masked = 0
        if not self._settled:
            self._settle()

    def _settle(self) -> None:
        """Once it is known where the training runs, its device is timed; with the warm-up looking at gradients ends."""
        if not self._placed:
            self._placed = self._place()
            if self._placed:
                self.recording.aside(self.gradients.find_others)
        if self._placed and not self.probe.warmup:
            self._settled = True
            self.gradients.stop()

    def _place(self) -> bool:
        """Find out where the training runs; false where only a later step can tell."""
        if self._device is None:
            self._device = describe.device_of(describe.parameters_of(self._models, self._optimizers))
            in_use = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
            if in_use and not self._models and not self._optimizers:
                self._device = torch.device("cuda", torch.cuda.current_device())
        if captures(self._device):  # the next step is asked
            return False
        self.about.device = describe.device_name(self._device)
        events = event_source(self._device, self.recording.clock)
        if events is not None:
            self.recording.use_events(events)
        if self._device.type != "cpu":
            self.probe.read_memory(LoopMemory(self.observations, self._device))
        return True

    def _describe(self) -> None:
        with self.observations.guard("facts"):
            parameters = describe.parameters_of(self._models, self._optimizers)
            device = self._device or torch.device("cpu")
            about = self.about
            about.precision = describe.precision_of(parameters, device, self.autocast)
            about.samples = self._batch_samples
            about.quantities = describe.sizes(parameters, device)
            about.facts = {
                "accumulation_steps": self._micro_steps,
                **describe.facts_of(self._models, self._optimizers, device, checkpoints=self._checkpoints),
                **self.gradients.facts,
                "user_hooks": user_hooks(self._models) or about.facts.get("user_hooks", []),
                **self._training_passes.facts,
                **self.more_facts,
            }


class _Timed(Iterator[T]):
    """An iterator whose ``next`` is the wait for data."""

    def __init__(self, iterator: Iterator[T], loop: MarkedLoop) -> None:
        self._iterator = iterator
        self._loop = loop

    def __next__(self) -> T:
        came = False
        self._loop.begins(DATA_WAIT)
        try:
            batch = next(self._iterator)
            came = True
        finally:
            self._loop.ends(DATA_WAIT, raised=False)
            if not came:
                self._loop.pass_ended()
        self._loop.count(batch)
        return batch
