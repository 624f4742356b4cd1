"""Puts a watch into torch's own calls (backward, optimizers), and takes it out again without a trace.

What stands in a call writes the marks of a plain step itself, in one piece and from local names, and asks the watch
about everything else: in steps of a third of a millisecond each call of a Python function is seen. What a slot holds is
put into a local name before it is called, as in :mod:`perf_diagnostics.measure.steps.spans`.
"""

from __future__ import annotations

import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.model.modules import next_operation
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, OPTIMIZER
from perf_diagnostics.integrations.steps.step_state import (
    BEGUN,
    BEGUN_ALONE,
    CALLED,
    GONE_BACK,
    NOTHING,
    QUICK_NS,
    UNSURE,
    UPDATES,
)
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.integrations.watching.closures import Call, closure_marker
from perf_diagnostics.integrations.watching.every_step import see_steps
from perf_diagnostics.integrations.watching.updates_by_hand import ENGINE
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.steps.tape import APART, AT, END, KEEPS, LEAVE

_clock = time.perf_counter_ns
_BACKWARD, _KEEPS, _APART = (AT[code] for code in (BACKWARD, KEEPS, APART))
_OPTIMIZER, _LEAVE, _END = (AT[code] for code in (OPTIMIZER, LEAVE, END))

#: The parameters of torch.autograd.backward.
_TAKES = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


def watch_backward(watch: Watch, patches: ExitStack) -> None:
    """Time ``torch.autograd.backward``, which ``Tensor.backward`` calls, too."""
    original: Callable[..., Any] = torch.autograd.backward
    timed = _timed_backward(watch, original)
    # Somebody's own, or a later torch's, is called as it was called.
    backward = functools.wraps(original)(timed if _takes(original) == _TAKES else _as_called(watch, original))
    untraced(timed, backward, and_what_they_call=False)
    untraced(Watch.backward_begins, Watch.backward_looked_into, and_what_they_call=True)
    replace(torch.autograd, "backward", backward, patches)
    # First of all that comes off: a look at a step that is under way stands before ours, and puts ours back.
    patches.callback(watch.looks_end)


def _takes(function: Callable[..., Any]) -> tuple[str, ...]:
    """The names of a function's own parameters; empty where they cannot be told."""
    try:
        return tuple(inspect.signature(function, follow_wrapped=False).parameters)
    except (TypeError, ValueError):
        return ()


