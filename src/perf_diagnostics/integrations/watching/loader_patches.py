"""Puts a watch into the loaders of a loop, and takes it out again: the wait for a batch, and what the batch holds."""

from __future__ import annotations

import functools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from threading import get_ident
from typing import Any

import torch
from torch.utils.data import DataLoader, dataloader

from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT, OTHER
from perf_diagnostics.integrations.steps.step_state import BEGUN, HAS_BATCH, NOTHING, UNSURE
from perf_diagnostics.integrations.watching.fetch_parts import Fetches
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.measure.steps.tape import AT, LEAVE
from perf_diagnostics.records import Json

#: Torch's own iterators, without workers and with them.
_KINDS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")

#: CPython's flag of a class made by a ``class`` statement; built-in ones cannot be changed.
_HEAP_TYPE = 1 << 9

_OTHER, _LEAVE = AT[OTHER], AT[LEAVE]

_clock = time.perf_counter_ns


def watch_loaders(watch: Watch, loaders: tuple[DataLoader[Any], ...] | None, patches: ExitStack) -> None:
    """Time the batches of these DataLoaders, or of every DataLoader in the process (None).

    The classes' own methods are replaced, so an iterator keeps its type, and nothing draws a random number. Of every
    DataLoader those are a part that are none, and read their data by torch's iterators all the same, as fastai's does.
    A subclass may make torch's iterator without ``DataLoader.__iter__``, to keep it for all passes (ultralytics' does).
    """
    make: Callable[..., Any] = DataLoader.__iter__
    base = dataloader._BaseDataLoaderIter
    fetch: Callable[..., Any] = base.__next__
    counts, trains = _marks_of(watch)
    #: The loaders whose ``__iter__`` is under way, by identity; several threads may each have one.
    timed: list[int] = []

    def makes_its_own(loader: object) -> bool:
        """Whether the iterator that is made for this is the first that is seen of a pass that counts."""
        wanted = loaders is None or any(loader is one for one in loaders)
        return wanted and id(loader) not in timed

    @functools.wraps(make)
    def __iter__(self: DataLoader[Any]) -> Any:  # noqa: N807 - stands in for the class's own
        if loaders is not None and not any(self is loader for loader in loaders):
            return make(self)
        timed.append(id(self))
        try:
            iterator = _timed_pass(watch, self, make)
        finally:
            timed.remove(id(self))
        if isinstance(iterator, base):
            setattr(iterator, counts, True)
            setattr(iterator, trains, watch.pass_trains)
        return iterator

    replace(DataLoader, "__iter__", __iter__, patches)
    for kind in _KINDS:
        _watch_others(watch, getattr(dataloader, kind), makes_its_own, patches)
    replace(base, counts, False, patches)
    replace(base, trains, False, patches)
    replace(base, "__next__", functools.wraps(fetch)(timed_fetch(watch, fetch, Fetches(watch))), patches)


def _watch_others(watch: Watch, kind: type[Any], makes_its_own: Callable[[object], bool], patches: ExitStack) -> None:
    """Time the passes that iterators of this class, torch's own, are made for by something else than a DataLoader."""
    make: Callable[..., Any] = kind.__init__
    counts, trains = _marks_of(watch)

    @functools.wraps(make)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - stands in for the class's own
        if not makes_its_own(loader):
            make(self, loader, *args, **kwargs)
            return
        _timed_pass(watch, loader, lambda loader: make(self, loader, *args, **kwargs))
        setattr(self, counts, True)
        setattr(self, trains, watch.pass_trains)
        try:
            if watch.watches() and watch.pass_trains and not watch.about.loader_facts:
                watch.about.loader_facts |= _workers_of(self)
        except FAULTS as fault:
            watch.fails(fault)

    replace(kind, "__init__", __init__, patches)


def _workers_of(iterator: Any) -> dict[str, Json]:
    """How one of torch's own iterators gets its batches, by the names of ``TrialResult.facts``."""
    facts: dict[str, Json] = {"num_workers": iterator._num_workers, "pin_memory": iterator._pin_memory}
    if iterator._num_workers:
        facts |= {"prefetch_factor": iterator._prefetch_factor, "persistent_workers": iterator._persistent_workers}
    return facts


def watch_iterable(watch: Watch, loader: Any, patches: ExitStack) -> bool:
    """Time the batches of a loader of the user's own class; false where its class cannot be watched.

    Its iterator is wrapped, for nothing is known about its type; it passes on whatever else it is asked for.
    """
    kind = type(loader)
    make: Callable[..., Any] | None = getattr(kind, "__iter__", None)
    if make is None or not kind.__flags__ & _HEAP_TYPE:
        return False
    fetch = timed_fetch(watch, TimedIterator.fetch)

    @functools.wraps(make)
    def __iter__(self: Any) -> Any:  # noqa: N807 - stands in for the class's own
        if self is not loader or not watch.watches():
            return make(self)
        return _timed_pass(watch, self, lambda loader: TimedIterator(iter(make(loader)), fetch, watch))

    replace(kind, "__iter__", __iter__, patches)
    return True


