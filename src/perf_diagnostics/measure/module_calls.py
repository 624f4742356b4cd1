"""A module's calls, and what stands in for them: without hooks, which would be traced, copied and pickled."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

#: torch.nn.Module looks for this on every call and calls it instead; it leaves it out of copies and pickles. Compiling
#: in place (``model.compile()``) uses it too. It has been there since torch 2.1.
COMPILED_CALL = "_compiled_call_impl"

#: Torch's function that a module's call begins in, and where functions lie that may stand between it and ours.
CALLS: Any = getattr(torch.nn.Module._wrapped_call_impl, "__code__", None)
_OURS = str(Path(__file__).parents[1])

#: What a call that somebody has put in a compiled one's place names that by.
STANDS_IN_FOR = "_perf_diagnostics_stands_in_for"


class TimedCalls:
    """The calls of a module go through a function of ours, until this is called.

    Args:
        module: whose calls they are.
        timed: what stands in for them.
    """

    def __init__(self, module: torch.nn.Module, timed: Callable[..., Any]) -> None:
        self._alive = weakref.ref(module)
        self._timed = timed
        self._before = module.__dict__.get(COMPILED_CALL)
        setattr(timed, STANDS_IN_FOR, self._before)
        # Not setattr: the wrapper that torch.compile returns would pass it on to the module inside.
        module.__dict__[COMPILED_CALL] = timed

    @property
    def replaced(self) -> bool:
        """Whether the module is there, and somebody has replaced what we put in: ``model.compile()`` does."""
        module = self._alive()
        if module is None:
            return False
        call = module.__dict__.get(COMPILED_CALL)
        while call is not None and call is not self._timed:  # another one of ours may stand in for it meanwhile
            call = getattr(call, STANDS_IN_FOR, None)
        return call is None

    def __call__(self) -> None:
        """Time them no more."""
        module = self._alive()
        if module is None or module.__dict__.get(COMPILED_CALL) is not self._timed:
            return
        if self._before is None:
            del module.__dict__[COMPILED_CALL]
        else:
            module.__dict__[COMPILED_CALL] = self._before


def called_by(frame: FrameType | None, module: Any) -> Any:
    """The module whose call has come to a function that stands in for a module's call; asked by that function.

    Mostly the module itself. But who copies a module's ``__dict__`` (``learn2learn``'s ``clone_module``, replicas of
    ``DataParallel``) copies what stands in for its call as well, and the copy's call is not to be the module's.

    Args:
        frame: what has called the function: torch's part of a call, or another function that stands in for it.
        module: whose calls go through the function; None where it has gone, and only a copy is left.
    """
    while frame is not None and frame.f_code is not CALLS and frame.f_code.co_filename.startswith(_OURS):
        frame = frame.f_back
    return frame.f_locals["self"] if frame is not None and frame.f_code is CALLS else module


def own_call(module: Any) -> Callable[..., Any]:
    """What the call that has come to a function of ours does without that function, which asks this.

    Args:
        module: whose calls go through the function; a copy's call is the copy's own (:func:`called_by`).
    """
    called = module if torch.compiler.is_dynamo_compiling() else called_by(sys._getframe(2), module)
    call: Callable[..., Any] = called._call_impl
    return call


def stands_in(module: torch.nn.Module) -> Callable[..., Any] | None:
    """What is called instead of the module's own call by now; None where nothing is."""
    return module.__dict__.get(COMPILED_CALL)


def stand_in(module: torch.nn.Module, call: Callable[..., Any]) -> None:
    """Have this called instead of the module's own call, as ``model.compile()`` does; no copy of the module has it."""
    module.__dict__[COMPILED_CALL] = call


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether this is torch.compile's wrapper, or was compiled in place; what stands in for it of ours is not meant."""
    call = stands_in(module)
    while hasattr(call, STANDS_IN_FOR):
        call = getattr(call, STANDS_IN_FOR)
    return "_orig_mod" in module._modules or call is not None
