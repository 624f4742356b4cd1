"""Marks the closures that optimizers call: what they do outside of forward and backward is no update."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from threading import get_ident
from typing import Any, TypeAlias

from perf_diagnostics.integrations.steps.loop_probe import OPTIMIZER
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.steps.tape import AT, CLOSURE, LEAVE

#: What an optimizer's step is called with, and is called with instead where a pre-hook gives it back.
Call: TypeAlias = tuple[tuple[Any, ...], dict[str, Any]]

_clock = time.perf_counter_ns


def closure_marker(watch: Watch) -> Callable[[tuple[Any, ...], dict[str, Any]], Call | None]:
    """A function that gives the call of an optimizer's step with its closure marked; None where there is no closure.

    LBFGS evaluates its closure up to twenty times a step, and Lightning trains in it: without the mark what it does
    beside forward and backward (making its batch again, clipping) would look like the optimizer's own work.
    """
    state, thread = watch.state, watch.thread

    def marked(closure: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(closure)
        def called(*args: Any, **kwargs: Any) -> Any:
            began = False
            if state.active and state.inside == OPTIMIZER and get_ident() == thread:
                try:
                    state.mark(_clock() + AT[CLOSURE])
                    began = True
                except FAULTS as fault:
                    watch.fails(fault)
            try:
                return closure(*args, **kwargs)
            finally:
                # Where the phases were forgotten meanwhile (a step inside that raised) nothing is open any more.
                if began and state.inside == OPTIMIZER:
                    try:
                        state.mark(_clock() + AT[LEAVE])
                    except FAULTS as fault:
                        watch.fails(fault)

        return called

    # All closures share their code, which is what torch.compile goes by.
    untraced(marked(_nothing), and_what_they_call=False)

    def with_marked_closure(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call | None:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if not callable(closure):
            return None
        if len(args) > 1:
            return (args[0], marked(closure), *args[2:]), kwargs
        return args, {**kwargs, "closure": marked(closure)}

    return with_marked_closure


def _nothing() -> None:
    """A closure that does nothing."""
