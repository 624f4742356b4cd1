"""A walk along the frames of another thread, which must not run on in the middle.

A thread's frames lie in memory that is given back when they return, and Python makes an object of each when somebody
asks for it. Python 3.11 may collect garbage while it makes one; what the collector calls (``gc.callbacks``, finalizers)
may give Python's lock away, the thread runs on, its frame returns, and the object is made of memory that is something
else by now: ``frame.f_back`` gives an object of another kind, or the process dies in ``PyFrame_GetBack``. So the
collector is off during a walk, as CPython itself has it off in ``sys._current_frames`` since 3.11.5
(https://github.com/python/cpython/issues/106883). From Python 3.12 on it runs between two instructions of Python only,
and during a call of C there are none.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from functools import partial
from itertools import accumulate, chain, repeat, takewhile
from operator import attrgetter, call
from types import CodeType, FrameType
from typing import TypeVar

from perf_diagnostics.measure.code.stacks import Walk

#: Frames that are looked through at most; the outermost of these are left out.
_MOST_FRAMES = 400

_CODE_AND_PLACE = attrgetter("f_code", "f_lasti")

#: Whether garbage may be collected wherever an object is made, and not only between two instructions.
_COLLECTS_ANYWHERE = sys.hexversion < 0x030C0000

_T = TypeVar("_T")
_Call = Callable[[], object]

#: Calls what it is given, and is of C itself.
_called: Callable[[_Call], object] = call


def frames_of_threads() -> dict[int, FrameType]:
    """The innermost frame of each thread, by ``threading.get_ident()``; the caller's own is among them."""
    return _undisturbed(sys._current_frames)


def walked(frame: FrameType) -> Walk:
    """A thread's frames, from this one outwards."""
    pairs: list[tuple[CodeType, int]] = []
    outwards = accumulate(chain((frame,), repeat("f_back", _MOST_FRAMES - 1)), getattr)  # type: ignore[arg-type]
    _undisturbed(partial(pairs.extend, map(_CODE_AND_PLACE, takewhile(bool, outwards))))
    return [code for code, _ in pairs], [place for _, place in pairs]


def _undisturbed(function: Callable[[], _T]) -> _T:
    """What a function of C gives, during which no other thread runs.

    Asking whether the collector is on, turning it off, the function, and turning it on again are one call of C: no
    thread sees it off, and no thread's own change of it falls in between.
    """
    if not _COLLECTS_ANYWHERE:
        return function()
    given: list[_T] = []
    made: _Call = partial(given.extend, map(call, (function,)))
    while True:
        undisturbed: tuple[_Call, ...] = gc.disable, made, gc.enable
        where_on: tuple[_Call, ...] = gc.isenabled, partial(list, map(_called, undisturbed))
        try:
            all(map(_called, where_on))
        except BaseException:
            gc.enable()
            raise
        if not given:  # it was off
            any(map(_called, (gc.isenabled, made)))
        if given:
            return given.pop()  # not kept: this very frame may be in it, a cycle that would keep what all frames hold
