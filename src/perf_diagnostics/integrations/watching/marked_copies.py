"""Keeps which tensor on the host a mask on a device was copied from, in a loop that marks its phases itself."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function_unary

from perf_diagnostics.integrations.model.called_masks import Copies
from perf_diagnostics.integrations.watching.marked_calls import MarkedCalls
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.integrations.watching.transfers import always, leaves_the_host
from perf_diagnostics.measure.faults import FAULTS


def watch_copies(calls: MarkedCalls, copies: Copies, patches: ExitStack) -> None:
    """Note the copies that ``Tensor.to`` and ``Tensor.cuda`` make on a device, until ``patches`` closes.

    Only those between the calls of models: what a model copies inside is no batch.
    """
    for name, leaves in (("to", leaves_the_host), ("cuda", always)):
        replace(torch.Tensor, name, _noted(calls, copies, getattr(torch.Tensor, name), leaves), patches)


def _noted(
    calls: MarkedCalls, copies: Copies, original: Callable[..., Any], leaves: Callable[..., bool]
) -> Callable[..., Any]:
    state, thread = calls.probe.state, calls.thread
    compiling = torch.compiler.is_dynamo_compiling

    @functools.wraps(original)
    def copy(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if compiling():
            return original(self, *args, **kwargs)
        if has_torch_function_unary(self):  # who overrides it must be handed torch's own function, not this one
            return handle_torch_function(original, (self,), self, *args, **kwargs)
        copied = original(self, *args, **kwargs)
        if not calls.inside and state.active and get_ident() == thread:
            try:
                if self.device.type == "cpu" and leaves(*args, **kwargs):
                    copies.add(self, copied)
            except FAULTS as fault:
                calls.fails(fault)
        return copied

    return copy
