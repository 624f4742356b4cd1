"""Times what belongs to the updates of a watched loop: the optimizers' steps, and where gradients are cleared."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch

from perf_diagnostics.integrations.steps.loop_probe import OPTIMIZER
from perf_diagnostics.integrations.untraced import untraced
from perf_diagnostics.integrations.watching.patches import replace, watch_optimizers
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.steps.tape import AT, CLEARS, LEAVE

_clock = time.perf_counter_ns
_CLEARS, _LEAVE = AT[CLEARS], AT[LEAVE]


def watch_updates(watch: Watch, optimizers: Iterable[torch.optim.Optimizer] | None, patches: ExitStack) -> None:
    """Time the steps of these optimizers, or of every one in the process (None), and any ``zero_grad``.

    That is a part of the optimizer's phase, wherever it stands in a step; of optimizers and of modules it is known by
    torch's own methods, which a class of the user's own may not call.
    """
    watch_optimizers(watch, optimizers, patches)
    for owner in (torch.optim.Optimizer, torch.nn.Module):
        timed = _timed(watch, owner.zero_grad)
        untraced(timed, and_what_they_call=False)
        replace(owner, "zero_grad", functools.wraps(owner.zero_grad)(timed), patches)


def _timed(watch: Watch, original: Callable[..., Any]) -> Callable[..., Any]:
    """The same, timed; inside an optimizer's own step it is optimizer anyway."""
    state, probe, thread, compiling = watch.state, watch.probe, watch.thread, torch.compiler.is_dynamo_compiling

    def zero_grad(*args: Any, **kwargs: Any) -> Any:
        # It never starts the clock: setting a training up may clear gradients long before the first step.
        if compiling() or not state.active or state.inside == OPTIMIZER or get_ident() != thread:
            return original(*args, **kwargs)
        if not state.expect and not probe._running:
            return original(*args, **kwargs)
        try:
            mark = state.mark
            mark(_clock() + _CLEARS)
        except FAULTS as fault:
            watch.fails(fault)
        try:
            return original(*args, **kwargs) if kwargs else original(*args)
        finally:
            try:
                mark = state.mark
                mark(_clock() + _LEAVE)
            except FAULTS as fault:
                watch.fails(fault)

    return zero_grad
