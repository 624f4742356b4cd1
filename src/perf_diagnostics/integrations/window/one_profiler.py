"""Only one profiler can record at a time: sees whether the training's own does, so that ours steps back for it."""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import torch

from perf_diagnostics.measure.faults import FAULTS

#: What every profiler of torch calls to begin and to end, by the names that its module has imported them under.
_BEGIN = ("_prepare_profiler", "_enable_profiler")
_END = ("_disable_profiler",)


class OneProfiler:
    """Whether a profiler that is not ours records, or is about to.

    Args:
        give_way: called right before such a one begins, while ours may be recording.
    """

    def __init__(self, give_way: Callable[[], None]) -> None:
        self._give_way = give_way
        self._ours = False
        self._others = False
        #: The profilers that were prepared when the first look was taken; later ones are seen when they are.
        self._before: list[weakref.ref[Any]] | None = None

    @property
    def taken(self) -> bool:
        """Whether somebody else's records now, also one that had begun before we looked."""
        return self._others or bool(getattr(torch.autograd.profiler, "_is_profiler_enabled", False))

    def prepared(self) -> bool:
        """Whether a profiler that had been prepared before we looked has not ended yet, though none may record.

        The first time takes as long as looking through all objects that there are.
        """
        if self._before is None:
            kind = torch.autograd.profiler.profile
            found = [one for one in gc.get_objects() if issubclass(type(one), kind)]
            self._before = [weakref.ref(one) for one in found if _goes_on(one)]
        return any(_goes_on(one()) for one in self._before)

    @contextlib.contextmanager
    def ours(self) -> Iterator[None]:
        """What begins and ends in here is our own."""
        before, self._ours = self._ours, True
        try:
            yield
        finally:
            self._ours = before

    def install(self, patches: ExitStack) -> None:
        """See profilers begin and end until ``patches`` closes."""
        module = torch.autograd.profiler
        for name in _BEGIN:
            self._see(module, name, self._begins, patches)
        for name in _END:
            self._see(module, name, self._ends, patches)

    def _see(self, module: Any, name: str, told: Callable[[], None], patches: ExitStack) -> None:
        original: Callable[..., Any] | None = getattr(module, name, None)
        if original is None:
            return
        call = original

        @functools.wraps(call)
        def seen(*args: Any, **kwargs: Any) -> Any:
            if not self._ours:
                with contextlib.suppress(*FAULTS):
                    told()
            return call(*args, **kwargs)

        setattr(module, name, seen)

        def undo() -> None:
            if getattr(module, name) is seen:  # else somebody has patched over it; ours passes calls through
                setattr(module, name, call)

        patches.callback(undo)

    def _begins(self) -> None:
        self._others = True
        self._give_way()

    def _ends(self) -> None:
        self._others = False


def _goes_on(profiler: Any) -> bool:
    """Whether it has been prepared, and has no results yet."""
    return bool(getattr(profiler, "entered", False)) and getattr(profiler, "kineto_results", None) is None
