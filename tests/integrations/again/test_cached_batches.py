"""The first batches of a training's DataLoader, again and again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

from perf_diagnostics.integrations.again.cached_batches import KEPT_BATCHES, CachedBatches


class Counted(Dataset[int]):
    """Counts how often something is read; in this process."""

    def __init__(self, length: int) -> None:
        self.length, self.read = length, 0

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        self.read += 1
        return index


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(40))


@pytest.fixture
def cached() -> Iterator[CachedBatches]:
    with ExitStack() as patches:
        yield CachedBatches(patches)


def optimizer() -> torch.optim.Optimizer:
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])


def trained(loader: DataLoader[int], passes: int) -> list[list[int]]:
    stepping, seen = optimizer(), []
    for _ in range(passes):
        seen.append([])
        for batch in loader:
            stepping.step()
            seen[-1].append(int(batch[0]))
    return seen


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("persistent", [False, True])
def test_a_training_gets_its_first_batches_in_passes_of_the_same_length(
    workers: int, persistent: bool, cached: CachedBatches
) -> None:
    data = Counted(60)
    loader = DataLoader(data, batch_size=2, num_workers=workers, persistent_workers=bool(workers) and persistent)
    first, second = trained(loader, 2)
    kept = list(range(0, 2 * KEPT_BATCHES, 2))
    assert first == [*kept, *kept[:14]]
    assert second == first
    assert cached.replayed == 60 - KEPT_BATCHES
    if not workers:
        assert data.read == 2 * KEPT_BATCHES


def test_a_short_pass_comes_again_as_a_whole(cached: CachedBatches) -> None:
    data = Counted(5)
    assert trained(DataLoader(data), 3) == [[0, 1, 2, 3, 4]] * 3
    assert data.read == 5


def test_what_is_only_evaluated_on_is_read_anew(cached: CachedBatches) -> None:
    held_out = Counted(20)
    training, evaluation = DataLoader(Counted(4)), DataLoader(held_out)
    for _ in range(3):
        trained(training, 1)
        assert [int(batch[0]) for batch in evaluation] == list(range(20))
    assert held_out.read == 60


def test_a_stream_without_a_length_is_left_as_it_is(cached: CachedBatches) -> None:
    assert trained(DataLoader(Stream()), 2) == [list(range(40))] * 2
    assert not cached.replayed


def test_afterwards_all_is_read_again() -> None:
    data = Counted(20)
    loader = DataLoader(data)
    with ExitStack() as patches:
        CachedBatches(patches)
        trained(loader, 2)
        assert data.read == KEPT_BATCHES
    assert trained(loader, 1) == [list(range(20))]
