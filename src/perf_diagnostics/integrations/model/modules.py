"""Finds the module that a loop calls, and times its calls without hooks: hooks would be traced, copied and pickled."""

from __future__ import annotations

import itertools
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from threading import get_ident
from typing import Any, Protocol

import numpy as np
import torch

from perf_diagnostics.integrations.model.called_masks import MaskReader, reader_of
from perf_diagnostics.integrations.model.known_evaluations import KnownEvaluations
from perf_diagnostics.integrations.steps.loop_probe import FORWARD, OTHER, TRAINS, LoopProbe
from perf_diagnostics.integrations.steps.step_state import (
    BEGUN_ALONE,
    CALLED,
    HAS_BATCH,
    NOTHING,
    UNSURE,
    StepState,
    nobody,
)
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.living import living
from perf_diagnostics.measure.module_calls import CALLS, COMPILED_CALL, TimedCalls, called_by
from perf_diagnostics.measure.steps.tape import AGAIN, APART, ASKS, ASKS_AGAIN, AT, EVALUATES_AGAIN, LEAVE
from perf_diagnostics.workloads.workload import BatchCount

#: What is marked of a call: is the model called on what it was trained on last, to be trained, and in evaluation mode?
CODES = {
    **{(False, True, False): TRAINS, (True, True, False): AGAIN},
    **{(False, False, False): ASKS, (False, False, True): ASKS},
    **{(True, False, False): ASKS_AGAIN, (True, False, True): EVALUATES_AGAIN},
}

_clock = time.perf_counter_ns
_FORWARD, _OTHER, _LEAVE, _TRAINS, _AGAIN, _APART = (AT[code] for code in (FORWARD, OTHER, LEAVE, TRAINS, AGAIN, APART))

#: Torch's number, in this thread, of the next operation that gradients go through. Where it is the same at two moments
#: nothing was computed in between that a loss could depend on. A torch that does not tell it gives a new one each time.
next_operation: Callable[[], int] = (
    getattr(getattr(torch._C, "_autograd", None), "_get_sequence_nr", None) or itertools.count().__next__
)

#: Of a sequence that a model is called with so many parts are looked at.
_MOST_PARTS = 16

#: What no gradients go through, beside tensors.
_PLAIN = (bool, int, float, complex, str, bytes, torch.dtype, torch.device, np.ndarray, np.generic)


