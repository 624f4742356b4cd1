"""Puts modes of ours on torch's stack of function modes, and takes them off wherever in it they are by then."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from perf_diagnostics.measure.module_calls import is_compiled
from perf_diagnostics.measure.steps.beside_steps import compiled_graphs, compiles

_INNER: Any = torch._C


class OwnMode(TorchFunctionMode):
    """One of ours."""


def may_be_traced(models: Iterable[torch.nn.Module]) -> bool:
    """Whether torch.compile was called on a part of these models, or on anything: a mode would be among its guards."""
    return bool(compiled_graphs() or compiles() or any(is_compiled(part) for one in models for part in one.modules()))


def put_on(mode: OwnMode) -> bool:
    """See the functions of torch that this thread calls; false, and nothing is done, where that would not be right.

    A mode of the user's that is around may end before ours; and what torch.compile traces would be bound to ours.
    """
    if _INNER._len_torch_function_stack() or compiles():
        return False
    _INNER._push_on_torch_function_stack(mode)
    return True


def take_off(mode: OwnMode) -> int:
    """See none any more; gives how many modes were there, 0 where not all were ours. The others stay.

    ``Tensor.backward`` is a function that is seen: meanwhile the mode is taken off by torch, which puts it back.
    """
    stack = [_INNER._get_function_stack_at(at) for at in range(_INNER._len_torch_function_stack())]
    if any(one is mode for one in stack):
        for _ in stack:
            _INNER._pop_torch_function_stack()
        for one in stack:
            if one is not mode:
                _INNER._push_on_torch_function_stack(one)
    return len(stack) if all(isinstance(one, OwnMode) for one in stack) else 0
