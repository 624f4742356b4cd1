"""Times what a DataLoader's iterator does for a batch of the training: drawing indices, collating, taking over.

All lie inside of the wait for data, in the loop's own process: indices are drawn there with and without workers, and
without them samples are fetched and collated there, too; with them, what they made is taken over from their queue. A
look at the stack cannot tell them apart where they are plain Python: it comes when the thread gives Python's lock away,
which a search through a list of labels does not.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.queues import Queue
from threading import get_ident
from typing import Any, Protocol

from torch.utils.data import dataloader

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT, LoopProbe
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.integrations.watching.sampler_place import sampler_of_iterator
from perf_diagnostics.measure.faults import FAULTS
from perf_diagnostics.records import Json

#: torch's own iterators, without workers and with them.
_ITERATORS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")

#: Rows of sums that are kept: enough to tell how much they scatter. When there are as many, two of them become one.
MOST_ROWS = 64

#: Once there are rows enough, one batch of so many is timed: a sampler that works for several batches at a time does so
#: for a rounder number of them.
_ONE_OF = 29

_clock = time.perf_counter_ns


class FetchParts:
    """Sums over batches of the steady training; ``told`` is what the record holds of them, and goes on with them.

    ``rows`` are sums of as many batches each, in their order: how many, and in ns how long they were waited for, of
    that how long their indices were drawn, how long their samples were collated, and how long they were taken over:
    from when the workers' queue had something until it was rebuilt, piece by piece. The first batch of a pass is not
    among them, for with it a sampler may draw the order of them all: ``first`` holds the same five sums of those. With
    the first :data:`MOST_ROWS` batches there are rows enough, and one of 29 is timed from then on. ``ahead`` is, of the
    same batches as the rows, the sum of the waits and that of each wait times the later batches that had come by its
    end: workers made them and put them into their queue while an earlier one was waited for.
    """

    __slots__ = ("ahead", "collated_ns", "drawn_ns", "first", "row", "row_batches", "rows", "taken_ns", "told")

    def __init__(self) -> None:
        self.restart()
        self.row_batches = 1
        self.rows: list[Json] = []
        self.row = [0, 0, 0, 0, 0]
        self.first = [0, 0, 0, 0, 0]
        self.ahead = [0, 0]
        self.told: dict[str, Any] = {"rows": self.rows, "first": self.first, "ahead": self.ahead}

    def restart(self) -> None:
        """A batch is about to be asked for."""
        self.drawn_ns = self.collated_ns = self.taken_ns = 0

    def add(self, sums: list[int], took_ns: int) -> None:
        """A batch has come, and is a part of these sums."""
        sums[0] += 1
        sums[1] += took_ns
        sums[2] += self.drawn_ns
        sums[3] += self.collated_ns
        sums[4] += self.taken_ns

    def row_ended(self) -> None:
        """The row has its batches; the next one begins."""
        rows: Any = self.rows
        rows.append(self.row)
        self.row = [0, 0, 0, 0, 0]
        if len(rows) == MOST_ROWS:
            rows[:] = [[sum(pair) for pair in zip(*rows[at : at + 2], strict=True)] for at in range(0, MOST_ROWS, 2)]
            self.row_batches *= 2


class Waits(Protocol):
    """A loop whose waits for data are marked."""

    @property
    def probe(self) -> LoopProbe:
        """Where they are marked."""

    @property
    def about(self) -> About:
        """Takes what was timed, among the facts of the loader."""

    @property
    def thread(self) -> int:
        """That of the loop, by identity."""

    def fails(self, fault: Exception) -> None:
        """Takes a fault of ours."""


class Fetches:
    """Times fetches of torch's own iterators, one at a time: what they use is replaced for as long.

    Between :meth:`begins` and :meth:`ends` the iterator has an iterator of ours over its indices, and a queue of ours
    before that of its workers or, without them, its fetcher a function of ours that collates. So a fetch that is not
    timed calls nothing of ours.

    Args:
        loop: whose they are.
    """

    __slots__ = ("_began_ns", "_iterator", "_kinds", "_loop", "_parts", "_undo", "due")

    def __init__(self, loop: Waits) -> None:
        self._loop = loop
        self._parts = FetchParts()
        self._kinds = _kinds()
        #: The iterator that gets a batch of the training now; what others do inside is a part of its fetch.
        self._iterator: Any = None
        self._undo: list[tuple[Any, str, Any, Any]] = []
        self._began_ns = 0
        #: Whether the next fetch is timed, whose it ever is; the first one of an iterator is in any case.
        self.due: Iterator[bool] = itertools.repeat(True)

    def begins(self, iterator: Any) -> bool:
        """The next batch of the training is asked for; true where that is timed, until :meth:`ends`."""
        if self._iterator is not None or not isinstance(iterator, self._kinds):
            return False
        parts = self._parts
        parts.restart()
        draws = iterator._sampler_iter
        fetcher = getattr(iterator, "_dataset_fetcher", None)  # with workers they have it
        self._undo = [(iterator, "_sampler_iter", draws, _Draws(draws, parts))]
        collate = getattr(fetcher, "collate_fn", None)
        if callable(collate):
            self._undo.append((fetcher, "collate_fn", collate, _timed_collate(collate, parts)))
        queue = getattr(iterator, "_data_queue", None)
        if isinstance(queue, Queue):  # with a thread that pins memory, that takes over
            self._undo.append((iterator, "_data_queue", queue, _TakenOver(queue, parts)))
        for owner, name, _, ours in self._undo:
            setattr(owner, name, ours)
        self._iterator = iterator
        self._began_ns = _clock()
        return True

    def ends(self, *, came: bool) -> None:
        """It has ended, perhaps without a batch."""
        took_ns = _clock() - self._began_ns
        iterator, self._iterator = self._iterator, None
        for owner, name, own, ours in self._undo:
            if getattr(owner, name, None) is ours:
                setattr(owner, name, own)
        self._undo = []
        if not came or self._loop.probe.warmup:
            return
        parts = self._parts
        if iterator._num_yielded == 1:  # with this one
            parts.add(parts.first, took_ns)
            return
        row = parts.row
        parts.add(row, took_ns)
        parts.ahead[0] += took_ns
        parts.ahead[1] += took_ns * _came_early(iterator)
        if row[0] >= parts.row_batches:
            if len(parts.rows) == MOST_ROWS - 1 and parts.row_batches == 1:  # with this one there are enough
                self.due = itertools.cycle((*[False] * (_ONE_OF - 1), True))
            parts.row_ended()
            self._tell(iterator)

    def _tell(self, iterator: Any) -> None:
        """The record holds the sums, and what draws the indices of the first loader that they are of."""
        told = self._parts.told
        if "sampler" not in told:
            told["sampler"] = sampler_of_iterator(iterator)
        self._loop.about.loader_facts["loader_parts"] = told


def _came_early(iterator: Any) -> int:
    """Batches behind the one that was given which the loop has already got from its workers' queue."""
    outstanding = getattr(iterator, "_task_info", None)  # by number: the worker, and the batch where it has come
    return sum(len(one) > 1 for one in outstanding.values()) if isinstance(outstanding, dict) else 0


