"""The marks of a loop as named ranges of a profiler window: for the few steps of the window, and no longer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from threading import get_ident
from typing import Any

import torch
from torch.utils import _python_dispatch

from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.profiler_window import OUR_STEP
from perf_diagnostics.measure.steps.tape import ABANDON, BEGUN, CLOSURE, END, LEAVE, code_of
from perf_diagnostics.records import ALL_PHASES, Phase


class WindowRanges:
    """Stands where marks are written, passes each on, and opens or closes the range that it begins or ends.

    Args:
        mark: writes the mark.
    """

    def __init__(self, mark: Callable[[int], None]) -> None:
        self._mark = mark
        self._thread = get_ident()
        #: The open phases and their ranges, outermost first; without a range what is part of the phase around it.
        self._open: list[tuple[str, Any]] = []
        self._step: Any = None
        self._off = False

    def __call__(self, mark: int) -> None:
        self._mark(mark)
        if self._off or get_ident() != self._thread:  # a range is one thread's own
            return
        try:
            self._follow(code_of(mark))
        except FAULTS:
            self._off = True  # the window lacks phases from here on

    def step_begins(self, number: int) -> None:
        """The step under way ends, and the one of this number begins."""
        self.close()
        self._step = _entered(f"{OUR_STEP}{number}")

    def close(self) -> None:
        """End all that is open."""
        self._close_phases()
        step, self._step = self._step, None
        if step is not None:
            _left(step)

    def end(self) -> None:
        """End all that is open, and only pass marks on from now on."""
        try:
            self.close()
        finally:
            self._off = True

    def _follow(self, code: int) -> None:
        if code in BEGUN:
            name = self._name_of(code)
            self._open.append((name, _entered(name) if name else None))
        elif code == LEAVE and self._open:
            self._leave()
        elif code in (ABANDON, END):
            self._close_phases()

    def _name_of(self, code: int) -> str:
        """The range's name; empty where what begins is a part of the phase around it."""
        if code == CLOSURE:
            return ""
        name = str(ALL_PHASES[BEGUN[code]])
        # What is computed again inside a backward (activation checkpointing) is backward.
        recomputed = name == Phase.FORWARD and any(phase == Phase.BACKWARD for phase, _ in self._open)
        return "" if recomputed else name

    def _close_phases(self) -> None:
        while self._open:
            self._leave()

    def _leave(self) -> None:
        _, found = self._open.pop()
        if found is not None:
            _left(found)


def _entered(name: str) -> Any:
    found: Any = torch.profiler.record_function(name)
    with _apart():
        found.__enter__()
    return found


def _left(found: Any) -> None:
    with _apart():
        found.__exit__(None, None, None)


def _apart() -> AbstractContextManager[Any]:
    """Out of sight of modes that watch the training's operators (counters of operations): a range is one of them."""
    count = getattr(torch._C, "_len_torch_dispatch_stack", None)
    if count is None or not count():
        return nullcontext()
    aside: AbstractContextManager[Any] = _python_dispatch._disable_current_modes()
    return aside
