"""What stands behind the marks of an own loop: phases, steps and counts on a recording."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeVar

import torch

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.counts import Counts, fold
from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
from perf_diagnostics.integrations.looks.crossings_look import CrossingsLook
from perf_diagnostics.integrations.looks.looks import Looks
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.model.called_masks import Call, Copies, MaskReader, count_call
from perf_diagnostics.integrations.model.gradient_looks import GradientLooks
from perf_diagnostics.integrations.model.losses import scales_losses
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.integrations.shield import LoopObservations, Shield
from perf_diagnostics.integrations.steps.loop_memory import LoopMemory
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, TRANSFER, LoopProbe
from perf_diagnostics.integrations.steps.marks import Mark, StepMark, Timed
from perf_diagnostics.integrations.steps.passes import Passes
from perf_diagnostics.integrations.watching.checkpoints import watch_checkpoints
from perf_diagnostics.integrations.watching.compiled_training_step import as_call
from perf_diagnostics.integrations.watching.fetch_parts import watch_fetches
from perf_diagnostics.integrations.watching.marked_calls import MarkedCalls
from perf_diagnostics.integrations.watching.marked_copies import watch_copies
from perf_diagnostics.measure.code.user_hooks import user_hooks
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.measure.steps.device_clock import captures, event_source
from perf_diagnostics.measure.steps.tape import AT, NEXT_BATCH
from perf_diagnostics.records import Json, Outcome
from perf_diagnostics.workloads.workload import BatchCount

T = TypeVar("T")

#: In a step that goes on without end more batches than this are added up.
_MOST_BATCHES = 4096


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
        self._optimizers = [] if optimizer is None else [optimizer]
        #: What the loop calls inside its marks, where somebody asks for it.
        self._calls = MarkedCalls(
            self.probe,
            self._models,
            self._optimizers,
            observations=self.observations,
            count_masked=self._count_masked,
            fails=self._shield.take,
        )
        self.recording.before_take = self._read_losses
        operators = StepLook(
            self.observations,
            lambda: self._calls.modules or self._models,
            goes_back=lambda: BACKWARD in (self.probe.state.inside, *self.probe.open),
        )
        crossings = CrossingsLook(
            self.observations, self.probe, operators.why_not, operators.trained_models, clock=self.recording.clock
        )
        self.recording.looks = Looks(operators, crossings)
        self.recording.exchanges.modules = lambda: self._models
        #: What the gradients of the first steps are like, where somebody starts it.
        self.gradients = GradientLooks(
            self._models, self._optimizers, self.observations, lambda: self.probe.running and self.probe.warmup
        )
        self._device = None if device is None else torch.device(device)
        self._ended = False
        self._placed = self._settled = False
        self._in_step = False
        self._passes = 0
        #: What the batches of the step hold, so many of which were added up, and its calls where no batch was seen.
        self._batches: list[int | BatchCount | None] = []
        self._folded_batches = 0
        self._masked: int | BatchCount | None = 0
        self._copies = Copies()
        #: How many steps had so many batches: the last one of a pass may have fewer than the usual ones.
        self._micro_steps: Counter[int] = Counter()
        self._batch_samples: int | None = None
        self._training_passes = Passes()
        #: Whether torch.utils.checkpoint was called, and what that is seen by.
        self._checkpoints = False
        self._patches = ExitStack()
        #: Looks in the workers that a framework starts for a pass, until their first batch comes.
        self._workers_start: AbstractContextManager[None] | None = None
        #: What a framework knows about its training: facts, and the type its mixed precision computes in.
        self.more_facts: dict[str, Json] = {}
        self.autocast: torch.dtype | None = None
        self.transfer, self.forward = Mark(self, TRANSFER), Mark(self, FORWARD)
        self.backward, self.optimizer = Mark(self, BACKWARD), Mark(self, OPTIMIZER)

    @property
    def thread(self) -> int:
        """The only thread that is watched."""
        return self._calls.thread

    def fails(self, fault: Exception) -> None:
        """Something of ours went wrong: that ends the measuring, and nothing else."""
        self._shield.take(fault)

    def _trip(self) -> None:
        self._off = True
        self.probe.state.active = False
        if self.recording.looks is not None:
            self.recording.looks.measuring_ended()

    def watch_checkpoints(self) -> None:
        """Note until the end whether activations are computed again."""
        with self.observations.guard("gradient_checkpointing"):
            watch_checkpoints(self._checkpointed, self._patches)

    def watch_calls(self, modules: Sequence[torch.nn.Module] | None = None) -> None:
        """See until the end what the loop calls, and count padding by the masks that its models are called with.

        Args:
            modules: what it calls; None: the outermost modules around what is trained are looked for.
        """
        with self.observations.guard("loader_parts"):
            watch_fetches(self, self._patches)
        with self.observations.guard("forwards"):
            self._calls.install(self._patches, modules)
            device = self._device or describe.device_of(parameters_of(self._models, self._optimizers))
            self._watch_copies(device)

    def counts_as_call(self, training_step: Callable[..., Any]) -> Callable[..., Any]:
        """The function, whose calls are seen as calls of the model: it was compiled with the model inside."""
        return as_call(self._calls, training_step)

    def let_go(self) -> None:
        """See no calls any more."""
        self._patches.close()

    def _watch_copies(self, device: torch.device) -> None:
        """Where masks lie on a device, note what they were copied from; done once."""
        if device.type != "cpu" and self._calls.may_be_masked and not self._copies.wanted:
            self._copies.wanted = True
            watch_copies(self._calls, self._copies, self._patches)

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

    def pass_begins(self, epoch: int, loader: object) -> None:
        """A framework begins a pass over this loader's data, by its own count."""
        if self._off:
            return
        try:
            self.probe.epoch = epoch
            self._loader_begins(loader)
            self._workers_started()
            self._workers_start = self.recording.worker_looks.in_workers_of(loader)
            self._workers_start.__enter__()
        except FAULTS as fault:
            self._shield.take(fault)

    def _workers_started(self) -> None:
        """Those of the pass are there."""
        if self._workers_start is not None:
            begun, self._workers_start = self._workers_start, None
            begun.__exit__(None, None, None)

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
                self._loader_begins(loader)
            except FAULTS as fault:
                self._shield.take(fault)
            with self.recording.worker_looks.in_workers_of(loader):
                iterator = iter(loader)
        finally:
            self.ends(DATA_WAIT, raised=False)
        return Timed(iterator, self)

    def _loader_begins(self, loader: object) -> None:
        self.about.pass_reads.pass_begins()
        self._training_passes.begin(loader)
        self.about.loader_facts = self._training_passes.facts

    def count(self, batch: Any) -> None:
        """A batch has come."""
        if self._off:
            return
        try:
            if self._workers_start is not None:
                self._workers_started()
            probe = self.probe
            if probe._running:
                probe._mark(probe._clock() + AT[NEXT_BATCH])
            batches = self._batches
            batches.append(describe.count_batch(batch))
            if len(batches) > _MOST_BATCHES:
                self._folded_batches += fold(batches)
            if probe.warmup:
                self._training_passes.batch_came(batch)
        except FAULTS as fault:
            self._shield.take(fault)

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        """Stop measuring, and write the result."""
        if self._ended:
            return
        self._ended = self._off = True
        self.probe.state.active = False
        self.recording.break_off(outcome, reason)
        self._workers_started()
        self._patches.close()
        self.gradients.stop()
        self._describe()
        self.about.why_unseen["loss"] = (
            self._calls.losses.why_not or "backward() was not called once a step, on a single number"
        )
        try:
            self.recording.finish(outcome, reason, stop_reason)
        finally:
            abrupt_ends.remove(self)

    def _end_step(self, samples: int | None, tokens: int | None) -> None:
        counts = Counts.of(self._batches)
        counts.batches += self._folded_batches
        if not counts.batches:  # the samples of the calls are not known
            held = self._masked if isinstance(self._masked, BatchCount) else BatchCount(0)
            counts.tokens, counts.padding_tokens = held.tokens, held.padding_tokens
            tokens = counts.tokens if tokens is None else tokens
        else:
            # Of two loaders one call uses both.
            self._micro_steps[min(counts.batches, self.probe.state.forwards or counts.batches)] += 1
            samples = counts.samples if samples is None else samples
            tokens = counts.tokens if tokens is None else tokens
        if self._batch_samples is None and samples:
            self._batch_samples = max(1, samples // (counts.batches or 1))
        padding = counts.padding_tokens if tokens == counts.tokens else None
        losses = self._calls.losses
        if losses.wanted:
            losses.step_ends(self.probe.steps_on_tape)
        elif self.recording.clock() >= losses.due_ns:
            losses.look()
        self.recording.end_step(samples, tokens, padding)
        self._batches.clear()
        self._folded_batches = self._masked = 0
        if self._copies.wanted:
            self._copies.forget()
        if not self._settled:
            self._settle()
        self.probe.state.forwards = 0

    def _settle(self) -> None:
        """Once it is known where the training runs, its device is timed; with the warm-up looking at gradients ends."""
        calls = self._calls
        if not self._placed:
            self._placed = self._place()
            if self._placed:
                self.recording.aside(self._look_around)
        if calls.may_search and not self.probe.state.forwards and not self.probe.capturing:
            self.recording.aside(calls.search)
        calls.looks.wanted = self.probe.warmup and not self.recording.profiling
        if self._placed and not self.probe.warmup:
            self._settled = True
            self.gradients.stop()

    def _look_around(self) -> None:
        """It is known where the training runs: what else is there that tells about it?"""
        self.gradients.find_others()
        on_device = self._device is not None and self._device.type != "cpu"
        if (on_device or self.autocast is torch.float16) and scales_losses(gc.get_objects()):
            self._calls.losses.refuse("a GradScaler multiplies the loss before backward() is called on it")

    def _read_losses(self) -> None:
        self.probe.keep_losses(self._calls.losses.take())

    def _place(self) -> bool:
        """Find out where the training runs; false where only a later step can tell."""
        if self._device is None:
            self._device = describe.device_of(parameters_of(self._models, self._optimizers))
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
            self._watch_copies(self._device)
        return True

    def _describe(self) -> None:
        with self.observations.guard("facts"):
            parameters = parameters_of(self._models, self._optimizers)
            device = self._device or torch.device("cpu")
            about = self.about
            about.precision = describe.precision_of(parameters, device, self.autocast)
            about.samples = self._batch_samples
            about.quantities = describe.sizes(parameters, device)
            about.facts = {
                "accumulation_steps": max(self._micro_steps, key=lambda n: self._micro_steps[n], default=1),
                **describe.facts_of(self._models, self._optimizers, device, checkpoints=self._checkpoints),
                **self.gradients.facts,
                **self._calls.looks.facts(),
                "user_hooks": user_hooks(self._models) or about.facts.get("user_hooks", []),
                **self._training_passes.facts,
                **self.more_facts,
            }
            if about.facts.get("compiled"):
                about.facts.setdefault("gradient_checkpointing", None)  # in a compiled graph nobody sees it
