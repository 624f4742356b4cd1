"""Sees what a loop calls inside the phases that it marks itself: models, backward, and the steps of optimizers.

What is seen is written on the tape beside the phases and changes none of them; see ``CALLED`` in
:mod:`perf_diagnostics.measure.steps.tape`. What a call holds by its mask of padding is counted here, too.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.model.backward_looks import BackwardLooks
from perf_diagnostics.integrations.model.called_masks import MaskReader, reader_of
from perf_diagnostics.integrations.model.losses import Losses
from perf_diagnostics.integrations.model.modules import CODES, outermost, parts_of
from perf_diagnostics.integrations.model.trained import DEEPEST_SEARCH
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.integrations.steps.step_state import nobody
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.integrations.watching.every_step import see_steps
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.living import living
from perf_diagnostics.measure.model_scan import parameters_of
from perf_diagnostics.measure.module_calls import CALLS, TimedCalls, called_by, stands_in
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.tape import AT, BACKWARD, CALLED, KEEPS, LEAVE, STEPPED

CountMasked = Callable[[MaskReader, tuple[Any, ...], dict[str, Any]], None]

#: What makes the mark of a call of a model, by the keys of CODES; of a backward, and of the ends of both.
_MODEL_CODES = {key: AT[CALLED[code]] for key, code in CODES.items()}
_BACKWARD, _KEEPS, _RETURNS = (AT[CALLED[code]] for code in (BACKWARD, KEEPS, LEAVE))
_STEPPED = AT[STEPPED]


class MarkedCalls:
    """Stands in for the calls of a marked loop's models and for ``torch.autograd.backward``, until the loop is over.

    Only the thread that made it is seen, and only the outermost call: what a call makes inside is a part of it.

    Args:
        probe: where the loop is marked.
        models: what is trained, as far as it is known.
        optimizers: what trains it, as far as it is known.
        observations: where it is noted that looking into a backward failed.
        count_masked: is called before a call of a model that is to be trained and may be called with a mask.
        fails: takes a fault of ours.
    """

    def __init__(
        self,
        probe: LoopProbe,
        models: Sequence[torch.nn.Module],
        optimizers: Sequence[torch.optim.Optimizer],
        *,
        observations: Observations,
        count_masked: CountMasked,
        fails: Callable[[Exception], None],
    ) -> None:
        self.probe = probe
        self._observations = observations
        self.count_masked = count_masked
        self.fails = fails
        self.thread = get_ident()
        #: Whether one of the calls is under way.
        self.inside = False
        #: What the backwards of the first steps compute for nothing, and the losses that backward is called on.
        self.looks = BackwardLooks(probe.state, self._all_optimizers)
        self.losses = Losses(probe._clock)
        #: Whether a model may be called with a mask.
        self.may_be_masked = False
        self._models = models
        self._optimizers = optimizers
        self._living: list[weakref.ref[torch.optim.Optimizer]] = []
        self._seen: list[tuple[weakref.ref[torch.nn.Module], TimedCalls]] = []
        self._searches = 0

    def install(self, patches: ExitStack, modules: Sequence[torch.nn.Module] | None) -> None:
        """See calls from here on, until ``patches`` closes; of these models, or (None) of those that are found."""
        patches.callback(self._let_go)
        if modules is None:
            self.search()
        else:
            self.see(modules)
        _watch_backward(self, patches)
        _watch_steps(self, patches)

    def look_begins(self, loss: Any, *, keeps: bool) -> None:
        """A backward of the first steps begins on this, and may keep its graph."""
        with self._observations.guard("gradients"):
            self.looks.begins(loss, keeps=keeps)

    def look_ends(self) -> None:
        """It has ended."""
        with self._observations.guard("gradients"):
            self.looks.ends()

    @property
    def may_search(self) -> bool:
        """Whether models may be found that were not found before."""
        return 0 < self._searches <= DEEPEST_SEARCH and bool(self._models or self._optimizers)

    def search(self) -> None:
        """Find the outermost modules of what is trained; where those are not called, one floor below, and so on."""
        self._searches += 1
        there = living()
        self._living = [weakref.ref(optimizer) for optimizer in there.optimizers]
        parameters = () if self._models else parameters_of((), self._optimizers)
        found = outermost(self._models, parameters, everything=there.modules)
        if not self.see(found) and self._searches > 1:
            self.see([part for module in self.modules for part in parts_of(module)])

    def see(self, modules: Iterable[torch.nn.Module]) -> bool:
        """See the calls of these modules, too; true if one was not seen before."""
        known = self.modules
        new = [module for module in modules if all(module is not other for other in known)]
        self._seen += [(weakref.ref(module), _watch_model(module, self)) for module in new]
        return bool(new)

    @property
    def modules(self) -> list[torch.nn.Module]:
        """Those whose calls are seen."""
        return [module for reference, _ in self._seen if (module := reference()) is not None]

    def _all_optimizers(self) -> list[torch.optim.Optimizer]:
        alive = [one for reference in self._living if (one := reference()) is not None]
        return list({id(one): one for one in (*self._optimizers, *alive)}.values())

    def _let_go(self) -> None:
        for _, undo in self._seen:
            undo()


def _watch_model(module: torch.nn.Module, calls: MarkedCalls) -> TimedCalls:
    """Mark the calls of one module on the tape."""
    reader = reader_of(module)
    calls.may_be_masked = calls.may_be_masked or reader is not None
    return TimedCalls(module, marked_call(calls, weakref.ref(module), stands_in(module), reader))


def marked_call(
    calls: MarkedCalls, alive: Callable[[], Any], before: Callable[..., Any] | None, reader: MaskReader | None = None
) -> Callable[..., Any]:
    """A function that stands in for what a loop calls, and marks its calls on the tape.

    Args:
        calls: of the loop.
        alive: gives what is called: its ``training`` says whether it is to be trained.
        before: what is called by then; None: the module's own call.
        reader: reads the mask that it may be called with.
    """
    compiling, grad_enabled, thread = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled, calls.thread
    probe, state, count_masked = calls.probe, calls.probe.state, calls.count_masked
    clock, write, marks = probe._clock, probe._mark, probe.marks
    tensor, reference, frame = torch.Tensor, weakref.ref, sys._getframe
    #: What the model was last called with to be trained; weakly, for a batch must be gone when the loop lets it go.
    trained_on: Callable[[], Any] = nobody

    def called(*args: Any, **kwargs: Any) -> Any:
        nonlocal trained_on
        model: Any = alive()
        if not compiling():
            caller = frame(1)
            model = caller.f_locals["self"] if caller.f_code is CALLS else called_by(caller, model)
        call = model._call_impl if before is None else before
        if compiling() or calls.inside or not state.active or get_ident() != thread:
            return call(*args, **kwargs)
        try:
            calls.inside = True
            given: Any = args[0] if args else next(iter(kwargs.values()), None)
            again = given is not None and trained_on() is given
            trains = bool(model.training and grad_enabled())
            if trains:
                state.forwards += 1
                if not again and type(given) is tensor:
                    trained_on = reference(given)
                if reader is not None:
                    count_masked(reader, args, kwargs)
            if len(marks) >= state.full_at:
                state.full()
            if probe._running:
                write(clock() + _MODEL_CODES[again, trains, not model.training])
        except FAULTS as fault:
            calls.fails(fault)
        try:
            return call(*args, **kwargs)
        finally:
            calls.inside = False
            try:
                if probe._running:
                    write(clock() + _RETURNS)
            except FAULTS as fault:
                calls.fails(fault)

    return called


def _watch_backward(calls: MarkedCalls, patches: ExitStack) -> None:
    """Mark the calls of ``torch.autograd.backward``, which ``Tensor.backward`` calls, too."""
    original: Callable[..., Any] = torch.autograd.backward
    probe, state, looks, losses, thread = calls.probe, calls.probe.state, calls.looks, calls.losses, calls.thread
    clock, write, marks = probe._clock, probe._mark, probe.marks

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        if calls.inside or not state.active or get_ident() != thread:
            return original(*args, **kwargs)
        loss: Any = None
        try:
            calls.inside = True
            loss = args[0] if args else kwargs.get("tensors")
            # With create_graph it is kept for what is computed of the gradients.
            again = not (args[3] if len(args) > 3 else kwargs.get("create_graph"))
            keeps = bool(again and (args[2] if len(args) > 2 else kwargs.get("retain_graph")))
            if len(marks) >= state.full_at:
                state.full()
            if probe._running:
                write(clock() + (_KEEPS if keeps else _BACKWARD))
            if looks.wanted:
                calls.look_begins(loss, keeps=keeps)
        except FAULTS as fault:
            calls.fails(fault)
        try:
            return original(*args, **kwargs)
        finally:
            calls.inside = False
            try:
                if probe._running:
                    write(clock() + _RETURNS)
                if losses.wanted:
                    losses.backward(loss)
                if looks.wanted:
                    calls.look_ends()
            except FAULTS as fault:
                calls.fails(fault)

    untraced(backward, and_what_they_call=False)
    untraced(MarkedCalls.look_begins, MarkedCalls.look_ends, and_what_they_call=True)
    replace(torch.autograd, "backward", backward, patches)


def _watch_steps(calls: MarkedCalls, patches: ExitStack) -> None:
    """Mark where optimizers have stepped: any of them, for a loop may have others than it has named."""
    probe, state, looks, thread = calls.probe, calls.probe.state, calls.looks, calls.thread
    clock, write, marks = probe._clock, probe._mark, probe.marks

    def stepped(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not state.active or get_ident() != thread:
            return
        try:
            if len(marks) >= state.full_at:
                state.full()
            if probe._running:
                write(clock() + _STEPPED)
            if looks.wanted:
                looks.stepped(id(optimizer))
        except FAULTS as fault:
            calls.fails(fault)

    untraced(stepped, and_what_they_call=True)
    see_steps(None, stepped, patches)
