"""Watches an unchanged loop: turns its fetches, calls, backwards and optimizer steps into phases and steps."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from types import CodeType, FrameType
from typing import Any

import torch

from perf_diagnostics.integrations import describe
from perf_diagnostics.integrations.counts import Counts
from perf_diagnostics.integrations.cycle import Cycle
from perf_diagnostics.integrations.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, OTHER, TRAINS, LoopProbe
from perf_diagnostics.integrations.losses import Losses, scales_losses
from perf_diagnostics.integrations.modules import watch_calls
from perf_diagnostics.integrations.recording import About, Recording
from perf_diagnostics.integrations.shield import FAULTS, Shield
from perf_diagnostics.integrations.step_state import NOTHING
from perf_diagnostics.integrations.trained import DEEPEST_SEARCH, Trained
from perf_diagnostics.measure.device_clock import event_source
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.tape import BITS, LEAVE
from perf_diagnostics.records import Outcome, Phase
from perf_diagnostics.workloads.data import loader_facts
from perf_diagnostics.workloads.workload import BatchCount

#: Whose loaders get the next batch before they give out the last one (``DataLoaderShard.__iter__``): a batch counts
#: when it is given out, and the wait where it happens.
_FETCHES_AHEAD = "accelerate.data_loader"

#: However alike the steps are, one in so long a time is ended in full: it looks whether a loss is due.
_LOOK_NS = 20_000_000

_WHY_UNSEEN = {
    str(Phase.TRANSFER): "no copy of a batch to the device was seen; its time, if there was one, is in other",
    str(Phase.FORWARD): "no call of the model with gradients was seen; its time is in other",
    str(Phase.BACKWARD): "no backward() was seen; its time is in other",
    str(Phase.DATA_WAIT): "no DataLoader was seen; the time to get a batch is in other",
}


def _nothing() -> None:
    """Nothing is to be done."""


class Watch:
    """The state of one watched loop, and what has to be done where its steps are not plain.

    What stands in torch's calls (:mod:`.patches`, :mod:`.loader_patches`, :mod:`.modules`) writes the marks of a plain
    step itself, in one piece: calls are what Python is slow at. It asks here about everything else, inside its ``try``,
    so that nothing reaches the training. Nothing waits for a device.

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
        self.state = self.probe.state
        self.about = About(workload, why_unseen=dict(_WHY_UNSEEN))
        self.recording = Recording(
            self.probe, self.about, self.observations, describe=self._describe, name=name, results_dir=results_dir
        )
        self._shield = Shield(self.observations, self._trip)
        #: The only thread that is watched.
        self.thread = get_ident()
        self.trained = Trained(models, optimizers, self._watch_calls)
        self.cycle = Cycle(id(optimizer) for optimizer in optimizers)
        self.losses = Losses()
        #: What the batches of the step hold, and the optimizers that are in their steps, by identity, outermost first.
        self.batches: list[int | BatchCount | None] = []
        self.stepping: list[int] = []
        #: The optimizers that have stepped, by identity.
        self.met: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._step_codes: set[CodeType] = set()
        #: Called once, where the training turns out not to run on the CPU.
        self.when_on_device: Callable[[], None] = _nothing
        self._rows = self._row_calls = 0
        #: Whether the pass over a loader that began last is for training, and the loaders of all such passes.
        self.pass_trains = False
        self._training_loaders: set[int] = set()
        self._passes = 0
        self._ahead: Any = None
        self._ended = self._settled = self._known = self._stranger = False
        self.recording.before_take = self._read_losses
        self.recording.exchanges.modules = lambda: self.trained.everything
        try:
            self.trained.watch_models()
            self._find_main()
        except FAULTS as fault:
            self.fails(fault)

    def watches(self) -> bool:
        """Whether what happens now is to be timed."""
        return self.state.active and get_ident() == self.thread

    def fails(self, fault: Exception) -> None:
        """Something of ours went wrong: that ends the measuring, and nothing else."""
        self._shield.take(fault)

    def _trip(self) -> None:
        self.state.active = False

    def leave(self) -> int:
        """The innermost phase ends, and is given as an index."""
        state, around = self.state, self.probe.open
        ended = state.inside
        if ended == NOTHING:
            return OTHER
        state.inside = around.pop() if around else NOTHING
        state.mark(self.recording.clock() << BITS | LEAVE)
        return ended

    # -- batches

    def pass_begins(self, loader: object, asker: str) -> None:
        """The loader starts a pass over its data, asked to by code of a module of this name."""
        if self.state.inside == OPTIMIZER:
            self.forget_lost_steps()
        known = id(loader) in self._training_loaders
        self.pass_trains = training = self.trains_now() or (known and torch.is_grad_enabled())
        if training and not known:
            self._training_loaders.add(id(loader))
        if training and not self.trained.loader_facts:
            self.trained.loader_facts = loader_facts(loader)
        self.probe.enter(DATA_WAIT if training else OTHER)
        if training:
            self.state.fetches_ahead = asker == _FETCHES_AHEAD
            self._ahead = None
            self.probe.epoch_begins(self._passes, of_step=not self.batches)
            self._passes += 1

    def pass_began(self) -> None:
        """The pass's iterator is there."""
        self.leave()

    def fetch_begins(self, *, trains: bool) -> None:
        """The next batch is asked for, of a pass for training or not, and it may not be for training."""
        if self.state.inside == OPTIMIZER:
            self.forget_lost_steps()
        if self.state.evaluated:
            self._settle_fetch()
        # Many a loop evaluates now and then, and calls train() only when it has the next batch.
        self.probe.enter(DATA_WAIT if self.trains_now() or (trains and torch.is_grad_enabled()) else OTHER)

    def batch_came(self, batch: Any, cpu_ns: int) -> None:
        """A wait for training has brought a batch (None: the pass is over), and the thread's CPU so much in it."""
        self.probe.add_wait_cpu(cpu_ns)
        if self.state.fetches_ahead:
            batch, self._ahead = self._ahead, batch
        if batch is not None:
            self.state.unused_wait = True
            self.batches.append(describe.count_batch(batch))

    # -- the model

    def call_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is called, perhaps inside something else, and perhaps not to be trained."""
        if self.state.inside == OPTIMIZER:
            self.forget_lost_steps()
        state, probe = self.state, self.probe
        inside = state.inside
        if inside == FORWARD:
            probe.enter(FORWARD)
        elif torch.is_grad_enabled() and module.training:
            if inside == BACKWARD:
                probe.enter(FORWARD)
                return
            if not state.called:
                state.called = True
                self.trained.called_in(module)
            state.evaluated = state.unused_wait = False
            state.forwards += 1
            if not self.batches:
                self.count_rows(args, kwargs)
            probe.enter(TRAINS)
        else:
            state.evaluated = state.unused_wait
            probe.enter(OTHER)

    def count_rows(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """No loader: the samples are the rows given to the model, those of a closure or of several models once."""
        rows = describe.count_call(args, kwargs) or 0
        if len(self.cycle) <= 1 and not self.stepping:
            self._rows, self._row_calls = self._rows + rows, self._row_calls + 1
        else:
            self._rows, self._row_calls = max(self._rows, rows), 1

    # -- backward and optimizers

    def backward_begins(self) -> None:
        """The outermost backward begins inside something else."""
        if self.state.inside == OPTIMIZER:
            self.forget_lost_steps()
        self.probe.enter(BACKWARD)

    def step_begins_inside(self) -> None:
        """An optimizer's step begins inside something else: what is around it goes on afterwards."""
        if self.state.inside == OPTIMIZER:
            self.forget_lost_steps(beginning=1)
        if self.state.inside != NOTHING:
            self.probe.open.append(self.state.inside)

    def meet(self, optimizer: torch.optim.Optimizer, step: FrameType) -> None:
        """An optimizer steps for the first time; ``step`` is the frame that calls its hooks."""
        self.met[id(optimizer)] = weakref.ref(optimizer)
        self.state.same = None
        self._step_codes.add(step.f_code)
        known = self.trained.optimizers.get(id(optimizer))
        if known is None or known() is not optimizer:
            self.trained.meet(optimizer)
            self._stranger = True

    def forget_lost_steps(self, beginning: int = 0) -> None:
        """Torch has no hook for an optimizer step that raises: where its frame is gone and the loop goes on, it did.

        Args:
            beginning: steps on the stack that are not among the open ones yet.
        """
        frame: FrameType | None = sys._getframe(1)
        alive = -beginning
        while frame is not None:
            alive += frame.f_code in self._step_codes
            frame = frame.f_back
        if alive < len(self.stepping):
            self.probe.abandon()
            self.stepping.clear()

    def step_ends(self) -> None:
        """The loop's step ends with what its last optimizer has just done."""
        state, batches = self.state, self.batches
        if state.evaluated:
            self._settle_fetch()
        self._catch_up()
        samples, tokens, padding = self._add_up()
        if self.losses.wanted:
            self.losses.step_ends(self.probe.steps_on_tape)
        else:
            self.losses.look()
        self.trained.micro_steps = len(batches)
        state.same = batches.copy() or None  # what begins a block of steps takes it back
        self.recording.end_step(samples, tokens, padding)
        if not self._known or self._stranger or not state.forwards:
            self._look_around(samples)
        self._row_calls = 0
        state.ended_ns = self.recording.clock()
        may_be_plain = self.probe.plain and not self.losses.wanted
        state.due_ns = min(self.recording.quiet_until_ns, state.ended_ns + _LOOK_NS) if may_be_plain else 0
        state.forwards = 0
        state.unused_wait = False
        batches.clear()

    def _catch_up(self) -> None:
        """Count the steps that ended without being told of."""
        steps, self.state.plain_steps = self.state.plain_steps, 0
        if steps:
            self.probe.ended(steps)
            self.recording.ended(steps, self.state.ended_ns)

    # -- the end

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        """Stop watching, and write the result."""
        if self._ended:
            return
        self._ended = True
        self.state.active = False
        self._describe()
        self.about.why_unseen["loss"] = (
            self.losses.why_not or "backward() was not called once a step, on a single number"
        )
        self.trained.let_go()
        self.recording.finish(outcome, reason, stop_reason)

    # -- inside

    def trains_now(self) -> bool:
        """Whether a batch that is fetched now is for training: gradients are on, and the model is in training mode."""
        return torch.is_grad_enabled() and self.trained.in_training_mode

    def _watch_calls(self, module: torch.nn.Module) -> Callable[[], None]:
        return watch_calls(module, self)

    def _find_main(self) -> None:
        if self.trained.main is not None:
            self.state.main = self.trained.main

    def _settle_fetch(self) -> None:
        """The last batch went into an evaluation: neither it nor the wait for it belongs to the training."""
        self.state.evaluated = self.state.unused_wait = False
        self.probe.give_back_wait()
        if self.batches:
            self.batches.pop()

    def _add_up(self) -> tuple[int | None, int | None, int | None]:
        """Samples, tokens and padding of a step of several batches, or of none that was seen."""
        rows, self._rows = self._rows, 0
        if not self.batches:
            return rows or None, None, None
        counts = Counts()
        for count in self.batches:
            counts.add(BatchCount(count) if isinstance(count, int) else count)
        return counts.samples, counts.tokens, counts.padding_tokens

    def _look_around(self, samples: int | None) -> None:
        """After the first step, and where calls or optimizers are not those that were known."""
        if not self._settled:
            self._settle()
        trained = self.trained
        if trained.batch_samples is None and samples:
            trained.batch_samples = max(1, samples // (len(self.batches) or self._row_calls or 1))
        self._known = trained.batch_samples is not None or self.recording.steps > DEEPEST_SEARCH
        if self._stranger or (not self.state.forwards and trained.searches <= DEEPEST_SEARCH):
            self._stranger = False
            # A step in which the model's calls were not seen yet is no measurement.
            self.recording.warm_up_until(self.recording.steps + 1)
            self.recording.aside(trained.search)
            self._find_main()
            self.recording.aside(self._describe)  # a script's function may take the model with it when it ends

    def _settle(self) -> None:
        """The first step is over: by now it is known what is trained, and where."""
        self._settled = True
        device = self.trained.device
        events = event_source(device, self.recording.clock)
        self.about.device = describe.device_name(device)
        if events is not None:
            self.recording.use_events(events)
        if device.type == "cpu":
            self.about.why_unseen[str(Phase.TRANSFER)] = "the training runs on the CPU, where no copies are looked for"
        else:
            self.when_on_device()
        if device.type != "cpu" or self.trained.autocast is torch.float16:
            self.recording.aside(self._look_for_a_scaler)

    def _look_for_a_scaler(self) -> None:
        if scales_losses(gc.get_objects()):
            self.losses.refuse("a GradScaler multiplies the loss before backward() is called on it")

    def _read_losses(self) -> None:
        self._catch_up()
        self.probe.keep_losses(self.losses.take())

    def _describe(self) -> None:
        with self.observations.guard("facts"):
            self.trained.tell(self.about, takes_turns=len(self.cycle) != 1)
