"""Times the copies of batches to the device in a watched loop; where that is the CPU, nothing is put in."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT, TRANSFER
from perf_diagnostics.integrations.steps.step_state import NOTHING
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.steps.tape import AT, LEAVE

_clock = time.perf_counter_ns

#: A batch of nested lists and dictionaries has some tens of tensors.
MOST_COPIES = 32


def watch_transfers(watch: Watch, patches: ExitStack) -> None:
    """Time ``Tensor.to`` and ``Tensor.cuda``, which copies of lists and dictionaries of tensors use, too.

    Only what copies from the host between a batch and the forward that it is for, so that the loss, an evaluation and
    the model's own copies stay what they are. Where no loader was seen, what copies before the step's first forward:
    such a loop makes its batches itself. Of many copies of one batch the first :data:`MOST_COPIES` are timed, for each
    takes two borders of the device's clock; what others of a few bytes cost is told by who counts them (XFR003).
    """
    for name, copies in (("to", leaves_the_host), ("cuda", always)):
        replace(torch.Tensor, name, _timed(watch, getattr(torch.Tensor, name), copies), patches)


def _timed(watch: Watch, original: Callable[..., Any], copies: Callable[..., bool]) -> Callable[..., Any]:
    state, thread, around, copies_of = watch.state, watch.thread, watch.probe.open, watch.steps.copies
    compiling, learns = torch.compiler.is_dynamo_compiling, torch.is_grad_enabled
    probe, batches = watch.probe, watch.steps.batches
    batch, timed = (0, 0), 0

    def is_of_batch() -> bool:
        """Whether what is copied now, in no phase, is a part of a batch."""
        return state.unused_wait or not (state.forwards or batches or not learns() or probe.has_seen(DATA_WAIT))

    def is_timed() -> bool:
        """Whether a copy is among the first of its batch."""
        nonlocal batch, timed
        this = state.ended_ns, len(batches)
        if batch != this:
            batch, timed = this, 0
        timed += 1
        return timed <= MOST_COPIES

    @functools.wraps(original)
    def copy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(self, *args, **kwargs)
        if has_torch_function_unary(self):  # who overrides it must be handed torch's own function, not this one
            return handle_torch_function(original, (self,), self, *args, **kwargs)
        begun = of_batch = False
        if state.inside == NOTHING and state.active and get_ident() == thread:
            try:
                of_batch = self.device.type == "cpu" and copies(*args, **kwargs) and is_of_batch()
                if of_batch and is_timed():
                    state.mark(_clock() + AT[TRANSFER])
                    state.inside = TRANSFER
                    begun = True
            except FAULTS as fault:
                watch.fails(fault)
        if not of_batch:
            return original(self, *args, **kwargs)
        copied: Any = None
        try:
            copied = original(self, *args, **kwargs)
        finally:
            try:
                if begun and state.inside != NOTHING:
                    state.inside = around.pop() if around else NOTHING
                    state.mark(_clock() + AT[LEAVE])
                if copies_of.wanted and copied is not None:
                    copies_of.add(self, copied)
            except FAULTS as fault:
                watch.fails(fault)
        return copied

    return copy


def leaves_the_host(*args: Any, **kwargs: Any) -> bool:
    """Whether ``Tensor.to`` with these arguments, for a tensor on the host, copies it to a device.

    They are read as torch.nn.Module.to reads its own; what they cannot mean is the user's error, which ``to`` raises.
    """
    try:
        device = torch._C._nn._parse_to(*args, **kwargs)[0]
    except (RuntimeError, TypeError):
        return False
    return device is not None and device.type != "cpu"


def always(*_args: Any, **_kwargs: Any) -> bool:
    """``Tensor.cuda`` copies whatever is on the host."""
    return True
