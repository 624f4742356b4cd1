"""Watches an unchanged loop: turns its fetches, calls, backwards and optimizer steps into phases and steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.ends.abrupt_ends import abrupt_ends
from perf_diagnostics.integrations.looks.crossings_look import CrossingsLook
from perf_diagnostics.integrations.looks.looks import Looks
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.model.called_masks import MaskReader
from perf_diagnostics.integrations.model.modules import may_give_gradients, next_operation, watch_beside, watch_calls
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.quick_turns import quick_turns
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.integrations.shield import LoopObservations, Shield
from perf_diagnostics.integrations.steps.cycle import Cycle
from perf_diagnostics.integrations.steps.hindsight import HindsightProbe
from perf_diagnostics.integrations.steps.loop_memory import LoopMemory
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, DATA_WAIT, FORWARD, OPTIMIZER, OTHER
from perf_diagnostics.integrations.steps.passes import Passes
from perf_diagnostics.integrations.steps.step_state import NOTHING
from perf_diagnostics.integrations.watching.between_calls import BetweenCalls
from perf_diagnostics.integrations.watching.optimizer_turns import OptimizerTurns
from perf_diagnostics.integrations.watching.updates_by_hand import GoesOn, UpdatesByHand
from perf_diagnostics.integrations.watching.watched_steps import WatchedSteps
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.module_calls import TimedCalls
from perf_diagnostics.measure.one_step.look import StepLook
from perf_diagnostics.measure.steps.tape import APART, AT, KEEPS, LEAVE
from perf_diagnostics.records import Outcome, Phase

#: Whose loaders get the next batch before they give out the last one (``DataLoaderShard.__iter__``): a batch counts
#: when it is given out, and the wait where it happens.
_FETCHES_AHEAD = "accelerate.data_loader"

_WHY_UNSEEN = {
    str(Phase.TRANSFER): "no copy of a batch to the device was seen; its time, if there was one, is in other",
    str(Phase.FORWARD): "no call of the model with gradients was seen; its time is in other",
    str(Phase.BACKWARD): "no backward() was seen; its time is in other",
    str(Phase.DATA_WAIT): "no DataLoader was seen; the time to get a batch is in other",
}


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
        self.observations = LoopObservations()
        self.probe = HindsightProbe(bridged=True, memory=LoopMemory(self.observations))
        self.state = self.probe.state
        self.about = About(workload, why_unseen=dict(_WHY_UNSEEN))
        self.recording = Recording(
            self.probe,
            self.about,
            self.observations,
            describe=self._describe,
            name=name,
            results_dir=results_dir,
        )
        self._shield = Shield(self.observations, self._trip)
        #: The only thread that is watched.
        self.thread = get_ident()
        #: Called with each trained model before its calls are timed; what is to be changed about them is.
        self.before_timed: Callable[[torch.nn.Module], None] = lambda _model: None
        self.trained = Trained(models, optimizers, self._watch_calls, self._watch_beside)
        cycle = Cycle(id(optimizer) for optimizer in optimizers)
        self.steps = WatchedSteps(self.probe, self.recording, self.trained, self.about, self.observations, cycle=cycle)
        self.turns = OptimizerTurns(self.steps, cycle, named=bool(optimizers))
        self.batches = self.steps.batches
        self.by_hand = UpdatesByHand(
            self.steps,
            self.turns,
            about=self.about,
            observations=self.observations,
            leave=self.leave,
            fails=self.fails,
        )
        self.turns.when_met = self.by_hand.optimizer_steps
        self.between = BetweenCalls(self.probe, self.trained, self.observations)
        self.steps.when_ended = self.between.step_ends
        self.state.full = self.many_marks
        #: Whether the pass over a loader that began last is for training, and all such passes.
        self.pass_trains = False
        self._training_passes = Passes()
        self._passes = 0
        #: When the last pass began, by the training up to then (:attr:`_trained_until`); None where it is surely for
        #: training, or none, and whether it was found to be an evaluation's.
        self._in_doubt: tuple[int, int] | None = None
        self._taken_back = False
        self.steps.when_given_back = self._pass_may_be_an_evaluation
        #: Whether the last wait for a batch brought none, because the pass was over.
        self._read_all = False
        self._ahead: Any = None
        self._ended = False
        self.recording.exchanges.modules = lambda: self.trained.everything
        operators = StepLook(
            self.observations,
            lambda: self.trained.modules,
            lambda: self.trained.beside.modules,
            self.trained.all_optimizers,
            lambda: self.state.inside in {OPTIMIZER, DATA_WAIT},
            goes_back=lambda: self.state.inside == BACKWARD,
            updates=lambda: self.state.inside == OPTIMIZER,
        )
        crossings = CrossingsLook(
            self.observations, self.probe, operators.why_not, operators.trained_models, clock=self.recording.clock
        )
        self.recording.looks = Looks(operators, crossings)
        try:
            self.trained.watch_models()
            self.steps.find_main()
        except FAULTS as fault:
            self.fails(fault)

    def watches(self) -> bool:
        """Whether what happens now is to be timed."""
        return self.state.active and get_ident() == self.thread

    def fails(self, fault: Exception) -> None:
        """Something of ours went wrong: that ends the measuring, and nothing else."""
        self._shield.take(fault)

    def _trip(self) -> None:
        self.state.see(False)
        if self.recording.looks is not None:
            self.recording.looks.measuring_ended()

    def _describe(self) -> None:
        self.steps.describe()

    def many_marks(self) -> None:
        """There are many marks on the tape: those of a step that goes on without end are added up."""
        if self.probe.long_step() is not None:
            self.turns.stop_waiting()
            self.steps.fold()

    def leave(self) -> int:
        """The innermost phase ends, and is given as an index."""
        state, around = self.state, self.probe.open
        ended = state.inside
        if ended == NOTHING:
            return OTHER
        state.inside = around.pop() if around else NOTHING
        state.mark(self.recording.clock() + AT[LEAVE])
        return ended

    def _update_may_be_over(self, how: GoesOn) -> None:
        """The loop goes on while an update is under way: one by hand may be over, an optimizer's may have raised."""
        if self.by_hand.tail_is_open:
            self.by_hand.goes_on(how)
        else:
            self.turns.forget_lost_steps()

    def pass_begins(self, loader: object, asker: str) -> None:
        """The loader starts a pass over its data, asked to by code of a module of this name."""
        if self.state.inside == OPTIMIZER:
            self._update_may_be_over(GoesOn.FETCHES)
        if self.state.evaluated:
            self.steps.give_back_batch()
        known = self._training_passes.knows(loader)
        if not known and torch.is_grad_enabled():
            self.turns.look_ahead(read_all=self._read_all)
        self.pass_trains = training = self.trains_now() or (known and torch.is_grad_enabled())
        if training:
            self._training_passes.begin(loader)
            self.about.pass_reads.pass_begins()
            self.trained.loader_facts = self.about.loader_facts = self._training_passes.facts
        self.probe.enter(DATA_WAIT if training else OTHER)
        if training:
            self.state.fetches_ahead = asker == _FETCHES_AHEAD
            self._ahead = None
            self.probe.epoch_begins(self._passes, of_step=not self.batches)
            self._passes += 1
            # Of two that begin before anything was trained on, nobody can tell whose batch it is.
            self._in_doubt = None if self._in_doubt == self._trained_until else self._trained_until
        self._taken_back = False

    @property
    def _trained_until(self) -> tuple[int, int]:
        """Changes with each call of a model to be trained: when the last step ended, and the calls since then."""
        return self.state.ended_ns, self.state.forwards

    def _pass_may_be_an_evaluation(self) -> None:
        """A batch was evaluated on: if nothing was trained on since its pass began, neither is that the training's.

        Many a loop puts the model into evaluation mode only when it has the first batch.
        """
        evaluated, self._in_doubt = self._in_doubt == self._trained_until, None
        if not evaluated:
            return
        self._taken_back = True
        self._training_passes.take_back()
        self.about.pass_reads.take_back()
        self.trained.loader_facts = self.about.loader_facts = self._training_passes.facts
        self._passes -= 1
        self.probe.epoch_begins(max(0, self._passes - 1), of_step=not self.batches)
        if not self.batches:
            self.probe.pass_ended()

    def pass_began(self) -> None:
        """The pass's iterator is there."""
        self.leave()

    def fetch_begins(self, *, trains: bool) -> None:
        """The next batch is asked for, of a pass for training or not, and it may not be for training."""
        if self.state.inside == OPTIMIZER:
            self._update_may_be_over(GoesOn.FETCHES)
        if self.state.evaluated:
            self.steps.give_back_batch()
        # Many a loop evaluates now and then, and calls train() only when it has the next batch.
        self.probe.enter(DATA_WAIT if self.trains_now() or (trains and torch.is_grad_enabled()) else OTHER)

    def batch_came(self, batch: Any, cpu_ns: int) -> None:
        """A wait for training has brought a batch (None: the pass is over), and the thread's CPU so much in it."""
        self.probe.add_wait_cpu(cpu_ns)
        if self.state.fetches_ahead:
            batch, self._ahead = self._ahead, batch
        self._read_all = batch is None
        if batch is not None:
            self.state.unused_wait = True
            self._training_passes.batch_came(batch)
            self.batches.append(describe.count_batch(batch))
        elif self._taken_back:
            self._taken_back = False  # what is over is the evaluation
        elif not self.state.fetches_ahead:  # else the first batch is not told either
            self.about.pass_reads.pass_ended()

    def call_begins(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reader: MaskReader | None,
        code: int,
    ) -> None:
        """A model is called, perhaps inside something else, and perhaps not to be trained; ``code`` tells how."""
        if self.state.inside == OPTIMIZER:
            self._update_may_be_over(GoesOn.TRAINS if torch.is_grad_enabled() and module.training else GoesOn.ASKS)
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
            if self.steps.beside:
                self.steps.trained_on()
            state.evaluated = state.unused_wait = False
            state.forwards += 1
            if reader is not None:
                self.steps.count_masked(reader, args, kwargs)
            elif not self.batches or (self.steps.rows_wanted and state.forwards > len(self.batches)):
                self.steps.count_rows(module, args, kwargs)
            if not may_give_gradients(args, kwargs):
                self._nothing_since_forward()
            probe.enter(code)
        else:
            state.evaluated = state.unused_wait
            probe.enter(code)

    def backward_begins(self, code: int, loss: Any) -> None:
        """The outermost backward begins on this, inside something else or in one of the first steps."""
        if self.state.inside == OPTIMIZER:
            self._update_may_be_over(GoesOn.TRAINS)
        self.between.backward_begins()
        self._nothing_since_forward()
        self.probe.enter(code)
        if self.steps.looks.wanted:
            with self.observations.guard("gradients"):
                self.steps.looks.begins(loss, keeps=code == KEEPS)

    def _nothing_since_forward(self) -> None:
        """Mark it where nothing that gradients go through was computed since the last forward ended."""
        state = self.state
        if next_operation() == state.sequence:
            state.sequence = -1
            state.mark(self.recording.clock() + AT[APART])

    def backward_looked_into(self) -> None:
        """A backward of the first steps has ended."""
        with self.observations.guard("gradients"):
            self.steps.looks.ends()

    def looks_end(self) -> None:
        """What looks through a step comes off."""
        self.between.stop()
        if self.recording.looks is not None:
            self.recording.looks.training_ended()

    def checkpointed(self) -> None:
        """Activations are let go, to be computed again."""
        self.trained.checkpoints = self.trained.checkpoints or self.watches()

    def end(self, outcome: Outcome, reason: str, stop_reason: str) -> None:
        """Stop watching, and write the result."""
        if self._ended:
            return
        self._ended = True
        whole = self.state.active
        self.state.see(False)
        self.recording.break_off(outcome, reason)
        with self.observations.guard("steps"):
            self.turns.settle()
            if whole and not self.recording.steps and not self.state.plain_steps:
                self.observations.note("steps", self._why_no_step(reason if outcome is Outcome.CRASHED else ""))
        self.steps.describe()
        self.about.why_unseen["loss"] = (
            self.steps.losses.why_not or "backward() was not called once a step, on a single number"
        )
        self.trained.let_go()
        try:
            with quick_turns():
                self.recording.finish(outcome, reason, stop_reason)
        finally:
            abrupt_ends.remove(self)

    def _why_no_step(self, fault: str) -> str:
        """What was seen instead of a step to measure; ``fault`` is what broke off the training, if anything did."""
        if unseen := self.recording.unseen_steps:
            first = f"{unseen} step{'s were' if unseen > 1 else ' was'} seen"
            return f"{first}, in which it was found what is trained; train for some more"
        if fault:
            return f"the training broke off before its first step was over ({fault}); mend that, and run it again"
        if self.turns.met and self.probe.entered_so_far(OPTIMIZER):
            return "the training ended before the first step of an optimizer did"
        ends = "steps end where optimizer.step() ends"
        backwards = max(self.probe.entered_so_far(BACKWARD), self.by_hand.backwards)
        if backwards:
            seen = self.by_hand.seen()
            ends += ", or where the loop itself has changed the parameters" if seen else ""
            return f"no optimizer stepped; backward was called {_times(backwards)}{seen} ({ends})"
        calls = self.probe.entered_so_far(FORWARD)
        if calls:
            return f"no optimizer stepped and backward was not called; a model was called {_times(calls)} ({ends})"
        seen = "neither backward nor an optimizer's step was seen in the thread that was watched"
        return f"{seen}; other threads and processes are not watched ({ends})"

    def trains_now(self) -> bool:
        """Whether a batch that is fetched now is for training: gradients are on, and the model is in training mode."""
        return torch.is_grad_enabled() and self.trained.in_training_mode

    def _watch_calls(self, module: torch.nn.Module) -> TimedCalls:
        self.before_timed(module)
        return watch_calls(module, self)

    def _watch_beside(self, module: torch.nn.Module) -> TimedCalls:
        return watch_beside(module, self)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