class CalledSteps(Protocol):
    """The steps in which a module is called."""

    batches: list[int | BatchCount | None]
    beside: list[int]
    #: Whether the rows of calls beyond one a batch are counted, too.
    rows_wanted: bool
    #: What the models are asked in evaluation mode.
    evaluations: KnownEvaluations

    def count_rows(self, model: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """The model is called to be trained, and no batch was seen, or it was called on as many as were."""

    def count_masked(self, reader: MaskReader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A model is called to be trained, perhaps with a mask."""

    def may_be_masked(self) -> None:
        """A model is watched that may be called with a mask."""

    def called_beside(self) -> None:
        """A model that nobody trains is called on a batch that was not trained on yet."""

    def trained_on(self) -> None:
        """The batch that models were called on that nobody trains is trained on after all."""


class CallWatch(Protocol):
    """What times a module's calls: the plain ones by its state, the others by its functions."""

    state: StepState
    thread: int

    @property
    def steps(self) -> CalledSteps:
        """What the step that is under way holds."""

    @property
    def probe(self) -> LoopProbe:
        """Where the calls are marked."""

    def call_begins(
        self,
        module: torch.nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        reader: MaskReader | None,
        code: int,
    ) -> None:
        """A call begins, perhaps inside something else, and perhaps not to be trained; ``code`` tells how."""

    def fails(self, fault: Exception) -> None:
        """Something of ours went wrong."""


def watch_calls(module: torch.nn.Module, watch: CallWatch) -> TimedCalls:  # noqa: PLR0915 - with the call inside of it
    """Time every call of a module, until what is returned is called.

    Nothing is added to its hooks, so graphs that torch.compile has made or will make of it stay whole: while tracing,
    the call goes straight through.
    """
    before = module.__dict__.get(COMPILED_CALL)
    alive = weakref.ref(module)  # a strong reference from the module to itself would delay the end of its memory
    compiling, grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    state, around, steps, thread = watch.state, watch.probe.open, watch.steps, watch.thread
    batches, beside, reader, marks = steps.batches, steps.beside, _reader(module, steps), watch.probe.marks
    tensor, reference, this, frame = torch.Tensor, weakref.ref, id(module), sys._getframe
    evaluations = steps.evaluations
    #: What the model was last called with to be trained; weakly, for a batch must be gone when the loop lets it go.
    trained_on: Callable[[], Any] = nobody

    def is_like_last(given: Any) -> bool:
        return type(given) is tensor and given.shape == state.shape

    def timed(*args: Any, **kwargs: Any) -> Any:  # noqa: PLR0912 - each function that it calls is seen in quick steps
        nonlocal trained_on
        module: Any = alive()
        if not compiling():
            caller = frame(1)
            module = caller.f_locals["self"] if caller.f_code is CALLS else called_by(caller, module)
        call = module._call_impl if before is None else before
        if not state.active or compiling() or get_ident() != thread:
            return call(*args, **kwargs)
        expect, evaluated = UNSURE, None
        try:
            given: Any = args[0] if args else next(iter(kwargs.values()), None)
            again = given is not None and trained_on() is given
            trains = module.training and grad_enabled()
            if trains and not again and type(given) is tensor:
                trained_on = reference(given)
            expect, state.expect = state.expect, UNSURE
            if trains and reader is None and (expect == HAS_BATCH or (expect == BEGUN_ALONE and is_like_last(given))):
                if expect == BEGUN_ALONE:
                    state.given_to = this
                state.unused_wait = False
                state.forwards += 1
                mark = state.mark
                mark(_clock() + (_AGAIN if again else _TRAINS))
                state.inside = FORWARD
            else:
                expect = UNSURE
                if evaluations.wanted and not module.training and state.inside == NOTHING:
                    evaluated = evaluations.begins(module, args, kwargs)
                begins_otherwise(module, args, kwargs, again=again, trains=trains)
        except FAULTS as fault:
            watch.fails(fault)
        try:
            if evaluated is not None:
                return evaluations.ends(evaluated, call(*args, **kwargs))
            return call(*args, **kwargs) if kwargs else call(*args)
        finally:
            try:
                if (ended := state.inside) != NOTHING:
                    if ended == FORWARD:
                        state.sequence = next_operation()
                    mark = state.mark
                    mark(_clock() + _LEAVE)
                    if around:
                        state.inside = around.pop()
                    else:
                        state.inside = NOTHING
                        if expect:
                            state.expect = CALLED
            except FAULTS as fault:
                watch.fails(fault)

    def begins_otherwise(
        module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, again: bool, trains: bool
    ) -> None:
        """A call that is not what comes next in a plain step."""
        if state.inside != NOTHING or not state.called or len(marks) >= state.full_at:
            watch.call_begins(module, args, kwargs, reader, CODES[again, trains, not module.training])
        elif not trains:
            state.evaluated = state.unused_wait
            state.mark(_clock() + AT[CODES[again, trains, not module.training]])
            state.inside = OTHER
        else:
            if beside:
                steps.trained_on()
            state.evaluated = state.unused_wait = False
            state.forwards += 1
            if reader is not None:
                steps.count_masked(reader, args, kwargs)
            elif not batches or (steps.rows_wanted and state.forwards > len(batches)):
                steps.count_rows(module, args, kwargs)
            mark, now = state.mark, _clock()
            if next_operation() == state.sequence and not may_give_gradients(args, kwargs):
                mark(now + _APART)
            mark(now + (_AGAIN if again else _TRAINS))
            state.inside = FORWARD

    return TimedCalls(module, timed)


def may_give_gradients(args: Iterable[Any], kwargs: Mapping[Any, Any]) -> bool:
    """Whether gradients may go through something that a model is called with, to where it was computed.

    A state that one call gives to the next one, or what lies between an encoder and its decoder: what was done since
    then led to this call. Of objects whose parts are not known it may be so.
    """
    return any(map(_may_give_gradients, itertools.chain(args, kwargs.values())))


def _may_give_gradients(given: Any) -> bool:
    if isinstance(given, torch.Tensor):
        return given.requires_grad
    if given is None or isinstance(given, _PLAIN):
        return False
    if isinstance(given, Mapping):
        given = given.values()
    elif not isinstance(given, tuple | list):
        return True
    return any(map(_may_give_gradients, itertools.islice(given, _MOST_PARTS)))


def _reader(module: torch.nn.Module, steps: CalledSteps) -> MaskReader | None:
    reader = reader_of(module)
    if reader is not None:
        steps.may_be_masked()
    return reader


def watch_beside(module: torch.nn.Module, watch: CallWatch) -> TimedCalls:
    """Time the calls of a model that nobody trains (a teacher), until what is returned is called.

    Only those on a batch that was not trained on yet: they are neither its preparation nor, where nothing is trained on
    it, a part of the training. What is called later in a step lies between phases that are marked anyway.
    """
    before = module.__dict__.get(COMPILED_CALL)
    alive, frame = weakref.ref(module), sys._getframe
    compiling, grad_enabled = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    state, around, steps, thread = watch.state, watch.probe.open, watch.steps, watch.thread

    def timed(*args: Any, **kwargs: Any) -> Any:
        module: Any = alive()
        if not compiling():
            caller = frame(1)
            module = caller.f_locals["self"] if caller.f_code is CALLS else called_by(caller, module)
        call = module._call_impl if before is None else before
        if compiling() or not state.unused_wait or state.inside != NOTHING or not state.active or get_ident() != thread:
            return call(*args, **kwargs)
        try:
            state.expect = UNSURE
            if module.training and grad_enabled():
                mark = state.mark
                mark(_clock() + _FORWARD)
                state.inside = FORWARD
            else:
                state.evaluated = True
                mark = state.mark
                mark(_clock() + _OTHER)
                state.inside = OTHER
                steps.called_beside()
        except FAULTS as fault:
            watch.fails(fault)
        try:
            return call(*args, **kwargs)
        finally:
            try:
                if state.inside != NOTHING:
                    state.inside = around.pop() if around else NOTHING
                    mark = state.mark
                    mark(_clock() + _LEAVE)
            except FAULTS as fault:
                watch.fails(fault)

    return TimedCalls(module, timed)


def outermost(
    wanted: Iterable[torch.nn.Module],
    parameters: Iterable[torch.Tensor] = (),
    *,
    everything: Sequence[torch.nn.Module] | None = None,
) -> list[torch.nn.Module]:
    """The outermost modules around some modules or parameters: torch.compile's or DDP's wrapper, not what is in it.

    What cannot be called, as a list of modules, is none: its parts are.

    Args:
        wanted: some modules.
        parameters: some of any modules.
        everything: all modules that there are; None: they are looked for.
    """
    everything = living().modules if everything is None else everything
    parents: dict[int, list[torch.nn.Module]] = {}
    for module in everything:
        for child in _children(module):
            parents.setdefault(id(child), []).append(module)
    targets = {id(parameter) for parameter in parameters}
    reached = list(wanted)
    if targets:
        reached += [m for m in everything if any(id(p) in targets for p in m.__dict__["_parameters"].values())]
    seen: dict[int, torch.nn.Module] = {}
    roots: dict[int, torch.nn.Module] = {}
    while reached:
        module = reached.pop()
        if id(module) in seen:
            continue
        seen[id(module)] = module
        above = parents.get(id(module), [])
        reached.extend(above)
        if not above:
            roots[id(module)] = module
    found = (part for root in _without_graphs(list(roots.values())) for part in _callable(root))
    return list({id(part): part for part in found}.values())  # one that two lists hold comes once


def _callable(module: torch.nn.Module) -> list[torch.nn.Module]:
    """A module, or the outermost parts of one that has no forward and holds parameters by its parts alone."""
    has_forward = type(module).forward is not torch.nn.Module.forward or "forward" in module.__dict__
    if has_forward or any(one is not None for one in module.__dict__["_parameters"].values()):
        return [module]
    return parts_of(module) or [module]


def beside(trained: Iterable[torch.nn.Module], everything: Sequence[torch.nn.Module]) -> list[torch.nn.Module]:
    """The outermost modules that hold parameters, and none of those of what is trained: teachers, frozen encoders."""
    inner = {id(child) for module in everything for child in _children(module)}
    held = {id(parameter) for module in trained for parameter in module.parameters()}
    found = []
    for module in everything:
        if id(module) in inner or issubclass(type(module), torch.fx.GraphModule):
            continue
        own = [id(parameter) for parameter in module.parameters()]
        if own and held.isdisjoint(own):
            found.append(module)
    return found


def _without_graphs(found: Sequence[torch.nn.Module]) -> list[torch.nn.Module]:
    """Without graphs of what is among them as well: torch.compile keeps such a module of what it has compiled."""
    graphs = [module for module in found if issubclass(type(module), torch.fx.GraphModule)]
    plain = [module for module in found if not issubclass(type(module), torch.fx.GraphModule)]
    held = {id(parameter) for module in plain for parameter in module.parameters()} if graphs else set()
    return plain + [graph for graph in graphs if any(id(parameter) not in held for parameter in graph.parameters())]


def parts_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """The modules right below that hold parameters: what a loop calls where it never calls the whole."""
    below = [child for child in _children(module) if next(child.parameters(), None) is not None]
    # Lists and dictionaries of modules are never called themselves.
    containers = (torch.nn.ModuleList, torch.nn.ModuleDict)
    flat: list[torch.nn.Module] = []
    for child in below:
        flat += parts_of(child) if isinstance(child, containers) else [child]
    return flat


def _children(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    return (child for child in module.__dict__.get("_modules", {}).values() if child is not None)
