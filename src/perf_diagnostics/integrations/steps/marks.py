"""The marks that are put into a loop by hand: context managers of phases and steps, and an iterator over batches."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Protocol, TypeVar

from perf_diagnostics.integrations.steps.loop_probe import DATA_WAIT

T = TypeVar("T")


class Marked(Protocol):
    """What is told when the loop comes to a mark."""

    def begins(self, index: int) -> None:
        """A phase begins."""

    def ends(self, index: int, *, raised: bool) -> None:
        """The innermost phase ends."""

    def step_begins(self) -> None:
        """A step begins."""

    def step_ends(self, samples: int | None, tokens: int | None, *, raised: bool) -> None:
        """A step ends."""

    def count(self, batch: Any) -> None:
        """A batch has come."""

    def pass_ended(self) -> None:
        """The wait that has just ended brought no batch."""


class Mark:
    """One phase's context manager; made once, entered at every step."""

    __slots__ = ("_index", "_loop")

    def __init__(self, loop: Marked, index: int) -> None:
        self._loop = loop
        self._index = index

    def __enter__(self) -> None:
        self._loop.begins(self._index)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.ends(self._index, raised=error is not None)


class StepMark:
    """One step's context manager."""

    __slots__ = ("_loop", "_samples", "_tokens")

    def __init__(self, loop: Marked, samples: int | None, tokens: int | None) -> None:
        self._loop = loop
        self._samples = samples
        self._tokens = tokens

    def __enter__(self) -> None:
        self._loop.step_begins()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.step_ends(self._samples, self._tokens, raised=error is not None)


class Timed(Iterator[T]):
    """An iterator whose ``next`` is the wait for data."""

    def __init__(self, iterator: Iterator[T], loop: Marked) -> None:
        self._iterator = iterator
        self._loop = loop

    def __next__(self) -> T:
        came = False
        self._loop.begins(DATA_WAIT)
        try:
            batch = next(self._iterator)
            came = True
        finally:
            self._loop.ends(DATA_WAIT, raised=False)
            if not came:
                self._loop.pass_ended()
        self._loop.count(batch)
        return batch
