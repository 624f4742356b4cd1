"""What a DataLoader's iterator does in the waits of a watched loop: drawing indices, and collating samples."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler, dataloader

from perf_diagnostics.integrations import OwnLoop
from perf_diagnostics.integrations.attached import attach
from perf_diagnostics.integrations.steps.loop_probe import LoopProbe
from perf_diagnostics.integrations.watching import fetch_parts
from perf_diagnostics.integrations.watching.fetch_parts import MOST_ROWS, FetchParts, _TakenOver

BATCHES, BATCH = 12, 4


class Clock:
    """Stands still, unless what is timed says how long it takes."""

    now = 0

    def __call__(self) -> int:
        return self.now

    def takes(self, ns: int) -> None:
        self.now += ns


CLOCK = Clock()


class Data(Dataset[torch.Tensor]):
    """A row takes 10 ns."""

    def __len__(self) -> int:
        return BATCH

    def __getitem__(self, index: int) -> torch.Tensor:
        CLOCK.takes(10)
        return torch.ones(3)


def rebuilt() -> torch.Tensor:
    """Takes 500 ns."""
    CLOCK.takes(500)
    return torch.ones(BATCH, 3)


class ToRebuild:
    """Becomes a tensor where it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuilt, ()


def collate_to_rebuild(_rows: list[torch.Tensor]) -> ToRebuild:
    return ToRebuild()


class Draws:
    """A batch's indices take 300 ns; what is worked out for a pass 5,000 more."""

    def __len__(self) -> int:
        return BATCHES

    def __iter__(self) -> Iterator[list[int]]:
        CLOCK.takes(5_000)
        for _ in range(BATCHES):
            CLOCK.takes(300)
            yield list(range(BATCH))


def collate(rows: list[torch.Tensor]) -> torch.Tensor:
    """Takes 70 ns."""
    CLOCK.takes(70)
    return torch.stack(rows)


