"""Puts a watch into torch's own calls (backward, DataLoader, optimizers), and takes it out again without a trace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, dataloader

from perf_diagnostics.integrations.watch import Watch

#: Marks an iterator whose batches count.
_COUNTS = "_perf_diagnostics_counts"


def watch_backward(watch: Watch, patches: ExitStack) -> None:
    """Time ``Tensor.backward`` and ``torch.autograd.backward``; the second is called by the first, and counts once."""
    for owner in (torch.Tensor, torch.autograd):
        original: Callable[..., Any] = owner.backward

        @functools.wraps(original)
        def backward(*args: Any, _original: Callable[..., Any] = original, **kwargs: Any) -> Any:
            if not watch.active or get_ident() != watch.thread or watch.in_backward:
                return _original(*args, **kwargs)
            watch.backward_begins()
            try:
                return _original(*args, **kwargs)
            finally:
                watch.backward_ends(args[0] if args else kwargs.get("tensors"))

        _replace(owner, "backward", backward, patches)


def watch_optimizers(watch: Watch, optimizers: Iterable[torch.optim.Optimizer] | None, patches: ExitStack) -> None:
    """Time the steps of these optimizers, or of every optimizer in the process (None)."""

    def begins(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if watch.active and get_ident() == watch.thread:
            watch.optimizer_begins(optimizer)

    def ends(optimizer: Any, _args: Any, _kwargs: Any) -> None:
        if watch.active and get_ident() == watch.thread:
            watch.optimizer_ends(optimizer)

    if optimizers is None:
        handles = [register_optimizer_step_pre_hook(begins), register_optimizer_step_post_hook(ends)]
    else:
        handles = [
            handle
            for optimizer in optimizers
            for handle in (optimizer.register_step_pre_hook(begins), optimizer.register_step_post_hook(ends))
        ]
    for handle in handles:
        patches.callback(handle.remove)


def watch_loaders(watch: Watch, loaders: tuple[DataLoader[Any], ...] | None, patches: ExitStack) -> None:
    """Time the batches of these DataLoaders, or of every DataLoader in the process (None).

    The classes' own methods are replaced, so an iterator keeps its type, and nothing draws a random number.
    """
    make: Callable[..., Any] = DataLoader.__iter__
    base = dataloader._BaseDataLoaderIter
    fetch: Callable[..., Any] = base.__next__

    @functools.wraps(make)
    def __iter__(self: DataLoader[Any]) -> Any:  # noqa: N807 - stands in for the class's own
        counts = loaders is None or any(self is loader for loader in loaders)
        if not counts or not watch.watches():
            return make(self)
        watch.pass_begins(self)
        try:
            iterator = make(self)
        finally:
            watch.pass_began()
        if isinstance(iterator, base):
            iterator.__dict__[_COUNTS] = True
        return iterator

    @functools.wraps(fetch)
    def __next__(self: Any) -> Any:  # noqa: N807 - stands in for the class's own
        if not watch.active or get_ident() != watch.thread or _COUNTS not in self.__dict__:
            return fetch(self)
        batch = None
        watch.fetch_begins()
        try:
            batch = fetch(self)
        finally:
            watch.fetch_ends(batch)
        return batch

    _replace(DataLoader, "__iter__", __iter__, patches)
    _replace(base, "__next__", __next__, patches)


def watch_iterable(watch: Watch, loader: Any, patches: ExitStack) -> bool:
    """Time the batches of a loader of the user's own class; false where its class cannot be watched.

    Its iterator is wrapped, for nothing is known about its type; it passes on whatever else it is asked for.
    """
    kind = type(loader)
    make: Callable[..., Any] | None = getattr(kind, "__iter__", None)
    if make is None or not kind.__flags__ & _HEAP_TYPE:
        return False

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:  # noqa: N807 - stands in for the class's own
        if self is not loader or not watch.watches():
            return make(self)
        watch.pass_begins(self)
        try:
            return TimedIterator(iter(make(self)), watch)
        finally:
            watch.pass_began()

    _replace(kind, "__iter__", __iter__, patches)
    return True


#: CPython's flag of a class made by a ``class`` statement; built-in ones cannot be changed.
_HEAP_TYPE = 1 << 9


class TimedIterator:
    """An iterator whose ``next`` is the wait for data."""

    def __init__(self, iterator: Iterator[Any], watch: Watch) -> None:
        self._iterator = iterator
        self._watch = watch

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        if not self._watch.watches():
            return next(self._iterator)
        batch = None
        self._watch.fetch_begins()
        try:
            batch = next(self._iterator)
        finally:
            self._watch.fetch_ends(batch)
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def _replace(owner: Any, name: str, new: Callable[..., Any], patches: ExitStack) -> None:
    """Set an attribute until ``patches`` closes; an inherited one disappears again instead of being copied down."""
    own = vars(owner).get(name)
    setattr(owner, name, new)

    def undo() -> None:
        if vars(owner).get(name) is not new:
            return  # somebody has patched over it; ours passes calls through from now on
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)

    patches.callback(undo)
