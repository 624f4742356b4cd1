"""Finds the steps of a loop that updates its parameters by hand, without an optimizer of torch.

Nothing calls such an update, so it is found by what it does: after a backward the parameters are others than before.
As long as no optimizer has stepped, a few of them are looked at around each backward. Once they have changed, and no
optimizer is there that could have done it, what follows each backward is marked until the loop goes on to its next
batch, forward or backward; where the parameters have changed in it, the step ends there.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from enum import Enum, auto
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.model.parameter_changes import (
    ParameterChanges,
    inside_transforms,
    modules_of,
    plain,
    reached,
)
from perf_diagnostics.integrations.steps.cycle import BY_HAND
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, OPTIMIZER
from perf_diagnostics.integrations.steps.step_state import NOTHING
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.integrations.watching.optimizer_turns import OptimizerTurns
from perf_diagnostics.integrations.watching.update_ends import UpdateEnds
from perf_diagnostics.integrations.watching.watched_steps import WatchedSteps
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.living import living
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.device_clock import captures
from perf_diagnostics.records import Phase

#: What ``torch.autograd.backward`` and ``torch.autograd.grad`` both call.
ENGINE = "_engine_run_backward"

#: After so many backwards without a change nobody looks any more: an attack, or a map of what matters in an input.
_MOST_BACKWARDS = 256

#: So often it is looked whether what changes, and is no parameter by its type, may be one by its shape.
_MOST_DOUBTS = 3

#: Operators of a graph that are looked at for the parameters next to the loss, and how many of these are enough.
_NEAR, _ENOUGH = 512, 16
_MOST_NODES = 20_000

NOTE = (
    "The parameters are updated by hand, not by an optimizer of torch: a step ends where the loop goes on to its next "
    "batch or forward after it has changed them."
)


class GoesOn(Enum):
    """What the loop does next, after a backward."""

    FETCHES = auto()
    TRAINS = auto()
    #: A model is called, or a batch fetched, without gradients.
    ASKS = auto()


class UpdatesByHand:
    """The updates that a loop makes without an optimizer, and the steps that end with them.

    Args:
        steps: the loop's.
        turns: of its optimizers, where there come to be any.
        about: what is known about the training.
        observations: where it is noted that looking failed.
        leave: ends the innermost phase.
        fails: takes a fault of ours.
    """

    def __init__(
        self,
        steps: WatchedSteps,
        turns: OptimizerTurns,
        *,
        about: About,
        observations: Observations,
        leave: Callable[[], object],
        fails: Callable[[Exception], None],
    ) -> None:
        self._steps = steps
        self._state, self._probe, self._trained = steps.state, steps.probe, steps.trained
        self._turns = turns
        self._about, self._observations = about, observations
        self._leave, self._take_fault = leave, fails
        self._ends = UpdateEnds(self._probe, self._trained, observations)
        #: The only thread that is watched.
        self._thread = get_ident()
        self._changes = ParameterChanges()
        #: What is put into torch for it.
        self.patches = ExitStack()
        self._off = True
        #: Whether what follows a backward is marked; else it is only looked whether parameters change.
        self._follows = False
        #: Whether the engine is under way, and whether its work is to be differentiated itself.
        self._inside = self._inner = False
        #: Whether what follows the backward is marked, as long as an optimizer's phase is open.
        self._tail = False
        #: What the last backward gave gradients to.
        self._before: list[weakref.ref[torch.Tensor]] = []
        self._doubts = 0
        #: Whether each update is told by the parameters; None as long as it is not known. Else backwards are counted:
        #: those since the last update, and as many as an update has.
        self._told: bool | None = None
        self._since = self._usual = 0
        self.backwards = self.changes = 0

    def begin(self) -> dict[str, Callable[..., Any]]:
        """Look for updates from here on, until an optimizer steps: what is to stand in for torch.autograd's functions.

        Nothing, where an optimizer was named, or holds what was.
        """
        trained = self._trained
        if trained.optimizers or self._is_held(parameters_of(trained.everything, ())):
            return {}
        if not hasattr(torch.autograd, ENGINE):
            return {}
        self._off = False
        self._follows = bool(self._trained.everything)  # a model was named, and no optimizer
        untraced(UpdatesByHand._begins, UpdatesByHand._ended, UpdatesByHand._mark_tail, and_what_they_call=True)
        stand_ins: dict[str, Callable[..., Any]] = {}
        for name, timed in ((ENGINE, self._engine), ("backward", self._backward)):
            original: Callable[..., Any] = getattr(torch.autograd, name)
            stand_ins[name] = functools.wraps(original)(timed(original))
            untraced(stand_ins[name], and_what_they_call=False)
        return stand_ins

    def stop(self) -> None:
        """Nobody updates by hand, or the training is over."""
        self._off = True
        self.patches.close()
        self._ends.stop()
        if self.tail_is_open:
            self._tail = False
            self._leave()
            self._probe.no_update()

    def optimizer_steps(self) -> None:
        """An optimizer steps for the first time: from here on they end the steps."""
        if not self._off:
            self.stop()
            self._turns.cycle.forget(BY_HAND)

    @property
    def tail_is_open(self) -> bool:
        """Whether what follows a backward is marked just now."""
        return self._tail and self._state.inside == OPTIMIZER

    def goes_on(self, how: GoesOn) -> None:
        """The loop goes on after a backward: were the parameters updated by then?"""
        asks = how is GoesOn.ASKS or not torch.is_grad_enabled()
        if asks and not self._has_updated:
            self._ends.give_up()
            return  # what is asked for in between is no part of an update that may still come
        self._tail = False
        self._leave()
        updated = self._updated()
        # Without a loader the next batch is made here as well, which is no update.
        loads = how is GoesOn.FETCHES or bool(self._steps.batches)
        self._ends.ends(updated=updated)
        if not updated or not loads or self._ends.known:
            self._probe.no_update()
        if updated:
            self._turns.step_by_hand_ends()

    def seen(self) -> str:
        """What was seen of the parameters, where no step has ended; empty where nobody looked."""
        if not self.backwards:
            return ""
        if self.changes:
            return ", and the parameters changed too seldom between them"
        if self._doubts:
            return ", and between them no parameter of a module changed, but other tensors did"
        first = f" first {_MOST_BACKWARDS}" if self.backwards > _MOST_BACKWARDS else "m"
        return f", and the parameters did not change between the{first}"

    # -- inside

    def _engine(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """What computes gradients, seen."""
        state, around, thread = self._state, self._probe.open, self._thread

        def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
            if self._off or self._inside or not state.active or get_ident() != thread or _captured(outputs):
                return original(outputs, *args, **kwargs)
            marked = False
            try:
                self._begins(outputs, args)
                if self._follows and state.inside != BACKWARD and BACKWARD not in around:
                    marked = self._mark_backward()
            except FAULTS as fault:
                self._fails(fault)
            self._inside = True
            try:
                made = original(outputs, *args, **kwargs)
            finally:
                self._inside = False
                try:
                    if marked:
                        self._leave()
                except FAULTS as fault:
                    self._take_fault(fault)
            try:
                self._ended(outputs, args, made)
                if marked:
                    self._mark_tail()
            except FAULTS as fault:
                self._fails(fault)
            return made

        return run_backward

    def _backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """``torch.autograd.backward``, after which an update may follow."""
        state, thread = self._state, self._thread

        def backward(*args: Any, **kwargs: Any) -> Any:
            made = original(*args, **kwargs)
            if self._follows and not self._off and state.active and get_ident() == thread:
                try:
                    self._mark_tail()
                except FAULTS as fault:
                    self._take_fault(fault)
            return made

        return backward

    def _fails(self, fault: Exception) -> None:
        """Something of ours went wrong; as long as nobody is known to update by hand, only looking for that ends."""
        if self._follows:
            self._take_fault(fault)
            return
        self.stop()
        with self._observations.guard("updates_by_hand"):
            raise fault

    def _mark_backward(self) -> bool:
        """``torch.autograd.grad`` begins; true where its end is to be marked, too."""
        if self.tail_is_open:
            self.goes_on(GoesOn.TRAINS)
        if self._state.inside != NOTHING:
            return False
        self._probe.enter(BACKWARD)
        return True

    def _begins(self, outputs: Any, args: tuple[Any, ...]) -> None:
        """The engine is about to run: has something changed since it ran last?"""
        create_graph, inputs = bool(args[2]), args[3]
        self._inner = create_graph and inside_transforms() != 1
        self.backwards += not self._inner
        if self._told is not None or self._inner:
            return
        if self.backwards > _MOST_BACKWARDS or self._is_held(_near(outputs)):
            self.stop()
            return
        if self._changes.any(waits=True):
            told = self._changes.can_be_told
            if self._are_trained(self._changes.tensors, outputs):
                self._follow(told=told)
        elif self._replaced(tensors := _reached(outputs, inputs)) and self._are_trained(tensors, outputs):
            self._follow(told=False)

    def _ended(self, outputs: Any, args: tuple[Any, ...], made: Any) -> None:
        """The engine has run: what are the parameters like now, before they are updated?"""
        if self._inner:
            return
        if self._told is not None:
            self._since += 1
            if self._told and not self._changes.alive:  # there is another model by now
                tensors = _reached(outputs, args[3])
                self._changes.look(tensors, [None] * len(tensors))
                self._trained.begin_by_hand(tensors)
                self._steps.stranger = True
            return
        tensors = _reached(outputs, args[3])
        self._since = 1 if self._replaces(tensors) else self._since + 1
        given = made if made and len(made) == len(tensors) else [one.grad if one.is_leaf else None for one in tensors]
        self._changes.look(tensors, [plain(one) if isinstance(one, torch.Tensor) else None for one in given])
        self._before = [weakref.ref(one) for one in tensors]

    def _replaces(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these take the place of what the last backward gave gradients to, one by one."""
        before = [reference() for reference in self._before]
        alike = bool(before) and len(before) == len(tensors)
        return alike and not any(one is other for one in tensors for other in before)

    def _replaced(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Whether these may be new parameters: those of a module are changed, and not replaced."""
        before = [one for reference in self._before if (one := reference()) is not None]
        return self._replaces(tensors) and not any(isinstance(one, torch.nn.Parameter) for one in (*before, *tensors))

    def _are_trained(self, changed: Sequence[torch.Tensor], outputs: Any) -> bool:
        """Whether what has changed between two backwards are parameters that nobody else is there to update.

        An optimizer of something else is no reason against it. One that has not stepped yet may be that of an outer
        loop (meta-learning), whose parameters an inner one begins with copies of.

        Args:
            changed: what has, or what it was replaced by.
            outputs: what the backward that is under way begins at.
        """
        if self._doubts >= _MOST_DOUBTS:
            return False
        there = living()
        every = reached([plain(one) for one in outputs], nodes=_MOST_NODES, leaves=_MOST_NODES)
        if any(self._may_be_trained_by(one, [*changed, *every]) for one in there.optimizers):
            self.stop()
            return False
        trained = _parameters(changed)
        if trained:
            trained = _parameters(every) or trained
        else:
            models = modules_of(changed, there.modules)
            if not models and any(next(one.parameters(), None) is not None for one in there.modules):
                self._doubts += 1
                return False
            trained = [*parameters_of(models, ())] if models else list(changed)
        self._trained.begin_by_hand(trained)
        return True

    def _is_held(self, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether an optimizer that is known holds one of these."""
        held = {id(one) for one in parameters_of((), self._trained.all_optimizers())}
        return bool(held) and any(id(one) in held for one in tensors)

    def _may_be_trained_by(self, optimizer: torch.optim.Optimizer, tensors: Iterable[torch.Tensor]) -> bool:
        """Whether an optimizer holds one of these, or what those that are looked at are copies of."""
        held = parameters_of((), [optimizer])
        known = {id(one) for one in held}
        if any(id(one) in known for one in tensors):
            return True
        return self._changes.were_copies_of([one for one in held if _is_comparable(one)])

    def _follow(self, *, told: bool) -> None:
        """The parameters were updated by hand before this backward: the step until then is over, and was not seen."""
        self._steps.recording.lost(1)
        # Where the step under way began is not known either, nor what was called in it.
        self._steps.search()
        self._steps.unseen = True
        self._follows = True
        self._first_update(told=told)

    def _first_update(self, *, told: bool) -> None:
        """From now on it is known that no optimizer takes turns."""
        self.changes += 1
        self._told = told
        self._usual, self._since = max(1, self._since), 0
        self._changes.renew()
        about, cycle = self._about, self._turns.cycle
        if NOTE not in about.notes:
            about.notes.append(NOTE)
        about.why_unseen[str(Phase.OPTIMIZER)] = (
            "the parameters are updated by hand, and no DataLoader is read: the update's time is in other, with what "
            "makes the next batch"
        )
        self._probe.by_hand = True
        cycle.decided, cycle.alone = True, BY_HAND
        cycle.restart([BY_HAND])

    @property
    def _has_updated(self) -> bool:
        """Whether the parameters were updated since the last update, as far as can be told now."""
        if self._told is False:
            return self._since >= self._usual
        return self._changes.any(waits=self._told is None)

    def _updated(self) -> bool:
        """Whether they were; from now on it is told of the next update."""
        if not self._has_updated:
            return False
        if self._told is None:
            told = self._changes.can_be_told
            if not self._are_trained(self._changes.tensors, ()):
                return False
            self._first_update(told=told)
            return True
        self.changes += 1
        self._since = 0
        self._changes.renew()
        return True

    def _mark_tail(self) -> None:
        """What follows the backward begins, if it was not one inside something else."""
        if self._state.inside == NOTHING and not self._inner and not self._off:
            self._probe.enter(OPTIMIZER)
            self._tail = True
            # What comes next has to be a model's call: in a backward torch has taken a mode off, and puts it back.
            # Or a fetch: where there was a call in this step, and perhaps a batch, there will be in the next one.
            if self._state.forwards:
                self._ends.begins()


def _captured(outputs: Iterable[Any]) -> bool:
    """Whether a backward from these becomes a part of a CUDA graph: it is done once, and updates nothing."""
    return any(isinstance(one, torch.Tensor) and captures(one.device) for one in outputs)


def _reached(outputs: Any, inputs: Any) -> list[torch.Tensor]:
    """What the engine gives gradients to: parameters where there are any among it, else all.

    Of what was computed from parameters it is these: what an inner loop makes of them is an update of none.
    """
    tensors = [one for one in inputs or () if isinstance(one, torch.Tensor)]
    if not tensors:
        tensors = _near(outputs)
    tensors = [one for one in map(plain, tensors) if _is_comparable(one)]
    return _parameters(tensors) or _parameters([one for one in _near(tensors) if _is_comparable(one)]) or tensors


def _near(outputs: Iterable[Any]) -> list[torch.Tensor]:
    """What a backward from these gives gradients to, next to them."""
    return reached([plain(one) for one in outputs], nodes=_NEAR, leaves=_ENOUGH)


def _parameters(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    return [one for one in tensors if isinstance(one, torch.nn.Parameter)]


def _is_comparable(tensor: torch.Tensor) -> bool:
    """Whether it is an ordinary tensor with values, and none of a class that spreads it over devices."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta
