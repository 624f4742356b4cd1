"""Times what a DataLoader's iterator does for a batch of the training: drawing its indices, collating its samples.

Both lie inside of the wait for data, in the loop's own process: indices are drawn there with and without workers, and
without them samples are fetched and collated there, too. A look at the stack cannot tell them apart where they are
plain Python: it comes when the thread gives Python's lock away, which a search through a list of labels does not.
"""

from __future__ import annotations

import functools
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from threading import get_ident
from typing import Any, Protocol

from torch.utils.data import dataloader

from perf_diagnostics.integrations.about import About
from perf_diagnostics.integrations.shield import FAULTS
from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT, LoopProbe
from perf_diagnostics.integrations.watching.patches import replace
from perf_diagnostics.integrations.watching.sampler_place import sampler_of_iterator
from perf_diagnostics.records import Json

#: torch's own iterators, without workers and with them.
_ITERATORS = ("_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter")

#: Rows of sums that are kept: enough to tell how much they scatter. When there are as many, two of them become one.
MOST_ROWS = 64

#: Once there are rows enough, one batch of so many is timed: a sampler that works for several batches at a time does so
#: for a rounder number of them.
_ONE_OF = 7

_clock = time.perf_counter_ns


class FetchParts:
    """Sums over batches of the steady training; ``told`` is what the record holds of them, and goes on with them.

    ``rows`` are sums of as many batches each, in their order: how many, and in ns how long they were waited for, of
    that how long their indices were drawn, and how long their samples were collated. The first batch of a pass is not
    among them, for with it a sampler may draw the order of them all: ``first`` holds the same four sums of those. With
    the first :data:`MOST_ROWS` batches there are rows enough, and one of seven is timed from then on.
    """

    __slots__ = ("collated_ns", "drawn_ns", "first", "open", "passed_over", "row", "row_batches", "rows", "told")

    def __init__(self) -> None:
        #: The iterator that gets a batch of the training now; what others do inside is a part of its fetch.
        self.open: Any = None
        self.drawn_ns = self.collated_ns = 0
        self.row_batches = 1
        #: Batches that are not timed before the next one is.
        self.passed_over = 0
        self.rows: list[Json] = []
        self.row = [0, 0, 0, 0]
        self.first = [0, 0, 0, 0]
        self.told: dict[str, Any] = {"rows": self.rows, "first": self.first}

    def add(self, sums: list[int], took_ns: int) -> None:
        """A batch has come, and is a part of these sums."""
        sums[0] += 1
        sums[1] += took_ns
        sums[2] += self.drawn_ns
        sums[3] += self.collated_ns

    def row_ended(self) -> None:
        """The row has its batches; the next one begins."""
        rows: Any = self.rows
        rows.append(self.row)
        self.row = [0, 0, 0, 0]
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


def watch_fetches(loop: Waits, patches: ExitStack) -> None:
    """Time the parts of a loop's waits until ``patches`` closes, if torch's iterators are made as they are known to be.

    Args:
        loop: whose.
        patches: takes it all out again.
    """
    base: Any = dataloader._BaseDataLoaderIter
    kinds = [getattr(dataloader, name, None) for name in _ITERATORS]
    made = [kind for kind in kinds if kind is not None and "_next_data" in vars(kind)]
    if "_next_index" not in vars(base) or not made:
        return
    parts = FetchParts()
    replace(base, "_next_index", _timed_draw(parts, base._next_index), patches)
    collates = _Collates(parts)
    patches.callback(collates.undo)
    for kind in made:
        replace(kind, "_next_data", _timed_data(loop, parts, kind._next_data, collates), patches)


def _timed_draw(parts: FetchParts, draw: Callable[[Any], Any]) -> Callable[[Any], Any]:
    @functools.wraps(draw)
    def _next_index(self: Any) -> Any:
        if parts.open is not self:
            return draw(self)
        began = _clock()
        try:
            return draw(self)
        finally:
            parts.drawn_ns += _clock() - began

    return _next_index


def _timed_data(loop: Waits, parts: FetchParts, get: Callable[[Any], Any], collates: _Collates) -> Callable[[Any], Any]:
    state, probe, thread = loop.probe.state, loop.probe, loop.thread

    @functools.wraps(get)
    def _next_data(self: Any) -> Any:
        if parts.passed_over and self._num_yielded:  # whose it ever is: six of seven fetches cost no more than this
            parts.passed_over -= 1
            return get(self)
        if state.inside != DATA_WAIT or parts.open is not None or not state.active or get_ident() != thread:
            return get(self)
        try:
            if not self._num_yielded:
                collates.time(self)
        except FAULTS as fault:
            loop.fails(fault)
        parts.open, parts.drawn_ns, parts.collated_ns = self, 0, 0
        began = _clock()
        try:
            data = get(self)
            took_ns = _clock() - began
        finally:
            parts.open = None
        try:
            if probe.warmup:
                pass
            elif self._num_yielded:
                row = parts.row
                parts.add(row, took_ns)
                parts.passed_over = 0 if parts.row_batches == 1 else _ONE_OF - 1
                if row[0] >= parts.row_batches:
                    parts.row_ended()
                    _tell(loop.about, parts, self)
            else:
                parts.add(parts.first, took_ns)
        except FAULTS as fault:
            loop.fails(fault)
        return data

    return _next_data


def _tell(about: About, parts: FetchParts, iterator: Any) -> None:
    """The record holds the sums, and what draws the indices of the first loader that they are of."""
    if "sampler" not in parts.told:
        parts.told["sampler"] = sampler_of_iterator(iterator)
    about.loader_facts["loader_parts"] = parts.told


class _Collates:
    """The functions that collate samples in the loop's own process, timed in the iterators that call them there."""

    def __init__(self, parts: FetchParts) -> None:
        self._parts = parts
        self._changed: weakref.WeakKeyDictionary[Any, Callable[..., Any]] = weakref.WeakKeyDictionary()

    def time(self, iterator: Any) -> None:
        """Time those of this iterator; one with workers has them there."""
        fetcher = vars(iterator).get("_dataset_fetcher")
        own = None if fetcher is None else vars(fetcher).get("collate_fn")
        if not callable(own) or fetcher in self._changed:
            return
        parts = self._parts

        @functools.wraps(own)
        def collate(samples: Any) -> Any:
            if parts.open is not iterator_of():
                return own(samples)
            began = _clock()
            try:
                return own(samples)
            finally:
                parts.collated_ns += _clock() - began

        iterator_of = weakref.ref(iterator)
        self._changed[fetcher] = own
        fetcher.collate_fn = collate

    def undo(self) -> None:
        """Each iterator that is left has its own function again."""
        for fetcher, own in list(self._changed.items()):
            fetcher.collate_fn = own
        self._changed.clear()