@pytest.fixture(autouse=True)
def fake_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps count as steady ones: a clock that stands still would not end the warm-up."""
    monkeypatch.setattr(fetch_parts, "_clock", CLOCK)
    monkeypatch.setattr(LoopProbe, "warmup", property(lambda _self: False, lambda _self, _value: None), raising=False)


def trained(folder: Path, loader: DataLoader[Any], *, passes: int = 1) -> dict[str, Any]:
    """What the record of a training on the loader holds about its waits."""
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, loader, results_dir=folder, quiet=True) as seen:
        for _ in range(passes):
            for batch in loader:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
    assert seen.run is not None
    told: Any = seen.run.results[0].facts.get("loader_parts", {})
    return dict(told)


def sums(rows: list[list[int]]) -> list[int]:
    return [sum(column) for column in zip(*rows, strict=True)]


def test_drawing_and_collating_are_told_apart_from_fetching(tmp_path: Path) -> None:
    told = trained(tmp_path, DataLoader(Data(), batch_sampler=Draws(), collate_fn=collate), passes=2)
    # Of each pass the first batch stands apart: with it the sampler begins.
    assert sums(told["rows"]) == [2 * 11, 2 * 11 * (300 + 4 * 10 + 70), 2 * 11 * 300, 2 * 11 * 70, 0]
    assert told["first"] == [2, 2 * (5_300 + 4 * 10 + 70), 2 * 5_300, 2 * 70, 0]


def test_the_users_own_sampler_is_named_with_its_line_inside_of_torchs_too(tmp_path: Path) -> None:
    place = trained(tmp_path / "1", DataLoader(Data(), batch_sampler=Draws(), collate_fn=collate))["sampler"]["place"]
    assert place["function"] == "Draws.__iter__" and place["file"].endswith("test_fetch_parts.py")
    assert place["line"] == Draws.__iter__.__code__.co_firstlineno and place["text"].startswith("def __iter__")

    class Rows:
        def __len__(self) -> int:
            return 8

        def __iter__(self) -> Iterator[int]:
            yield from [0, 1, 2, 3] * 2

    inside = DataLoader(Data(), batch_sampler=BatchSampler(Rows(), 2, drop_last=False), collate_fn=collate)  # type: ignore[arg-type]
    assert trained(tmp_path / "2", inside)["sampler"]["place"]["function"].endswith("Rows.__iter__")


def test_of_a_librarys_sampler_the_class_is_named_and_of_a_stream_nothing(tmp_path: Path) -> None:
    class Stream(IterableDataset[torch.Tensor]):
        def __iter__(self) -> Iterator[torch.Tensor]:
            yield from torch.ones(6, 3)

    random = DataLoader(Data(), sampler=RandomSampler(Data(), num_samples=8), batch_size=2)
    assert trained(tmp_path / "random", random)["sampler"] == {"name": "RandomSampler"}
    assert trained(tmp_path / "stream", DataLoader(Stream(), batch_size=2))["sampler"] == {}
    assert trained(tmp_path / "list", DataLoader(Data(), batch_sampler=[[0, 1], [2, 3]]))["sampler"] == {"name": "list"}


def test_a_loader_that_the_data_set_reads_is_a_part_of_the_fetch(tmp_path: Path) -> None:
    class Nested(Data):
        def __getitem__(self, index: int) -> torch.Tensor:
            return torch.as_tensor(next(iter(DataLoader(Data(), batch_sampler=Draws(), collate_fn=collate)))[0])

    told = trained(tmp_path, DataLoader(Nested(), batch_sampler=Draws(), collate_fn=collate))
    inner = 5_300 + 4 * 10 + 70
    assert sums(told["rows"]) == [11, 11 * (300 + 4 * inner + 70), 11 * 300, 11 * 70, 0]


def test_iterators_stay_as_they_were_and_what_is_drawn_does_too(tmp_path: Path) -> None:
    iterator = dataloader._BaseDataLoaderIter
    before = (iterator.__next__, iterator._next_index, dataloader._SingleProcessDataLoaderIter._next_data)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.arange(24.0).reshape(8, 3), batch_size=2, shuffle=True)

    def seen_by_the_loop() -> list[torch.Tensor]:
        torch.manual_seed(1)
        seen = []
        for batch in loader:
            seen.append(batch)
            model(batch).sum().backward()
            optimizer.step()
        return seen

    plain = seen_by_the_loop()
    with attach(model, optimizer, loader, results_dir=tmp_path, quiet=True):
        watched = seen_by_the_loop()
        left = iter(loader)
        assert type(left) is dataloader._SingleProcessDataLoaderIter
        next(left)
        assert left._dataset_fetcher.collate_fn is loader.collate_fn  # between two fetches nothing of ours is in it
    assert all(torch.equal(one, other) for one, other in zip(plain, watched, strict=True))
    assert left._dataset_fetcher.collate_fn is loader.collate_fn  # one that goes on afterwards, too
    kind = dataloader._SingleProcessDataLoaderIter
    assert (iterator.__next__, iterator._next_index, kind._next_data) == before


def test_nothing_is_told_where_torchs_iterators_are_made_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(dataloader._BaseDataLoaderIter, "_next_index")
    monkeypatch.setattr(
        dataloader._SingleProcessDataLoaderIter, "_next_index", lambda self: next(self._sampler_iter), raising=False
    )
    assert trained(tmp_path, DataLoader(Data(), batch_sampler=Draws(), collate_fn=collate)) == {}


def test_taking_over_is_what_follows_the_wait_for_the_workers_queue() -> None:
    queue: Any = multiprocessing.Queue()
    polled = queue._poll

    def poll(timeout: float = 0.0) -> bool:
        """A batch comes after 2,000 ns, or does not."""
        CLOCK.takes(2_000)
        return bool(polled(timeout))

    queue._poll = poll
    parts, began = FetchParts(), CLOCK.now
    ours = _TakenOver(queue, parts)
    queue.put(ToRebuild())
    assert torch.equal(ours.get(timeout=60), torch.ones(BATCH, 3))
    assert (parts.taken_ns, CLOCK.now - began) == (500, 2_500)
    with pytest.raises(Empty):
        ours.get(timeout=0.001)
    assert parts.taken_ns == 500 and queue._poll is poll and ours.qsize() == 0
    queue.close()
    queue.join_thread()


def test_rows_stay_few_and_lose_nothing() -> None:
    parts = FetchParts()
    for _ in range(1_000):
        parts.drawn_ns, parts.collated_ns, parts.taken_ns = 3, 2, 1
        parts.add(parts.row, 10)
        if parts.row[0] >= parts.row_batches:
            parts.row_ended()
    rows: Any = parts.rows
    assert MOST_ROWS / 2 <= len(rows) < MOST_ROWS and {row[0] for row in rows} == {parts.row_batches}
    assert sums([*rows, parts.row]) == [1_000, 10_000, 3_000, 2_000, 1_000]


def test_a_loop_that_marks_its_waits_is_timed_alike(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with OwnLoop("marked", results_dir=tmp_path, model=model, optimizer=optimizer) as loop:
        for batch in loop.batches(DataLoader(Data(), batch_sampler=Draws(), collate_fn=collate)):
            with loop.step():
                model(batch).sum().backward()
                optimizer.step()
    assert loop.run is not None
    told: Any = loop.run.results[0].facts["loader_parts"]
    assert sums(told["rows"]) == [11, 11 * (300 + 4 * 10 + 70), 11 * 300, 11 * 70, 0]
    assert told["sampler"]["place"]["function"] == "Draws.__iter__"


def test_of_a_long_training_one_batch_of_29_is_timed(tmp_path: Path) -> None:
    data = DataLoader(Data(), batch_sampler=[[0]] * (1 + MOST_ROWS + 3 * 29), collate_fn=collate)
    told = trained(tmp_path, data)
    # All of the first that make the rows, then every 29th; a list's indices take no time here.
    assert sums(told["rows"])[0] == MOST_ROWS + 2 and told["first"][0] == 1


@pytest.mark.slow
def test_with_workers_the_loop_still_draws(tmp_path: Path) -> None:
    loader = DataLoader(Data(), batch_sampler=Draws(), collate_fn=collate_to_rebuild, num_workers=1)
    told = trained(tmp_path, loader)
    batches, waited, drawn, collated, taken = sums(told["rows"])
    # Two batches are asked for ahead, when the iterator is made: of the others all but the last two draw one.
    assert (batches, drawn, collated, taken) == (11, 300 * (BATCHES - 2 - 1), 0, 11 * 500)
    assert waited == drawn + taken


class Turns(Dataset[torch.Tensor]):
    """Samples that both workers take as long for, or only the one that has the odd ones."""

    def __init__(self, *, both: bool) -> None:
        self.both = both

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> torch.Tensor:
        if self.both or index % 2:
            time.sleep(0.03)
        return torch.ones(3)


@pytest.mark.slow
@pytest.mark.parametrize("both", [True, False])
def test_what_other_workers_have_made_meanwhile_is_counted(tmp_path: Path, monkeypatch, *, both: bool) -> None:
    monkeypatch.setattr(fetch_parts, "_clock", time.perf_counter_ns)
    loader = DataLoader(Turns(both=both), batch_size=1, num_workers=2, prefetch_factor=2)
    waited, ahead = trained(tmp_path, loader)["ahead"]
    # One worker alone is waited for: the other one has made its two. Both together: at most one each.
    assert (ahead / waited > 1.5) is not both