def _as_called(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """The backward, timed, of which only what it shares with torch's own is known."""

    def backward(*args: Any, **kwargs: Any) -> Any:
        told = dict(zip(_TAKES, args, strict=False)) | {name: kwargs[name] for name in _TAKES if name in kwargs}
        return _timed_backward(watch, lambda *_: original(*args, **kwargs))(**{"tensors": None, **told})

    return backward


def _timed_backward(  # noqa: PLR0915 - with the backward inside of it
    watch: Watch, original: Callable[..., Any]
) -> Callable[..., Any]:
    """The backward, timed. It has torch's own parameters by name: tuples and dictionaries of them are dear."""
    state, around, losses, thread = watch.state, watch.probe.open, watch.steps.losses, watch.thread
    looks, marks = watch.steps.looks, watch.probe.marks

    def backward(  # noqa: PLR0917 - the parameters are torch's, and calls are dear
        tensors: Any,
        grad_tensors: Any = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
        grad_variables: Any = None,
        inputs: Any = None,
    ) -> Any:
        inside = state.inside
        # Where no phase is open none is around.
        within = inside != NOTHING and (inside == BACKWARD or BACKWARD in around)
        if within or not state.active or get_ident() != thread:
            return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        expect = UNSURE
        try:
            # With create_graph it is kept for what is computed of the gradients.
            keeps = retain_graph and not create_graph
            expect, state.expect = UNSURE if keeps else state.expect, UNSURE
            if expect == CALLED or (
                inside == NOTHING and (state.due_ns or not looks.wanted) and len(marks) < state.full_at
            ):
                mark, now = state.mark, _clock()
                if next_operation() == state.sequence:
                    mark(now + _APART)
                mark(now + (_KEEPS if keeps else _BACKWARD))
                state.sequence, state.inside = -1, BACKWARD
            else:
                watch.backward_begins(KEEPS if keeps else BACKWARD, tensors)
        except FAULTS as fault:
            watch.fails(fault)
        try:
            return original(tensors, grad_tensors, retain_graph, create_graph, grad_variables, inputs)
        except BaseException:
            state.inner_steps = 0  # half a step is none
            raise
        finally:
            if expect == CALLED and state.inside == BACKWARD and not around and not state.inner_steps:
                try:
                    mark = state.mark
                    mark(_clock() + _LEAVE)
                    state.inside, state.expect = NOTHING, GONE_BACK
                except FAULTS as fault:
                    watch.fails(fault)
            else:
                ends_otherwise(tensors)

    def ends_otherwise(tensors: Any) -> None:
        try:
            if state.inside == OPTIMIZER:
                watch.turns.forget_lost_steps()  # one raised inside this backward
            elif state.inside != NOTHING:
                state.inside = around.pop() if around else NOTHING
                mark = state.mark
                mark(_clock() + _LEAVE)
            # Where a step may be ended as a plain one (due_ns) nothing is looked at in it.
            if not state.due_ns:
                if losses.wanted:
                    losses.backward(tensors)
                if looks.wanted:
                    watch.backward_looked_into()
            if state.inner_steps:
                watch.turns.backward_stepped()
        except FAULTS as fault:
            watch.fails(fault)

    untraced(ends_otherwise, and_what_they_call=True)
    return backward


def watch_other_backwards(watch: Watch, patches: ExitStack) -> None:
    """Time ``torch.autograd.grad`` as the backward, where an optimizer steps and nobody has called ``backward()``.

    So it is with surgery on the gradients of several tasks, and with losses that are weighed by their gradients. Beside
    a ``backward()`` it is a part of the loss (a penalty), or of an inner loop, and stays in the phase that it lies in:
    from the first one on that comes after all.
    """
    original: Callable[..., Any] | None = getattr(torch.autograd, ENGINE, None)
    if original is None:
        return
    before, state, thread = watch.turns.when_met, watch.state, watch.thread
    alone, under_way = True, False
    # What follows the results among the engine's arguments takes the place of the backward's second one.
    timed = _timed_backward(watch, lambda outputs, rest, *_: original(outputs, *rest[0], **rest[1]))

    def run_backward(outputs: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal alone, under_way
        if not alone or under_way or not state.active or get_ident() != thread:
            return original(outputs, *args, **kwargs)
        if state.inside != NOTHING:
            alone = state.inside != BACKWARD
            return original(outputs, *args, **kwargs)
        under_way = True
        try:
            return timed(outputs, (args, kwargs))
        finally:
            under_way = False

    untraced(run_backward, and_what_they_call=False)

    def when_met() -> None:
        before()
        if not watch.probe.has_seen(BACKWARD) and not watch.probe.entered_so_far(BACKWARD):
            watch.turns.when_met = before
            replace(torch.autograd, ENGINE, functools.wraps(original)(run_backward), patches)

    watch.turns.when_met = when_met


def watch_updates_by_hand(watch: Watch, patches: ExitStack) -> None:
    """See whether the loop updates its parameters by hand, as long as no optimizer steps."""
    for name, stand_in in watch.by_hand.begin().items():
        replace(torch.autograd, name, stand_in, watch.by_hand.patches)
    patches.callback(watch.by_hand.stop)


def watch_optimizers(watch: Watch, optimizers: Iterable[torch.optim.Optimizer] | None, patches: ExitStack) -> None:
    """Time the steps of these optimizers, or of every optimizer in the process (None)."""
    begins, ends = _step_begins(watch, closure_marker(watch)), _step_ends(watch)
    untraced(begins, ends, and_what_they_call=True)
    if optimizers is None:
        see_steps(begins, ends, patches)
        return
    for optimizer in optimizers:
        for handle in (optimizer.register_step_pre_hook(begins), optimizer.register_step_post_hook(ends)):
            patches.callback(handle.remove)


def _step_begins(
    watch: Watch, mark_closure: Callable[[tuple[Any, ...], dict[str, Any]], Call | None]
) -> Callable[[Any, Any, Any], Call | None]:
    """What torch calls before an optimizer's step."""
    state, around, thread = watch.state, watch.probe.open, watch.thread
    turns, met, stepping, cycle = watch.turns, watch.turns.met, watch.steps.stepping, watch.turns.cycle

    def begins(optimizer: Any, args: Any, kwargs: Any) -> Call | None:
        inside = state.inside
        if not state.active or (get_ident() != thread and not (inside == BACKWARD and turns.computes_gradients())):
            return None
        try:
            this = state.stepped_id
            if (
                state.expect == GONE_BACK
                and cycle.alone == this
                and state.stepped() is optimizer
                and len(args) == 1
                and not kwargs
            ):
                mark = state.mark
                mark(_clock() + _OPTIMIZER)
                state.inside, state.expect = OPTIMIZER, UPDATES
                stepping.append(this)
                return None
            state.expect = UNSURE
            stepped = state.stepped
            if stepped() is optimizer:
                this = state.stepped_id
            else:
                state.stepped_id = this = id(optimizer)
                known = met.get(this)
                if known is None or known() is not optimizer:
                    turns.meet(optimizer, sys._getframe(1))
                state.stepped = met[this]
            if inside != NOTHING:
                if inside == BACKWARD:
                    around.append(BACKWARD)
                    state.inner_steps += 1
                else:
                    turns.step_begins_inside()
            mark = state.mark
            mark(_clock() + _OPTIMIZER)
            state.inside = OPTIMIZER
            stepping.append(this)
            if len(args) > 1 or kwargs:
                return mark_closure(args, kwargs)
        except FAULTS as fault:
            watch.fails(fault)
        return None

    return begins


def _step_ends(watch: Watch) -> Callable[[Any, Any, Any], None]:
    """What torch calls after an optimizer's step."""
    state, probe, around, steps, turns = watch.state, watch.probe, watch.probe.open, watch.steps, watch.turns
    cycle, batches, stepping, looks, marks = turns.cycle, steps.batches, steps.stepping, steps.looks, probe.marks

    def ends(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if not state.active:
            return
        try:
            if state.expect == UPDATES and state.stepped() is optimizer:
                now = _clock()
                if (
                    now < state.due_ns
                    and now - state.ended_ns < QUICK_NS
                    and batches == state.same
                    and len(marks) < state.full_at
                ):
                    mark = state.mark
                    mark(now + _END)
                    state.ended_ns, state.inside = now, NOTHING
                    state.plain_steps += 1
                    state.forwards = state.given_to = 0
                    state.expect = BEGUN if batches else BEGUN_ALONE
                    stepping.clear()
                    batches.clear()
                    return
            stepped = state.stepped
            this = state.stepped_id if stepped() is optimizer else id(optimizer)
            if not stepping or stepping[-1] != this:
                return  # it began before the watch did, or another thread's
            state.expect = UNSURE
            del stepping[-1]
            if not state.due_ns and looks.wanted:
                looks.stepped(this)
            now = _clock()
            state.inside = NOTHING
            if around:
                state.inside = around.pop()
                mark = state.mark
                mark(now + _LEAVE)
            elif cycle.alone != this and not (cycle.decided and cycle.stepped(this, batches)):
                mark = state.mark
                mark(now + _LEAVE)
                if not cycle.decided:
                    turns.first_turn_ends(this)
                elif probe.warmup:
                    steps.look_at_gradients(this)
            elif (  # the loop's step ends, too; was it like the one before?
                now < state.due_ns
                and now - state.ended_ns < QUICK_NS
                and batches == state.same
                and state.forwards
                and not state.evaluated
            ):
                mark = state.mark
                mark(now + _END)
                state.ended_plainly(now, batches)
            else:
                steps.end(this)
        except FAULTS as fault:
            watch.fails(fault)

    return ends


#: What was put in place of something, and is to be gone while another stands in its place: by its identity, with what
#: it replaced. Watches of several threads end in any order.
_GONE: dict[int, tuple[Any, Any]] = {}


def replace(owner: Any, name: str, new: Any, patches: ExitStack) -> None:
    """Set an attribute until ``patches`` closes; an inherited one disappears again instead of being copied down.

    Where somebody has patched over it meanwhile it passes calls through from then on, and it goes when that goes, if
    that is ours.
    """
    own = vars(owner).get(name)
    setattr(owner, name, new)

    def undo() -> None:
        if vars(owner).get(name) is not new:
            _GONE[id(new)] = new, own
            return
        before = own
        while id(before) in _GONE:
            before = _GONE.pop(id(before))[1]
        if before is None:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    patches.callback(undo)
