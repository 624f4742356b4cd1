"""Watches an unchanged loop: turns its fetches, calls, backwards and optimizer steps into phases and steps."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any, TypeVar

import torch

from perf_diagnostics.integrations import describe
from perf_diagnostics.integrations.counts import Counts
from perf_diagnostics.integrations.cycle import Cycle
from perf_diagnostics.integrations.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, OTHER, TRAINS, LoopProbe
from perf_diagnostics.integrations.losses import Losses, scales_losses
from perf_diagnostics.integrations.modules import outermost, parts_of, watch_calls
from perf_diagnostics.integrations.recording import About, Recording
from perf_diagnostics.integrations.shield import FAULTS, Shield
from perf_diagnostics.measure.device_clock import event_source
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.records import Json, Outcome, Phase
from perf_diagnostics.workloads.data import loader_facts
from perf_diagnostics.workloads.workload import BatchCount

T = TypeVar("T")

#: A loop that never calls the outermost module calls its parts, or theirs. Deeper than this nobody is looked for.
_DEEPEST_SEARCH = 4
_MOST_PARTS = 64

#: Whose loaders get the next batch before they give out the last one (``DataLoaderShard.__iter__``): a batch counts
#: when it is given out, and the wait where it happens.
_FETCHES_AHEAD = "accelerate.data_loader"

#: Whether a loss is due is looked at every eighth step.
_SELDOM = 7

_WHY_UNSEEN = {
    str(Phase.TRANSFER): "copies to the device are not told apart in a loop that is only watched; they are in other",
    str(Phase.FORWARD): "no call of the model with gradients was seen; its time is in other",
    str(Phase.BACKWARD): "no backward() was seen; its time is in other",
    str(Phase.DATA_WAIT): "no DataLoader was seen; the time to get a batch is in other",
}


def _nobody() -> None:
    """No model is watched yet."""


def _alive(references: Iterable[weakref.ref[T]]) -> list[T]:
    return [thing for reference in references if (thing := reference()) is not None]


class Watch:
    """The state of one watched loop. Its methods are called by the patches; none raises, none waits for a device.

    Only the thread that made it is watched. Calls of the model without gradients, or while it is in evaluation mode,
    are evaluation: their time, and the wait for their batches, is ``other``.

    Args:
        models: the models that are trained; without, they are found by the optimizers' parameters.
        optimizers: those whose turns make a step; more are learned as they step.
        workload: what the trial is called.
        name: of the run.
        results_dir: where runs lie.
    """

    def __init__(
        self,
        *,
        models: Sequence[torch.nn.Module] = (),
        optimizers: Sequence[torch.optim.Optimizer] = (),
        workload: str,
        name: str | None,
        results_dir: Path,
    ) -> None:
        self.observations = Observations()
        self.probe = LoopProbe(bridged=True)
        self.about = About(workload, why_unseen=dict(_WHY_UNSEEN))
        self.recording = Recording(
            self.probe, self.about, self.observations, describe=self._describe, name=name, results_dir=results_dir
        )
        self._shield = Shield(self.observations, self._trip)
        #: False once the watch has ended or lost count: calls go straight through.
        self.active = True
        #: The only thread that is watched.
        self.thread = get_ident()
        self._ended = False
        # Weak: a model that the script lets go must be gone, as it would be without us.
        self._models = [weakref.ref(model) for model in models]
        self._optimizers = {id(optimizer): weakref.ref(optimizer) for optimizer in optimizers}
        self._loader_facts: dict[str, Json] = {}
        self._cycle = Cycle(id(optimizer) for optimizer in optimizers)
        self._open_optimizers: list[tuple[int, FrameType]] = []
        self._watched: list[tuple[weakref.ref[torch.nn.Module], Callable[[], None]]] = []
        self._searches = 0
        self._stranger = False
        self._settled = False
        #: Inside the outermost backward.
        self.in_backward = False
        self._called = False
        self._autocast: torch.dtype | None = None
        self._passes = 0
        self._batch_samples: int | None = None
        self._micro_steps = 1
        self._main: Callable[[], torch.nn.Module | None] = _nobody
        self._evaluated = False
        self._forwards = 0
        self._rows = 0
        self._batches: list[BatchCount | None] = []
        self._losses = Losses()
        self._fetches_ahead = False
        self._ahead: Any = None
        self._known = False
        self.recording.before_take = self._read_losses
        if models:
            try:
                self._watch_models(outermost(models))
            except FAULTS as fault:
                self._shield.take(fault)

    def watches(self) -> bool:
        """Whether what happens now is to be timed."""
        return self.active and get_ident() == self.thread

    def _trip(self) -> None:
        self.active = False

    # -- batches

    def pass_begins(self, loader: object) -> None:
        """The loader starts a pass over its data."""
        try:
            if self._open_optimizers:
                self._forget_lost_steps()
            training = self._training()
            if training and not self._loader_facts:
                self._loader_facts = loader_facts(loader)
            self.probe.enter(DATA_WAIT if training else OTHER)
            if training:
                self._fetches_ahead = sys._getframe(2).f_globals.get("__name__") == _FETCHES_AHEAD
                self._ahead = None
                self.probe.epoch = self._passes
                self._passes += 1
        except FAULTS as fault:
            self._shield.take(fault)

    def pass_began(self) -> None:
        """The pass's iterator is there."""
        try:
            self.probe.leave()
        except FAULTS as fault:
            self._shield.take(fault)

    def fetch_begins(self) -> None:
        """The next batch is asked for."""
        try:
            if self._open_optimizers:
                self._forget_lost_steps()
            if self._evaluated:
                self._settle_fetch()
            main = self._main()
            trains = main is not None and main.training and torch.is_grad_enabled()
            self.probe.enter(DATA_WAIT if trains or self._training() else OTHER)
        except FAULTS as fault:
            self._shield.take(fault)

    def fetch_ends(self, batch: Any) -> None:
        """A batch has come, or None at the pass's end."""
        try:
            ended = self.probe.leave()
            if self._fetches_ahead and ended == DATA_WAIT:
                batch, self._ahead = self._ahead, batch
            if batch is None:
                self.probe.pass_ended()
            elif ended == DATA_WAIT:
                self._evaluated = False
                self._batches.append(describe.count_batch(batch))
        except FAULTS as fault:
            self._shield.take(fault)

    # -- the model

    def module_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        try:
            if self._open_optimizers:
                self._forget_lost_steps()
            probe = self.probe
            inside = probe.open[-1] if probe.open else OTHER
            if inside == FORWARD:
                probe.enter(FORWARD)
            elif torch.is_grad_enabled() and module.training:
                if inside == BACKWARD:
                    probe.enter(FORWARD)
                    return
                if not self._called:
                    self._called = True
                    self._autocast = describe.autocast_dtype(describe.device_of(list(module.parameters())).type)
                self._evaluated = False
                self._forwards += 1
                if not self._batches:
                    self._count_rows(module, args, kwargs)
                probe.enter(TRAINS)
            else:
                self._evaluated = probe.unused_wait
                probe.enter(OTHER)
        except FAULTS as fault:
            self._shield.take(fault)

    def module_ends(self) -> None:
        try:
            self.probe.leave()
        except FAULTS as fault:
            self._shield.take(fault)

    # -- backward

    def backward_begins(self) -> None:
        """The outermost backward begins."""
        try:
            if self._open_optimizers:
                self._forget_lost_steps()
            self.in_backward = True
            self.probe.enter(BACKWARD)
        except FAULTS as fault:
            self._shield.take(fault)

    def backward_ends(self, loss: Any) -> None:
        """It has ended, or raised."""
        self.in_backward = False
        try:
            self.probe.leave()
            if self._losses.wanted:
                self._losses.backward(loss)
        except FAULTS as fault:
            self._shield.take(fault)

    # -- optimizers

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer's step begins; called from a hook, which torch calls from the step itself."""
        try:
            if self._open_optimizers:
                self._forget_lost_steps()
            self._open_optimizers.append((id(optimizer), sys._getframe(2)))
            self.probe.enter(OPTIMIZER)
            known = self._optimizers.get(id(optimizer))
            if known is None or known() is not optimizer:
                self._optimizers[id(optimizer)] = weakref.ref(optimizer)
                self._searches = 0
                self._stranger = True  # it may train another model than those that are watched
        except FAULTS as fault:
            self._shield.take(fault)

    def optimizer_ends(self, optimizer: torch.optim.Optimizer) -> None:
        """Its step has ended, which may end the loop's step."""
        try:
            if not self._open_optimizers or self._open_optimizers[-1][0] != id(optimizer):
                return  # it began before the watch did
            self._open_optimizers.pop()
            self.probe.leave()
            if not self.probe.open and self._cycle.stepped(id(optimizer)):
                self._step_ends()
        except FAULTS as fault:
            self._shield.take(fault)

    def _forget_lost_steps(self) -> None:
        """Torch has no hook for an optimizer step that raises: where its frame is gone and the loop goes on, it did."""
        if self.probe.phase != OPTIMIZER:
            return
        step, frame = self._open_optimizers[-1][1], sys._getframe()
        while frame is not step:
            if frame.f_back is None:
                self.probe.abandon()
                self._open_optimizers.clear()
                return
            frame = frame.f_back

    # -- the end

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        """Stop watching, and write the result."""
        if self._ended:
            return
        self._ended = True
        self.active = False
        self._describe()
        self.about.why_unseen["loss"] = (
            self._losses.why_not or "backward() was not called once a step, on a single number"
        )
        for _, undo in self._watched:
            undo()
        self.recording.finish(outcome, reason, stop_reason)

    # -- inside

    def _training(self) -> bool:
        """Whether a batch that is fetched now is for training: gradients are on, and the model is in training mode."""
        if not torch.is_grad_enabled():
            return False
        known = False
        for reference, _ in self._watched:
            module = reference()
            if module is not None:
                if module.training:
                    return True
                known = True
        return not known

    def _count_rows(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """No loader: the samples are the rows given to the model, those of a closure or of several models once."""
        rows = describe.count_call(args, kwargs) or 0
        alone = len(self._cycle) <= 1 and not self._open_optimizers
        self._rows = self._rows + rows if alone else max(self._rows, rows)

    def _settle_fetch(self) -> None:
        """The last batch went into an evaluation: neither it nor the wait for it belongs to the training."""
        self._evaluated = False
        self.probe.give_back_wait()
        if self._batches:
            self._batches.pop()

    def _step_ends(self) -> None:
        if self._evaluated:
            self._settle_fetch()
        batches = self._batches
        only = batches[0] if len(batches) == 1 else None
        samples, tokens, padding = self._add_up() if only is None else (only.samples, only.tokens, only.padding_tokens)
        if self._losses.wanted:
            self._losses.step_ends(self.probe.steps_on_tape)
        elif not self.recording.steps & _SELDOM:
            self._losses.look()
        self._micro_steps = len(batches)
        self.recording.end_step(samples, tokens, padding)
        if not self._known or self._stranger or not self._forwards:
            self._look_around(samples)
        self._forwards = self._rows = 0
        batches.clear()

    def _add_up(self) -> tuple[int | None, int | None, int | None]:
        """Samples, tokens and padding of a step of several batches, or of none that was seen."""
        if not self._batches:
            return self._rows or None, None, None
        counts = Counts()
        for count in self._batches:
            counts.add(count)
        return counts.samples, counts.tokens, counts.padding_tokens

    def _look_around(self, samples: int | None) -> None:
        """After the first step, and where calls or optimizers are not those that were known."""
        if not self._settled:
            self._settle()
        if self._batch_samples is None and samples:
            self._batch_samples = max(1, samples // (len(self._batches) or self._forwards or 1))
        self._known = self._batch_samples is not None or self.recording.steps > _DEEPEST_SEARCH
        if self._stranger or (not self._forwards and self._searches <= _DEEPEST_SEARCH):
            self._stranger = False
            self.recording.aside(self._search_models)
            self.recording.aside(self._describe)  # a script's function may take the model with it when it ends

    def _settle(self) -> None:
        """The first step is over: by now it is known what is trained, and where."""
        self._settled = True
        parameters = describe.parameters_of(_alive(self._models), _alive(self._optimizers.values()))
        device = describe.device_of(parameters)
        events = event_source(device, self.recording.clock)
        self.about.device = describe.device_name(device)
        if events is not None:
            self.recording.use_events(events)
        if device.type != "cpu" or self._autocast is torch.float16:
            self.recording.aside(self._look_for_a_scaler)

    def _look_for_a_scaler(self) -> None:
        if scales_losses(gc.get_objects()):
            self._losses.refuse("a GradScaler multiplies the loss before backward() is called on it")

    def _read_losses(self) -> None:
        self.probe.keep_losses(self._losses.take())

    def _describe(self) -> None:
        with self.observations.guard("facts"):
            models = _alive(self._models) or _alive(module for module, _ in self._watched)
            optimizers = _alive(self._optimizers.values())
            parameters = describe.parameters_of(models, optimizers)
            if not parameters and self.about.quantities:
                return  # they are gone; what was written about them before stands
            device = describe.device_of(parameters)
            about = self.about
            about.precision = describe.precision_of(parameters, device, self._autocast)
            about.samples = self._batch_samples
            about.quantities = describe.sizes(parameters, device)
            about.facts = {
                "accumulation_steps": max(1, self._micro_steps) if len(self._cycle) == 1 else 1,
                **describe.facts_of(models, optimizers, device),
                **self._loader_facts,
            }

    def _watch_models(self, modules: Sequence[torch.nn.Module]) -> None:
        known = _alive(module for module, _ in self._watched)
        for module in modules[:_MOST_PARTS]:
            if all(module is not other for other in known):
                self._watched.append((weakref.ref(module), watch_calls(module, self)))
        if self._watched:
            self._main = self._watched[0][0]

    def _search_models(self) -> None:
        """Look for the outermost modules of what is trained; where those are not called, one floor below, and so on."""
        if self._searches == 0:
            models, optimizers = _alive(self._models), _alive(self._optimizers.values())
            found = outermost(models, describe.parameters_of((), optimizers))
        else:
            found = [part for module in _alive(module for module, _ in self._watched) for part in parts_of(module)]
        self._searches += 1
        # A step in which the model's calls were not seen yet is no measurement.
        self.recording.warm_up_until(self.recording.steps + 1)
        self._watch_models(found)