class _Draws:
    """An iterator over indices that times how long they are drawn."""

    __slots__ = ("_iterator", "_parts")

    def __init__(self, iterator: Iterator[Any], parts: FetchParts) -> None:
        self._iterator = iterator
        self._parts = parts

    def __iter__(self) -> _Draws:
        return self

    def __next__(self) -> Any:
        began = _clock()
        try:
            return next(self._iterator)
        finally:
            self._parts.drawn_ns += _clock() - began


class _TakenOver:
    """The workers' queue, which times how long what it has takes to be read and rebuilt, without the wait for it."""

    __slots__ = ("_parts", "_queue")

    def __init__(self, queue: Any, parts: FetchParts) -> None:
        self._queue = queue
        self._parts = parts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def get(self, *args: Any, **kwargs: Any) -> Any:
        """What is next, as ``multiprocessing.Queue.get`` gives it: it polls, reads, and rebuilds what it has read."""
        queue, poll, came_ns = self._queue, self._queue._poll, 0

        def timed_poll(*args: Any, **kwargs: Any) -> Any:
            nonlocal came_ns
            has = poll(*args, **kwargs)
            came_ns = _clock() if has else 0
            return has

        queue._poll = timed_poll
        try:
            return queue.get(*args, **kwargs)
        finally:
            queue._poll = poll
            if came_ns:
                self._parts.taken_ns += _clock() - came_ns


def _timed_collate(own: Callable[[Any], Any], parts: FetchParts) -> Callable[[Any], Any]:
    def collate(samples: Any) -> Any:
        began = _clock()
        try:
            return own(samples)
        finally:
            parts.collated_ns += _clock() - began

    return collate


def _kinds() -> tuple[type[Any], ...]:
    """Torch's own iterators, where they are made as they are known to be."""
    draw = getattr(dataloader._BaseDataLoaderIter, "_next_index", None)
    if "_sampler_iter" not in getattr(getattr(draw, "__code__", None), "co_names", ()):
        return ()
    kinds = (getattr(dataloader, name, None) for name in _ITERATORS)
    return tuple(kind for kind in kinds if isinstance(kind, type))


def watch_fetches(loop: Waits, patches: ExitStack) -> None:
    """Time the parts of a loop's waits until ``patches`` closes, where the loop marks them itself.

    Args:
        loop: whose.
        patches: takes it all out again.
    """
    base: Any = dataloader._BaseDataLoaderIter
    fetch: Callable[[Any], Any] = base.__next__
    state, thread, fetches = loop.probe.state, loop.thread, Fetches(loop)

    @functools.wraps(fetch)
    def __next__(self: Any) -> Any:  # noqa: N807 - stands in for the class's own
        if not next(fetches.due) and self._num_yielded:
            return fetch(self)
        if state.inside != DATA_WAIT or not state.active or get_ident() != thread:
            return fetch(self)
        timed, batch = False, None
        try:
            timed = fetches.begins(self)
        except FAULTS as fault:
            loop.fails(fault)
        try:
            batch = fetch(self)
        finally:
            if timed:
                try:
                    fetches.ends(came=batch is not None)
                except FAULTS as fault:
                    loop.fails(fault)
        return batch

    replace(base, "__next__", __next__, patches)
