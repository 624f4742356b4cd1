"""Whether a data set that is a stream gives each loader worker a part of it, as far as its code tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, get_worker_info

#: How far calls are followed from ``__iter__``: to a method, and what this calls.
_CALLS_DEEP = 3

#: What torch's DataLoader calls on stages of a data pipe that split it among the workers.
_SPLITS_PIPES = "apply_sharding"


def splits_stream(loader: DataLoader[Any]) -> bool:
    """Whether the stream asks in which worker it runs; one that does not is delivered by each worker as a whole.

    Looked at is what ``__iter__`` of the data set, and of streams that it holds, names (``get_worker_info``), with the
    functions that it calls; and a ``worker_init_fn`` that asks, and changes the worker's copy of the data set. Nothing
    of it is run. These are the two ways of torch's documentation (``torch.utils.data.IterableDataset``).
    """
    names = set(_names(loader.worker_init_fn))
    if {get_worker_info.__name__, "dataset"} <= names:
        return True
    return any(_asks(stream) for stream in streams_of(loader.dataset))


def streams_of(dataset: object) -> Iterator[object]:
    """A stream, and those that it holds: a shuffle buffer around shards, several one after the other."""
    yield from _streams(dataset, set())


def _streams(dataset: object, seen: set[int]) -> Iterator[object]:
    if not isinstance(dataset, IterableDataset) or id(dataset) in seen:
        return
    seen.add(id(dataset))
    yield dataset
    for held in list(vars(dataset).values()):
        for one in held if isinstance(held, list | tuple) else (held,):
            yield from _streams(one, seen)


def _asks(stream: object) -> bool:
    kind = type(stream)
    if any(_SPLITS_PIPES in vars(base) for base in kind.__mro__):
        return True
    return any(get_worker_info.__name__ in _names(function, kind) for function in _methods(kind, "__iter__"))


def _methods(kind: type, name: str) -> Iterator[object]:
    """What a class and its bases have under a name, for any of them may be the one that is called."""
    for base in kind.__mro__:
        found = vars(base).get(name)
        yield getattr(found, "fget", None) or getattr(found, "__func__", found)


def _names(called: Callable[..., Any] | object, kind: type = object) -> Iterator[str]:
    """The names that a function's code uses, and those of the functions it calls."""
    function = getattr(called, "func", called)  # of functools.partial
    yield from _names_within(getattr(function, "__func__", function), kind, _CALLS_DEEP, set())


def _names_within(function: object, kind: type, deep: int, seen: set[CodeType]) -> Iterator[str]:
    if not isinstance(function, FunctionType):
        return
    if function is get_worker_info:
        yield get_worker_info.__name__  # imported by another name
    for name in _names_of(function.__code__, seen):
        yield name
        for called in (*_methods(kind, name), function.__globals__.get(name)) if deep else ():
            yield from _names_within(called, kind, deep - 1, seen)


def _names_of(code: CodeType, seen: set[CodeType]) -> Iterator[str]:
    """With those of functions within it."""
    if code in seen:
        return
    seen.add(code)
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names_of(inner, seen)
