"""Adds up what the batches of one step hold."""

from __future__ import annotations

from collections.abc import Iterable

from perf_diagnostics.workloads.workload import BatchCount


class Counts:
    """The batches of one step; what is None could not be told for some of them."""

    __slots__ = ("batches", "padding_tokens", "samples", "tokens")

    def __init__(self) -> None:
        self.batches = 0
        self.samples: int | None = 0
        self.tokens: int | None = 0
        self.padding_tokens: int | None = 0

    @classmethod
    def of(cls, batches: Iterable[int | BatchCount | None]) -> Counts:
        """Of these batches; of one that is a plain number the samples are known and nothing else."""
        counts = cls()
        for count in batches:
            counts.add(BatchCount(count) if isinstance(count, int) else count)
        return counts

    def add(self, count: BatchCount | None) -> None:
        self.batches += 1
        self.samples = _sum(self.samples, None if count is None else count.samples)
        self.tokens = _sum(self.tokens, None if count is None else count.tokens)
        self.padding_tokens = _sum(self.padding_tokens, None if count is None else count.padding_tokens)


def fold(batches: list[int | BatchCount | None]) -> int:
    """Make one of all batches but the last, of which a call may still tell something; gives by how many they are fewer.

    In a step that goes on without end the batches need not be kept: they hold together what they hold one by one.
    """
    earlier = batches[:-1]
    counts = Counts.of(earlier)
    known = counts.samples is not None
    batches[:-1] = [BatchCount(counts.samples or 0, counts.tokens, counts.padding_tokens) if known else None]
    return len(earlier) - 1


def _sum(so_far: int | None, more: int | None) -> int | None:
    return None if so_far is None or more is None else so_far + more