def timed_fetch(  # noqa: PLR0915 - with the fetch inside of it
    watch: Watch, fetch: Callable[[Any], Any], fetches: Fetches | None = None
) -> Callable[[Any], Any]:
    """A function that gets an iterator's next batch as ``fetch`` does, and times that where its batches count.

    Args:
        watch: whose.
        fetch: gets the batch.
        fetches: takes some of them apart, where the iterators are torch's own.
    """
    state, around, batches, thread = watch.state, watch.probe.open, watch.batches, watch.thread
    marks = watch.probe.marks
    grad_enabled, tensor = torch.is_grad_enabled, torch.Tensor
    counts, of_training = _marks_of(watch)

    def __next__(self: Any) -> Any:  # noqa: N807, PLR0912 - stands in for a class's own, and calls are dear
        if not state.active or get_ident() != thread or not getattr(self, counts):
            return fetch(self)
        batch: Any = None
        cpu, cpu_ns, taken_apart, expect = state.wait_cpu, 0, False, UNSURE
        try:
            expect, state.expect = state.expect, UNSURE
            main: Any = state.main()
            trains = grad_enabled()
            if expect >= BEGUN and trains and main is not None and main.training:
                mark = state.mark
                mark(_clock())  # AT[DATA_WAIT] is 0
                state.inside = DATA_WAIT
            else:
                expect = UNSURE
                begins_otherwise(self, main, trains=trains)
            if cpu is not None:
                cpu_ns = cpu()
            taken_apart = (
                fetches is not None
                and (next(fetches.due) or not self._num_yielded)
                and state.inside == DATA_WAIT
                and fetches.begins(self)
            )
        except FAULTS as fault:
            watch.fails(fault)
        try:
            batch = fetch(self)
        finally:
            try:
                if taken_apart and fetches is not None:
                    fetches.ends(came=batch is not None)
                if cpu is not None:
                    cpu_ns = cpu() - cpu_ns
                phase = state.inside
                if phase != NOTHING:
                    mark = state.mark
                    mark(_clock() + _LEAVE)
                    state.inside = around.pop() if around else NOTHING
                    if phase == DATA_WAIT:
                        kind = type(batch)  # what loaders usually give is (x, y)
                        first = batch[0] if (kind is list or kind is tuple) and batch else None
                        shape = first.shape if type(first) is tensor else None
                        if shape and cpu is None and not state.fetches_ahead:
                            state.unused_wait = True
                            batches.append(shape[0])
                        else:
                            watch.batch_came(batch, cpu_ns)
                        if expect and batch is not None:
                            state.expect = HAS_BATCH
            except FAULTS as fault:
                watch.fails(fault)
        return batch

    def begins_otherwise(iterator: Any, main: Any, *, trains: bool) -> None:
        """A fetch that is not what comes next in a plain step."""
        if (
            state.inside != NOTHING
            # A batch that nothing was trained on; where that goes on the tape may be full, and in an evaluation.
            or (state.unused_wait and (state.evaluated or len(marks) >= state.full_at))
            or main is None
            or (not main.training if trains else len(marks) >= state.full_at)
        ):
            watch.fetch_begins(trains=getattr(iterator, of_training))
        else:
            state.inside = DATA_WAIT if trains else OTHER
            mark = state.mark
            mark(_clock() if trains else _clock() + _OTHER)

    return __next__


class TimedIterator:
    """An iterator whose ``next`` is the wait for data."""

    def __init__(self, iterator: Iterator[Any], fetch: Callable[[Any], Any], watch: Watch) -> None:
        self._iterator = iterator
        self._timed_fetch = fetch
        counts, trains = _marks_of(watch)
        self.__dict__ |= {counts: True, trains: watch.pass_trains}

    def __iter__(self) -> TimedIterator:
        return self

    def __next__(self) -> Any:
        return self._timed_fetch(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def fetch(self) -> Any:
        """The next batch, not timed."""
        return next(self._iterator)


def _marks_of(watch: Watch) -> tuple[str, str]:
    """Two attributes of an iterator, of this watch alone: whether its batches count, and whether its pass trains.

    The second one also tells of a batch that is fetched before the model is put into training mode.
    """
    return f"_perf_diagnostics_counts_{id(watch)}", f"_perf_diagnostics_trains_{id(watch)}"


def _timed_pass(watch: Watch, loader: Any, make: Callable[[Any], Any]) -> Any:
    """The iterator of a pass over the data; making it (starting workers, reading indices) is a wait for data."""
    if not watch.watches():
        return make(loader)
    try:
        # This is called by what stands in for __iter__, and that by whoever wants an iterator.
        watch.pass_begins(loader, str(sys._getframe(2).f_globals.get("__name__")))
    except FAULTS as fault:
        watch.fails(fault)
    try:
        if watch.pass_trains:
            with watch.recording.worker_looks.in_workers_of(loader):
                return make(loader)
        return make(loader)
    finally:
        try:
            watch.pass_began()
        except FAULTS as fault:
            watch.fails(fault)
