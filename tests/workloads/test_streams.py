"""Whether a stream is seen to give each loader worker a part of it; nothing of it is run."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import ChainDataset, DataLoader, IterableDataset, get_worker_info
from torch.utils.data import get_worker_info as who_am_i

from perf_diagnostics.workloads.loaders import loader_facts


def shard() -> tuple[int, int]:
    worker = get_worker_info()
    return (0, 1) if worker is None else (worker.id, worker.num_workers)


class Whole(IterableDataset[int]):
    def __iter__(self) -> Any:
        yield from range(8)


class Split(IterableDataset[int]):
    def __iter__(self) -> Any:
        worker = torch.utils.data.get_worker_info()
        return itertools.islice(range(8), worker.id if worker else 0, None, worker.num_workers if worker else 1)


class SplitByAFunction(IterableDataset[int]):
    def __iter__(self) -> Any:
        return self.rows()

    def rows(self) -> Any:
        yield from range(8)[slice(shard()[0], None, shard()[1])]


class SplitByAnotherName(IterableDataset[int]):
    def __iter__(self) -> Any:
        return (row for row in range(8) if who_am_i() is None or row % who_am_i().num_workers == who_am_i().id)


class SplitByItsBase(SplitByAFunction):
    def __iter__(self) -> Any:
        return map(float, super().__iter__())


class Buffer(IterableDataset[int]):
    def __init__(self, *sources: IterableDataset[int]) -> None:
        self.sources = sources

    def __iter__(self) -> Any:
        return itertools.chain(*self.sources)


class SplitFromOutside(IterableDataset[int]):
    """As torch's data pipes do."""

    def __iter__(self) -> Any:
        raise AssertionError("this must not be run")

    def apply_sharding(self, of: int, index: int) -> None: ...


def cut(worker: int, by: int = 1) -> None:
    get_worker_info().dataset.begin = worker * by


def seeded(worker: int) -> None:
    torch.manual_seed(get_worker_info().seed)


@pytest.mark.parametrize("stream", [
    Split(), SplitByAFunction(), SplitByAnotherName(), SplitByItsBase(), SplitFromOutside(),
    Buffer(Split()), Buffer(Buffer(Whole(), Split())), ChainDataset([SplitByAFunction()]),
], ids=lambda stream: type(stream).__name__)  # fmt: skip
def test_a_stream_that_asks_for_its_worker_splits_itself(stream: IterableDataset[int]) -> None:
    assert loader_facts(DataLoader(stream)) == {
        "num_workers": 0,
        "pin_memory": False,
        "iterable_dataset": True,
        "splits_stream": True,
    }


@pytest.mark.parametrize("stream", [Whole(), Buffer(Whole()), ChainDataset([Whole()])], ids=lambda s: type(s).__name__)
def test_a_stream_that_does_not_ask_is_whole_in_each_worker(stream: IterableDataset[int]) -> None:
    facts = loader_facts(DataLoader(stream, num_workers=2))
    assert (facts["iterable_dataset"], facts["splits_stream"]) == (True, False)
    assert facts["num_workers"] == 2


@pytest.mark.parametrize(
    ("begin", "splits"), [(cut, True), (functools.partial(cut, by=4), True), (seeded, False), (None, False)]
)
def test_what_begins_a_worker_may_split_the_stream(begin: Any, splits: bool) -> None:
    assert loader_facts(DataLoader(Whole(), num_workers=2, worker_init_fn=begin))["splits_stream"] is splits


def test_a_stream_that_holds_itself_is_looked_at_once() -> None:
    stream: Any = Buffer(Whole())
    stream.sources = [stream]
    assert loader_facts(DataLoader(stream))["splits_stream"] is False


def test_nothing_is_said_of_data_that_have_indices() -> None:
    assert not {"iterable_dataset", "splits_stream"} & set(loader_facts(DataLoader([1, 2])))
