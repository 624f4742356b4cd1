"""Whether a stream is seen to make samples in each loader worker that another one delivers; nothing of it is run."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from perf_diagnostics.workloads.loaders import loader_facts
from perf_diagnostics.workloads.skipped_samples import skipped_samples


def parse(line: str) -> Any:
    return json.loads(line)


def worker() -> tuple[int, int]:
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


class Lines(IterableDataset[Any]):
    def __init__(self, paths: list[Path]) -> None:
        self.paths = paths


class ParsesAll(Lines):
    def __iter__(self) -> Any:
        me, workers = worker()
        for path in self.paths:
            with path.open(encoding="utf-8") as file:
                for n, line in enumerate(file):
                    row = parse(line)
                    if n % workers != me:
                        continue
                    yield row


class ParsesAllInAGenerator(Lines):
    def rows(self) -> Any:
        for path in self.paths:
            with path.open(encoding="utf-8") as file:
                for line in file:
                    yield parse(line)

    def __iter__(self) -> Any:
        info = get_worker_info()
        for n, row in enumerate(self.rows()):
            if n % info.num_workers == info.id:
                yield row


class ParsesAllByMap(Lines):
    def __iter__(self) -> Any:
        me, workers = worker()
        with self.paths[0].open(encoding="utf-8") as file:
            for n, row in enumerate(map(parse, file)):
                if me != n % workers:
                    continue
                yield row


class ParsesAllWhereThereAreWorkers(Lines):
    def __iter__(self) -> Any:
        info, kept = get_worker_info(), []
        with self.paths[0].open(encoding="utf-8") as file:
            if info is None:
                yield from map(parse, file)
                return
            for n, row in enumerate(map(parse, file)):
                if n % info.num_workers != info.id:
                    continue
                kept.append(row)
                if len(kept) == 100:
                    yield kept.pop()
        if self.paths:
            yield from kept


class OneWayOrAnother(Lines):
    by_file = True

    def __iter__(self) -> Any:
        me, workers = worker()
        if self.by_file:
            for path in self.paths[me::workers]:
                yield from map(parse, path.open(encoding="utf-8"))
            return
        for n, row in enumerate(map(parse, self.paths[0].open(encoding="utf-8"))):
            if n % workers != me:
                continue
            yield row


class OneWayElseAnother(Lines):
    by_file = True

    def __iter__(self) -> Any:
        me, workers = worker()
        if not self.by_file:
            for n, row in enumerate(map(parse, self.paths[0].open(encoding="utf-8"))):
                if n % workers == me:
                    yield row
        else:
            for path in self.paths[me::workers]:
                yield from map(parse, path.open(encoding="utf-8"))


class AnotherWayElseOne(Lines):
    by_file = True

    def __iter__(self) -> Any:
        me, workers = worker()
        if self.by_file:
            for path in self.paths[me::workers]:
                yield from map(parse, path.open(encoding="utf-8"))
        else:
            for n, row in enumerate(map(parse, self.paths[0].open(encoding="utf-8"))):
                if n % workers == me:
                    yield row


class OneWayByAName(Lines):
    by_file = True

    def __iter__(self) -> Any:
        (me, workers), by_file = worker(), self.by_file
        if by_file:
            for path in self.paths[me::workers]:
                yield from map(parse, path.open(encoding="utf-8"))
        else:
            for n, row in enumerate(map(parse, self.paths[0].open(encoding="utf-8"))):
                if n % workers == me:
                    yield row


class ParsesAllBothWays(Lines):
    epoch = 0

    def __iter__(self) -> Any:
        me, workers = worker()
        if self.epoch > 0:
            for n, row in enumerate(map(parse, reversed([*self.paths[0].open(encoding="utf-8")]))):
                if n % workers == me:
                    yield row
        else:
            for n, row in enumerate(map(parse, self.paths[0].open(encoding="utf-8"))):
                if n % workers == me:
                    yield row


class ParsesItsOwn(Lines):
    def rows(self) -> Any:
        for path in self.paths:
            with path.open(encoding="utf-8") as file:
                yield from file

    def __iter__(self) -> Any:
        me, workers = worker()
        for n, line in enumerate(self.rows()):
            if n % workers != me:
                continue
            yield parse(line.strip())


class ItsOwnFiles(Lines):
    def __iter__(self) -> Any:
        me, workers = worker()
        for path in self.paths[me::workers]:
            with path.open(encoding="utf-8") as file:
                for n, line in enumerate(file):
                    row = parse(line)
                    if n % 10 == 0:
                        continue  # kept for a test
                    yield row


class SomeOfThem(Lines):
    """Each worker has its own files, of which every so manieth line is kept, and told of."""

    every = 10

    def __iter__(self) -> Any:
        me, workers = worker()
        for path in self.paths[me::workers]:
            with path.open(encoding="utf-8") as file:
                for n, line in enumerate(file):
                    row = parse(line)
                    if n % self.every == 0:
                        continue
                    yield row
                    if n % self.every == me:
                        print(n)


class Islice(Lines):
    def __iter__(self) -> Any:
        me, workers = worker()
        with self.paths[0].open(encoding="utf-8") as file:
            for line in itertools.islice(file, me, None, workers):
                yield parse(line)


class Shuffled(IterableDataset[Any]):
    """Around a stream that it holds."""

    def __init__(self, stream: Lines) -> None:
        self.stream = stream

    def __iter__(self) -> Any:
        yield from self.stream


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (ParsesAll, "if n % workers != me:"),
        (ParsesAllInAGenerator, "if n % info.num_workers == info.id:"),
        (ParsesAllByMap, "if me != n % workers:"),
        (ParsesAllBothWays, "if n % workers == me:"),
        (ParsesAllWhereThereAreWorkers, "if n % info.num_workers != info.id:"),
    ],
)
@pytest.mark.parametrize("inside", [False, True])
def test_samples_that_each_worker_makes_are_told_with_the_line_that_leaves_them_out(
    kind: type[Lines], text: str, inside: bool
) -> None:
    stream = Shuffled(kind([Path("a")])) if inside else kind([Path("a")])
    told: Any = loader_facts(DataLoader(stream, num_workers=2))["skipped_samples"]
    assert told["makes"] == ["parse"] and told["text"] == text and told["function"] == f"{kind.__name__}.__iter__"
    with Path(told["file"]).open(encoding="utf-8") as file:
        assert file.readlines()[told["line"] - 1].strip() == text


@pytest.mark.parametrize(
    "kind",
    [
        ParsesItsOwn,
        ItsOwnFiles,
        SomeOfThem,
        Islice,
        OneWayOrAnother,
        OneWayElseAnother,
        AnotherWayElseOne,
        OneWayByAName,
    ],
)
def test_workers_that_make_their_own_are_not(kind: type[Lines]) -> None:
    assert "skipped_samples" not in loader_facts(DataLoader(kind([Path("a")]), num_workers=2))


@pytest.mark.parametrize("workers", [0, 1])
def test_one_worker_leaves_nothing_out(workers: int) -> None:
    assert skipped_samples(DataLoader(ParsesAll([Path("a")]), num_workers=workers)) == {}


def test_a_class_without_a_source_is_passed_over() -> None:
    made = type("Made", (ParsesAll,), {})
    made.__module__ = "nowhere"
    assert skipped_samples(DataLoader(made([Path("a")]), num_workers=2)) == {}
