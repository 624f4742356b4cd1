"""Looks at the stacks of loader workers: which frames count, what they tell, and that nobody else is touched."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.context import set_spawning_popen
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, dataloader
from torch.utils.data._utils import fetch, worker

from perf_diagnostics.measure.code import worker_looks
from perf_diagnostics.measure.code.shared_notes import SharedNotes
from perf_diagnostics.measure.code.worker_looks import WorkerLooks, of_a_batch
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.pausing_thread import PausingThread
from perf_diagnostics.records import CodeSamples

#: Asking for it gives Python's lock away, and no core.
ROOT = Path("/")


def rests(seconds: float) -> None:
    time.sleep(seconds)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_looks, "INTERVALS_NS", (25_000_000, 100_000_000))


class Rows(Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 120

    def __getitem__(self, index: int) -> torch.Tensor:
        rests(0.004)
        rests(0.001)
        return torch.zeros(3)


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(120):
            rests(0.004)
            yield torch.zeros(3)


def looked_at(data: Any, *, passes: int = 1, **how: Any) -> tuple[CodeSamples | None, Observations]:
    observations = Observations()
    looks = WorkerLooks(observations)
    loader = DataLoader(data, batch_size=4, **how)
    for _ in range(passes):
        with looks.in_workers_of(loader):
            batches = iter(loader)
        assert len(list(batches)) == 30
    return looks.samples(), observations


def by_line(code: CodeSamples) -> dict[tuple[str, ...], int]:
    """Looks by the texts of the lines on the way."""
    found: dict[tuple[str, ...], int] = {}
    for path in code.paths:
        way = tuple(code.places[number].text for number in path.places)
        found[way] = found.get(way, 0) + path.looks + path.rare
    return found


class Computed(Rows):
    """2 ms of Python, and a call that gives its lock away; handed over through files."""

    def __getitem__(self, index: int) -> torch.Tensor:
        number = 0
        for one in range(40_000):
            number += one % 7
        ROOT.stat()
        return torch.tensor(number)


@pytest.mark.parametrize("passes", [1, 3])
def test_a_workers_lines_are_told_without_those_of_the_process_that_it_was_forked_from(passes: int) -> None:
    code, observations = looked_at(Rows(), num_workers=1, passes=passes)
    assert code is not None and not observations.gaps
    seen = by_line(code)
    long, short = ("rests(0.004)", "time.sleep(seconds)"), ("rests(0.001)", "time.sleep(seconds)")
    # 120 times 5 ms, looked at every 25 ms on average, are 24 looks a pass; what ended workers saw is kept.
    assert seen[long] >= 8 * passes and seen[long] > seen.get(short, 0)
    assert all(way[:1] in ((), ("rests(0.004)",), ("rests(0.001)",), ("return torch.zeros(3)",)) for way in seen)
    assert {place.function for place in code.places} <= {"Rows.__getitem__", "rests"}
    assert {path.phase for path in code.paths} == {"loading"}


def test_of_a_stream_the_lines_of_its_generator_are_told() -> None:
    code, _ = looked_at(Stream(), num_workers=1)
    assert code is not None
    assert by_line(code)["rests(0.004)", "time.sleep(seconds)"] >= 8


def test_plain_python_is_seen_where_it_stands_and_not_at_the_call_after_it() -> None:
    code, _ = looked_at(Computed(), num_workers=1, passes=6)
    assert code is not None
    seen = {way[-1]: looks for way, looks in by_line(code).items() if way}
    assert sum(seen.values()) >= 4 * 6
    assert seen.get("ROOT.stat()", 0) + seen.get("return torch.tensor(number)", 0) <= sum(seen.values()) / 4


def test_of_two_loaders_both_are_told() -> None:
    looks = WorkerLooks(Observations())
    loaders = [DataLoader(data, batch_size=4, num_workers=1) for data in (Rows(), Stream())]
    begun = []
    for loader in loaders:
        with looks.in_workers_of(loader):
            begun.append(iter(loader))
    assert len(list(zip(*begun, strict=True))) == 30
    code = looks.samples()
    assert code is not None and {"Rows.__getitem__", "Stream.__iter__"} <= {place.function for place in code.places}


def test_threads_that_start_workers_at_once_leave_torchs_loop_as_it_was() -> None:
    plain, told = worker._worker_loop, list[tuple[int, object]]()
    both_in = threading.Barrier(2)

    def starts(first: bool) -> None:
        observations = Observations()
        looks, loader = WorkerLooks(observations), DataLoader(Rows(), batch_size=4, num_workers=1)
        with looks.in_workers_of(loader):
            both_in.wait(30)
            batches = iter(loader)
            if first:
                both_in.wait(30)
        if not first:
            both_in.wait(30)
        list(batches)
        code = looks.samples()
        told.append((0 if code is None else code.looks, observations.gaps))

    threads = [threading.Thread(target=starts, args=(first,)) for first in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(told) == 2 and min(looks for looks, _ in told) >= 4, told
    assert worker._worker_loop is plain


@pytest.mark.slow
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_workers_that_are_spawned_are_looked_at_as_well(start: str) -> None:
    code, observations = looked_at(Rows(), num_workers=1, passes=2, multiprocessing_context=start)
    assert code is not None and not observations.gaps
    assert by_line(code)["rests(0.004)", "time.sleep(seconds)"] >= 16


def test_what_is_spawned_by_another_thread_meanwhile_has_torchs_own_loop() -> None:
    looks, loader, pickled = WorkerLooks(Observations()), DataLoader(Rows(), num_workers=1), list[bytes]()

    def spawn() -> None:
        starting: Any = object()
        set_spawning_popen(starting)  # as while a process is being started
        try:
            pickled.append(pickle.dumps(worker._worker_loop))
        finally:
            set_spawning_popen(None)

    with looks.in_workers_of(loader):
        other = threading.Thread(target=spawn)
        other.start()
        other.join(30)
    assert [pickle.loads(one) for one in pickled] == [worker._worker_loop]


def test_another_loaders_workers_that_start_meanwhile_are_left_alone() -> None:
    looks, watched = WorkerLooks(Observations()), DataLoader(Rows(), batch_size=4, num_workers=1)
    with looks.in_workers_of(watched):
        assert len(list(DataLoader(Rows(), batch_size=4, num_workers=1))) == 30
    assert looks.samples() is None


@pytest.mark.slow
def test_so_they_are_where_workers_are_spawned() -> None:
    looks, watched = WorkerLooks(Observations()), DataLoader(Rows(), batch_size=4, num_workers=1)
    with looks.in_workers_of(watched):
        assert len(list(DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context="spawn"))) == 30
    assert looks.samples() is None


def test_workers_of_whatever_loaders_are_all_told() -> None:
    looks = WorkerLooks(Observations())
    with looks.in_workers():
        begun = [iter(DataLoader(data, batch_size=4, num_workers=1)) for data in (Rows(), Stream())]
    assert len(list(zip(*begun, strict=True))) == 30
    code = looks.samples()
    assert code is not None and {"Rows.__getitem__", "Stream.__iter__"} <= {place.function for place in code.places}


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["before the start", "in the worker"])
def test_where_notes_cannot_be_handed_on_workers_load_as_ever(closed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(notes: SharedNotes) -> tuple[Any, int, int]:
        if closed == "before the start":
            raise OSError("closed")
        return None, notes.places, notes.size  # of which nothing can be opened

    monkeypatch.setattr(SharedNotes, "handed_on", gone)
    code, observations = looked_at(Rows(), num_workers=1, multiprocessing_context="spawn")
    assert code is None and not observations.gaps


def test_closed_nothing_is_told_and_what_starts_later_is() -> None:
    looks, loader = WorkerLooks(Observations()), DataLoader(Rows(), batch_size=4, num_workers=1)
    for _ in range(2):
        with looks.in_workers_of(loader):
            batches = iter(loader)
        list(batches)
        assert looks.samples() is not None
        looks.close()
        assert looks.samples() is None


def test_each_worker_has_its_say() -> None:
    code, _ = looked_at(Rows(), num_workers=2)
    assert code is not None and code.looks >= 16


def test_a_loader_without_workers_and_workers_that_idle_tell_nothing() -> None:
    assert looked_at(TensorDataset(torch.zeros(120)), num_workers=0)[0] is None
    looks = WorkerLooks(Observations())
    loader = DataLoader(TensorDataset(torch.zeros(120)), batch_size=4, num_workers=1, persistent_workers=True)
    with looks.in_workers_of(loader):
        batches = iter(loader)
    list(batches)
    time.sleep(1.2)
    code = looks.samples()
    assert code is None or code.looks <= 3  # of some 40


def test_turned_off_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERF_DIAGNOSTICS_CODE", "0")
    assert looked_at(Rows(), num_workers=1)[0] is None


def test_torchs_loop_is_its_own_again_and_is_found_by_its_name_meanwhile() -> None:
    plain: Callable[..., Any] = worker._worker_loop
    init = dataloader._MultiProcessingDataLoaderIter.__init__
    looks = WorkerLooks(Observations())
    loader = DataLoader(Rows(), num_workers=1)
    with pytest.raises(KeyError), looks.in_workers_of(loader):
        assert worker._worker_loop is not plain
        named = pickle.dumps(worker._worker_loop)
        raise KeyError
    assert worker._worker_loop is plain and pickle.loads(named) is plain
    assert dataloader._MultiProcessingDataLoaderIter.__init__ is init


def test_what_somebody_patches_over_it_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "_worker_loop", worker._worker_loop)  # put back at the end of the test
    looks, loader = WorkerLooks(Observations()), DataLoader(Rows(), batch_size=4, num_workers=1)
    with looks.in_workers_of(loader):
        ours = worker._worker_loop

        def another(*given: Any) -> Any:
            return ours(*given)

        worker._worker_loop = another
    assert worker._worker_loop is another
    assert len(list(loader)) == 30 and looks.samples() is None


def test_samples_come_and_errors_are_raised_as_without_looks() -> None:
    class Broken(Rows):
        def __getitem__(self, index: int) -> torch.Tensor:
            if index == 6:
                raise LookupError("row 6")
            return torch.full((1,), index)

    looks = WorkerLooks(Observations())
    loader = DataLoader(Broken(), batch_size=4, num_workers=1)
    with looks.in_workers_of(loader):
        batches = iter(loader)
    assert next(batches).flatten().tolist() == [0, 1, 2, 3]
    with pytest.raises(LookupError, match="row 6"):
        next(batches)


@pytest.mark.parametrize("fails", ["_way", "of_a_batch", "OwnCode"])  # when it tells, when it looks, and at its start
def test_what_fails_in_a_worker_costs_its_lines_alone_and_is_told(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_looks, fails, lambda *_given, **_more: 1 / 0)
    code, observations = looked_at(Rows(), num_workers=1)
    (gap,) = observations.gaps
    assert code is None and gap.signal == "worker_lines"
    assert "a loader's worker could not be looked at" in gap.why and "ZeroDivisionError" in gap.why


def test_a_look_that_does_not_come_back_is_told_beside_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PausingThread, "stop", lambda _thread: False)
    code, observations = looked_at(Rows(), num_workers=1)
    (gap,) = observations.gaps
    assert code is not None and code.looks >= 4 and "did not come back" in gap.why


def test_a_note_that_is_too_long_loses_its_rarest_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_looks, "_NOTE_BYTES", 400)
    seen: Any = {(False, (("a.py", "f", line),), ("torch.stack",), ()): (line, 1) for line in range(1, 30)}
    note = worker_looks._note(seen)
    told = worker_looks._told(note)
    assert len(note) <= 400 and len(json.loads(note)) == len(told) >= 4
    assert sorted(told.values(), reverse=True) == [(line, 1) for line in range(29, 29 - len(told), -1)]
    assert all(seen[way] == looks for way, looks in told.items())


def test_frames_count_from_the_fetch_of_a_batch_inwards() -> None:
    loop, get = worker._worker_loop.__code__, fetch._MapDatasetFetcher.fetch.__code__
    own, main = rests.__code__, test_frames_count_from_the_fetch_of_a_batch_inwards.__code__
    assert of_a_batch(([own, get, loop, main], [1, 2, 3, 4]), loop) == ([own, get], [1, 2])
    assert of_a_batch(([own, loop, main], [1, 2, 3]), loop) is None
    # A worker that was forked within a fetch of the main process waits for something to do.
    assert of_a_batch(([own, loop, get, main], [1, 2, 3, 4]), loop) is None
    # A data set that reads another one by a loader: all of it is for the outer batch.
    assert of_a_batch(([own, get, own, get, loop], [1, 2, 3, 4, 5]), loop) == ([own, get, own, get], [1, 2, 3, 4])
