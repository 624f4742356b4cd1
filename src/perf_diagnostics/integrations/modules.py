"""Finds the module that a loop calls, and times its calls without hooks: hooks would be traced, copied and pickled."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterable, Iterator
from threading import get_ident
from typing import Any, Protocol

import torch

#: torch.nn.Module looks for this on every call and calls it instead; it leaves it out of copies and pickles. Compiling
#: in place (``model.compile()``) uses it too. It has been there since torch 2.1.
_CALL = "_compiled_call_impl"


class CallWatch(Protocol):
    """Is told of a module's calls, while it is ``active`` and on its ``thread``."""

    active: bool
    thread: int

    def module_begins(self, module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A call begins."""

    def module_ends(self) -> None:
        """It has ended, or raised."""


def watch_calls(module: torch.nn.Module, watch: CallWatch) -> Callable[[], None]:
    """Time every call of a module, until the function that is returned is called.

    Nothing is added to its hooks, so graphs that torch.compile has made or will make of it stay whole: while tracing,
    the call goes straight through.
    """
    before = module.__dict__.get(_CALL)
    alive = weakref.ref(module)  # a strong reference from the module to itself would delay the end of its memory
    compiling = torch.compiler.is_compiling

    def timed(*args: Any, **kwargs: Any) -> Any:
        module: Any = alive()
        call = module._call_impl if before is None else before
        if compiling() or not watch.active or get_ident() != watch.thread:
            return call(*args, **kwargs)
        watch.module_begins(module, args, kwargs)
        try:
            return call(*args, **kwargs)
        finally:
            watch.module_ends()

    # Not setattr: the wrapper that torch.compile returns would pass it on to the module inside.
    module.__dict__[_CALL] = timed

    def undo() -> None:
        watched = alive()
        if watched is None or watched.__dict__.get(_CALL) is not timed:
            return  # it is gone, or model.compile() came later and replaced it
        if before is None:
            del watched.__dict__[_CALL]
        else:
            watched.__dict__[_CALL] = before

    return undo


def outermost(wanted: Iterable[torch.nn.Module], parameters: Iterable[torch.Tensor] = ()) -> list[torch.nn.Module]:
    """The outermost modules around some modules or parameters: torch.compile's or DDP's wrapper, not what is in it.

    Looks once through all objects the garbage collector knows, which takes some tens of milliseconds.
    """
    everything = _all_modules()
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
    return list(roots.values())


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


def _all_modules() -> list[torch.nn.Module]:
    # By type: asking a proxy for its class may import things, warn, or raise.
    return [
        thing
        for thing in gc.get_objects()
        if issubclass(type(thing), torch.nn.Module) and "_parameters" in thing.__dict__
    ]
