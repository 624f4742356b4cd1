"""Loaders that are no DataLoader and read by torch's own iterators, as fastai's does: their waits are seen, too."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, dataloader

from perf_diagnostics.integrations import attach
from perf_diagnostics.records import Phase, TrialResult


class Batches:
    """What a :class:`Reader` shows to torch's iterators in place of a DataLoader: a stream of ready batches."""

    _dataset_kind = dataloader._DatasetKind.Iterable
    _IterableDataset_len_called = None
    _auto_collation = drop_last = pin_memory = persistent_workers = False
    pin_memory_device, in_order = "", True
    _index_sampler: Any = itertools.count()
    generator = prefetch_factor = multiprocessing_context = worker_init_fn = None
    num_workers = timeout = 0

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self.dataset = batches
        self._get_shared_seed = SimpleNamespace

    @staticmethod
    def collate_fn(batch: torch.Tensor) -> torch.Tensor:
        return batch


class Reader:
    """A loader of a class of its own: each pass is one of torch's iterators, and a generator around it."""

    def __init__(self, batches: int, rows: int = 4) -> None:
        self.shown = Batches([torch.randn(rows, 4) for _ in range(batches)])

    def __iter__(self) -> Iterator[torch.Tensor]:
        for batch in dataloader._SingleProcessDataLoaderIter(self.shown):
            yield batch * 1.0


class Kept(DataLoader[torch.Tensor]):
    """A DataLoader that makes torch's iterator itself, once, and goes on with it in each pass, as ultralytics' does."""

    made: Any = None

    def __iter__(self) -> Iterator[torch.Tensor]:  # type: ignore[override]
        if self.made is None:
            self.made = self._get_iterator()
        for _ in range(2):
            yield next(self.made)


@pytest.mark.usefixtures("nothing_of_other_tests")
@pytest.mark.parametrize("by_hand", [True, False], ids=["by-hand", "optimizer"])
def test_their_batches_are_waited_for_and_counted_once(tmp_path: Path, *, by_hand: bool) -> None:
    model, reader = torch.nn.Linear(4, 1), Reader(batches=5)
    optimizer = None if by_hand else torch.optim.SGD(model.parameters(), lr=1e-3)
    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for _ in range(3):
            for batch in reader:
                (model(batch) + model(batch)).mean().backward()  # 8 rows, of 4 samples
                update(model, optimizer)
    (result,) = results_of(seen.run)
    table = result.steps[0]
    wait = table.host_ns(Phase.DATA_WAIT)
    assert table.samples.tolist() == [4] * 15
    assert wait is not None and (wait > 0).all()
    assert table.host_ns(Phase.OPTIMIZER) is not None
    assert result.gap("host_data_wait_ns") is None
    assert result.facts["num_workers"] == 0 and result.facts["pin_memory"] is False


@pytest.mark.usefixtures("nothing_of_other_tests")
@pytest.mark.parametrize("named", [True, False])
def test_a_data_loader_that_keeps_its_iterator_is_waited_for(tmp_path: Path, *, named: bool) -> None:
    model, loader = torch.nn.Linear(4, 1), Kept(torch.randn(18, 4), batch_size=3)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with attach(model, optimizer, loader if named else None, results_dir=tmp_path) as seen:
        for _ in range(3):
            for batch in loader:
                (model(batch) + model(batch)).mean().backward()  # 6 rows, of 3 samples
                update(model, optimizer)
    (result,) = results_of(seen.run)
    wait = result.steps[0].host_ns(Phase.DATA_WAIT)
    assert result.steps[0].samples.tolist() == [3] * 6
    assert wait is not None and (wait > 0).all()
    assert result.facts["num_workers"] == 0


def test_their_evaluation_is_no_wait_of_the_training(tmp_path: Path) -> None:
    model, reader, held_out = torch.nn.Linear(4, 1), Reader(batches=5), Reader(batches=3, rows=9)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for _ in range(2):
            model.train()
            for batch in reader:
                model(batch).mean().backward()
                update(model, optimizer)
            model.eval()
            with torch.no_grad():
                assert len([model(batch) for batch in held_out]) == 3
    (result,) = results_of(seen.run)
    assert result.steps[0].samples.tolist() == [4] * 10


def test_nothing_of_it_stays(tmp_path: Path) -> None:
    kinds = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)
    before = [kind.__init__ for kind in kinds]
    with attach(torch.nn.Linear(4, 1), results_dir=tmp_path):
        assert all(kind.__init__ is not own for kind, own in zip(kinds, before, strict=True))
    assert [kind.__init__ for kind in kinds] == before


def test_where_a_loader_is_named_others_are_left_alone(tmp_path: Path) -> None:
    model, reader = torch.nn.Linear(4, 1), Reader(batches=8, rows=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    loader: DataLoader[torch.Tensor] = DataLoader(torch.randn(32, 4), batch_size=4)  # type: ignore[arg-type]
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for batch, _ in zip(loader, reader, strict=True):
            model(batch).mean().backward()
            update(model, optimizer)
    (result,) = results_of(seen.run)
    assert result.steps[0].samples.tolist() == [4] * 8


def update(model: torch.nn.Module, optimizer: torch.optim.Optimizer | None) -> None:
    if optimizer is not None:
        optimizer.step()
        optimizer.zero_grad()
        return
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter * 0.99)


def results_of(run: Any) -> tuple[TrialResult, ...]:
    assert run is not None
    return tuple(run.results)
