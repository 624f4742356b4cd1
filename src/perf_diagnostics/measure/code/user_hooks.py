"""The user's own hooks on modules: functions of his that torch calls in each forward or backward of a module."""

from __future__ import annotations

import dis
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType
from typing import Any

import torch

from perf_diagnostics.measure.code.code_places import CodePlaces
from perf_diagnostics.measure.code.own_code import Kind, OwnCode
from perf_diagnostics.records import Json

#: Where torch.nn.Module keeps its hooks, and when they are called; the names are the same from torch 2.0 on.
_HOOKS = {
    "_forward_pre_hooks": "before forward",
    "_forward_hooks": "after forward",
    "_backward_pre_hooks": "before backward",
    "_backward_hooks": "after backward",
}

#: So many functions are told at most, those on the most modules.
_MOST_TOLD = 8

#: Wrappers around wrappers that are looked through.
_DEEPEST = 8


@dataclass
class _Hook:
    """One function: on how many modules it is, and when it is called."""

    modules: int = 0
    called: dict[str, None] = field(default_factory=dict)


def user_hooks(models: Iterable[torch.nn.Module]) -> list[Json]:
    """The functions of the user's own code that are hooks of some module, those on the most modules first.

    What libraries register (data parallelism, weight normalisation, adapters) is none of them: it is told by the file
    that a function's code stands in. Functions without code of their own (of C++, of a library) are passed over.

    Args:
        models: what is trained, outermost modules.
    """
    own, found = OwnCode(), dict[CodeType, _Hook]()
    modules = {id(module): module for model in models for module in model.modules()}
    for module in modules.values():
        for name, called in _HOOKS.items():
            for code in {_code_of(hook) for hook in _hooks_of(module, name)}:
                if code is not None and own.kind_of(code.co_filename) is Kind.OWN:
                    hook = found.setdefault(code, _Hook())
                    hook.modules += 1
                    hook.called[called] = None
    places = CodePlaces()
    most = sorted(found.items(), key=lambda one: -one[1].modules)[:_MOST_TOLD]
    return [_told(places, code, hook) for code, hook in most]


def _told(places: CodePlaces, code: CodeType, hook: _Hook) -> Json:
    place = places.place(code, code.co_firstlineno)
    return {
        "file": place.file,
        "line": place.line,
        "function": place.function,
        "modules": hook.modules,
        "called": list(hook.called),
        "returns": _returns_something(code),
    }


def _hooks_of(module: torch.nn.Module, name: str) -> Iterator[Any]:
    held = module.__dict__.get(name)
    yield from () if held is None else list(held.values())


def _code_of(hook: Any) -> CodeType | None:
    """A function's code, without what stands around it: partials, bound methods, decorators, objects to be called."""
    for _ in range(_DEEPEST):
        inner = hook.func if isinstance(hook, functools.partial) else getattr(hook, "__wrapped__", None)
        if inner is not None:
            hook = inner
        elif isinstance(hook, FunctionType | MethodType):
            return hook.__code__
        elif isinstance(hook, BuiltinFunctionType):
            return None
        else:
            hook = getattr(type(hook), "__call__", None)  # noqa: B004 - the function itself, for its code
    return None


def _returns_something(code: CodeType) -> bool:
    """Whether a function may return anything but None: such a hook changes what its module gives."""
    before: dis.Instruction | None = None
    for one in dis.get_instructions(code):
        if one.opname == "RETURN_CONST" and one.argval is not None:
            return True
        if one.opname == "RETURN_VALUE":
            constant = before is not None and before.opname.startswith("LOAD_CONST") and before.argval is None
            if not constant:
                return True
        before = one
    return False
