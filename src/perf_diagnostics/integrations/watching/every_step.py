"""Hooks at the steps of every optimizer in the process, which other threads may be in the midst of calling.

Torch keeps such hooks in two dictionaries, one for before a step and one for after it, and goes through them in each
step of each thread. Where one is put in or taken out meanwhile, that thread's ``optimizer.step()`` raises. So the hooks
of all watches have one place in each dictionary: to change what is held in it changes nothing that is gone through.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from perf_diagnostics.integrations.untraced import untraced

Hook = Callable[[Any, Any, Any], Any]

#: What torch puts around each optimizer's own ``step``; it calls the hooks.
_AROUND = torch.optim.Optimizer.profile_hook_step(lambda: None).__code__

#: Another thread goes through the hooks in microseconds, once it has a turn; it is looked so often, and in between
#: waited so long. After that what stands there does nothing, and is taken out with the next.
_MOST_LOOKS, _LOOK_S = 100, 0.001


class _Place:
    """The one place of our hooks in one of torch's dictionaries; empty, it is not there."""

    def __init__(self, register: Callable[[Hook], Any]) -> None:
        self._register = register
        self._hooks: tuple[Hook, ...] = ()
        self._handle: Any = None
        self._changing = threading.RLock()  # a signal's handler may end a watch while one begins

    def add(self, hook: Hook) -> None:
        with self._changing:
            self._hold((*self._hooks, hook))

    def remove(self, hook: Hook) -> None:
        with self._changing:
            self._hold(tuple(one for one in self._hooks if one is not hook))
            if not self._hooks and _nobody_is_at_hooks():
                self._handle.remove()
                self._handle = None

    def _hold(self, hooks: tuple[Hook, ...]) -> None:
        self._hooks = hooks
        held = hooks[0] if len(hooks) == 1 else _all_of(hooks)
        place = None if self._handle is None else self._handle.hooks_dict_ref()
        if place is not None and self._handle.id in place:
            place[self._handle.id] = held
        else:
            self._handle = self._register(held)


def _all_of(hooks: tuple[Hook, ...]) -> Hook:
    """One hook that calls these in turn, as torch does; it returns the arguments where one has changed them."""

    def call(optimizer: Any, args: Any, kwargs: Any) -> Any:
        changed = None
        for hook in hooks:
            told = hook(optimizer, args, kwargs)
            if told is not None:
                args, kwargs = changed = told
        return changed

    untraced(call, and_what_they_call=False)
    return call


_BEFORE, _AFTER = _Place(register_optimizer_step_pre_hook), _Place(register_optimizer_step_post_hook)


def see_steps(begins: Hook | None, ends: Hook, patches: ExitStack) -> None:
    """Have these called before and after the step of every optimizer, until ``patches`` closes."""
    for place, hook in ((_BEFORE, begins), (_AFTER, ends)):
        if hook is not None:
            place.add(hook)
            patches.callback(place.remove, hook)


def _nobody_is_at_hooks() -> bool:
    """Whether no other thread is between two hooks of a step; that is waited for, but not for long."""
    for _ in range(_MOST_LOOKS):
        if not any(_is_at_hooks(frame) for thread, frame in _others()):
            return True
        time.sleep(_LOOK_S)
    return False


def _others() -> list[tuple[int, FrameType]]:
    this = threading.get_ident()
    return [(thread, frame) for thread, frame in sys._current_frames().items() if thread != this]


def _is_at_hooks(frame: FrameType | None) -> bool:
    """Whether a thread that is in this frame is in what torch puts around a step, and not in the step itself."""
    inner: FrameType | None = None
    while frame is not None and frame.f_code is not _AROUND:
        inner, frame = frame, frame.f_back
    if frame is None:
        return False
    step = getattr(frame.f_locals.get("func"), "__code__", None)
    return inner is None or inner.f_code is not step
