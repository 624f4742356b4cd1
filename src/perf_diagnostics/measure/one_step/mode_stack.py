"""Puts a dispatch mode onto torch's stack between two steps of somebody's loop, and takes it off again."""

from __future__ import annotations

import os
import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_INNER: Any = torch._C


def is_on(mode: TorchDispatchMode) -> bool:
    """Whether operators of this thread are shown to the mode."""
    return any(_INNER._get_dispatch_stack_at(at) is mode for at in range(_INNER._len_torch_dispatch_stack()))


def put_on(mode: TorchDispatchMode) -> None:
    """Show the mode the operators of this thread from now on.

    It goes onto torch's stack by itself, and not by ``with``: whoever enters a mode notes for all threads that there is
    one, and puts back what was noted before. A mode of the user's that is entered in between, and left after this one,
    would note for good what is true no more.
    """
    _INNER._push_on_torch_dispatch_stack(mode)


def take_off(mode: TorchDispatchMode) -> None:
    """Show it no more. Modes of the user's that were entered since, and not left yet, stay."""
    if not is_on(mode):
        return
    above = []
    while (top := _INNER._pop_torch_dispatch_stack(None)) is not mode:
        above.append(top)
    for one in reversed(above):
        _INNER._push_on_torch_dispatch_stack(one)


def off_in_forks(mode: TorchDispatchMode) -> None:
    """A process that is forked while operators are shown, such as a loader's worker, does not show them."""
    if hasattr(os, "register_at_fork"):
        seen = weakref.ref(mode)

        def in_child() -> None:
            shown = seen()
            if shown is not None:
                take_off(shown)

        os.register_at_fork(after_in_child=in_child)


def is_alone() -> bool:
    """Whether nothing else that changes what operators do is under way: another mode, a transform, a tracer."""
    # Not functorch.peek_interpreter_stack(): it makes the thread a stack, which torch then copies with each backward
    # for as long as the thread lives (11,700 instructions a step of two layers, torch 2.13).
    transformed = _INNER._are_functorch_transforms_active()
    return not _INNER._len_torch_dispatch_stack() and not transformed and _INNER._get_tracing_state() is None
