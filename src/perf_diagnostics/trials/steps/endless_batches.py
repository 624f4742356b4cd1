"""Batches for as many steps as a trial takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from perf_diagnostics.errors import WorkloadError


class EndlessBatches:
    """Batches for as many steps as are asked for: the next pass over the data begins where one ends.

    A restart happens inside ``next()``, so its cost is part of the wait for data, and no step is lost to it.
    """

    def __init__(self, source: Iterable[Any], *, on_epoch: Callable[[int], None]) -> None:
        self._source = source
        self._on_epoch = on_epoch
        self._epoch = 0
        #: Around the begin of each pass, in which a loader starts its workers.
        self.around_start: Callable[[Iterable[Any]], AbstractContextManager[None]] = lambda _: nullcontext()
        self._iterator: Iterator[Any] | None = None

    def __next__(self) -> Any:
        if self._iterator is None:
            self._iterator = self._begun()
        try:
            return next(self._iterator)
        except StopIteration:
            pass
        self._epoch += 1
        self._on_epoch(self._epoch)
        restarted = self._begun()
        # Not "the same iterator as before": a DataLoader with persistent workers resets and returns the one it has.
        if restarted is self._source:
            raise WorkloadError(
                "The data ended and cannot be read again: an iterator was given. "
                "Give something that can be iterated afresh, such as a DataLoader or a list of batches."
            )
        self._iterator = restarted
        try:
            return next(restarted)
        except StopIteration:
            raise WorkloadError(
                "The data gave no batch: is the dataset smaller than the batch size, with drop_last=True?"
            ) from None

    def _begun(self) -> Iterator[Any]:
        with self.around_start(self._source):
            return iter(self._source)
