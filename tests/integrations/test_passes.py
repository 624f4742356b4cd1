"""How many passes an own loop made over its data, and how many DataLoaders they came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import OwnLoop
from perf_diagnostics.integrations.attached import attach
from perf_diagnostics.integrations.steps.passes import Passes
from perf_diagnostics.measure.host import pass_reads
from perf_diagnostics.records import TrialResult
from perf_diagnostics.store.find import list_runs

ROWS = [torch.randn(4) for _ in range(16)]


def loader() -> DataLoader[Any]:
    return DataLoader(ROWS, batch_size=4)


def watched(folder: Path, *, anew: bool, held_out: bool = False) -> TrialResult:
    """Three passes of four steps, over one loader or one made for each; perhaps evaluation after each."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept = loader()
    with attach(model, optimizer, results_dir=folder) as seen:
        for _ in range(3):
            model.train()
            for batch in loader() if anew else kept:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
            if held_out:
                model.eval()
                for batch in loader():
                    model(batch)
    assert seen.run is not None
    return seen.run.results[0]


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize(("anew", "loaders"), [(True, 3), (False, 1)])
def test_a_loader_for_each_pass_is_told_from_one_for_all(
    tmp_path: Path, anew: bool, loaders: int, held_out: bool
) -> None:
    """A loader that is made for an evaluation often lies where one for training lay that is gone: it is no pass."""
    result = watched(tmp_path, anew=anew, held_out=held_out)
    assert (result.facts["passes"], result.facts["loaders"]) == (3, loaders)
    assert (result.facts["num_workers"], result.facts["batches_a_pass"]) == (0, 4)
    assert result.facts["batch_tensors"] == 1 and result.facts["batch_bytes"] == 4 * 4 * 4
    assert result.steps[0].columns["epoch"].tolist() == [0] * 4 + [1] * 4 + [2] * 4


@pytest.mark.parametrize("inside", [False, True])
def test_a_pass_is_an_evaluations_where_the_model_is_still_in_training_mode_as_it_begins(
    tmp_path: Path, inside: bool
) -> None:
    """Engines and trainers set the mode when they have the batch; some evaluate in the middle of a pass."""
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    kept, held_out = loader(), loader()

    def evaluate() -> None:
        for batch in held_out:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train()

    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for _ in range(3):
            for number, batch in enumerate(kept):
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
                if number == (1 if inside else 3):
                    evaluate()
    assert seen.run is not None
    result = seen.run.results[0]
    assert (result.facts["passes"], result.facts["loaders"]) == (3, 1)
    assert result.steps[0].columns["epoch"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert result.steps[0].samples.tolist() == [4] * 12


def test_a_pass_that_is_taken_back_leaves_nothing() -> None:
    passes, held_out, kept = Passes(), loader(), loader()
    passes.begin(held_out)
    passes.batch_came([torch.zeros(2)])
    passes.take_back()
    assert passes.facts == {} and not passes.knows(held_out)
    passes.begin(kept)
    passes.begin(held_out)
    passes.take_back()
    passes.begin(kept)
    passes.take_back()  # of a loader that has trained
    for _ in range(2):
        passes.begin(rows := [1, 2])  # none of torch's
        passes.begin(rows)
        passes.take_back()
        assert passes.knows(rows)
    assert (passes.facts["passes"], passes.facts["loaders"]) == (1, 1) and passes.knows(kept)


def test_a_loader_at_the_address_of_one_that_is_gone_is_another_one() -> None:
    passes = Passes()
    for number in range(1, 9):
        one = loader()
        assert not passes.knows(one)
        passes.begin(one)
        passes.begin(one)
        assert passes.knows(one)
        assert (passes.facts["passes"], passes.facts["loaders"]) == (2 * number, number)
        del one


def test_the_first_batches_tell_what_handing_one_over_takes() -> None:
    passes = Passes()
    passes.batch_came([torch.zeros(2)])  # of no DataLoader
    assert passes.facts == {}
    passes.begin(loader())
    for rows in (2, 4, 6, 8, 1000, 1000):
        passes.batch_came([torch.zeros(rows), torch.zeros(1)])
    assert (passes.facts["batch_tensors"], passes.facts["batch_bytes"]) == (2, 4 * (5 + 1))


def test_a_batch_that_cannot_be_looked_through_ends_nothing() -> None:
    class Lazy(dict[str, object]):
        def values(self) -> Any:
            raise OSError("it lies on a disk that is gone")

    passes = Passes()
    passes.begin(loader())
    passes.batch_came(Lazy())
    passes.batch_came([torch.zeros(2)])
    assert "batch_tensors" not in passes.facts and passes.facts["passes"] == 1


def test_what_is_no_dataloader_has_no_facts() -> None:
    passes, rows = Passes(), [1, 2]
    passes.begin(rows)
    assert passes.facts == {} and passes.knows(rows)


@pytest.mark.parametrize(("anew", "loaders"), [(True, 3), (False, 1)])
def test_a_marked_loop_counts_as_well(tmp_path: Path, anew: bool, loaders: int) -> None:
    kept = loader()
    with OwnLoop(results_dir=tmp_path) as loop:
        for _ in range(3):
            for _batch in loop.batches(loader() if anew else kept):
                with loop.step():
                    pass
    (folder,) = list_runs(tmp_path)
    facts = folder.read().results[0].facts
    assert (facts["passes"], facts["loaders"]) == (3, loaders)


class Disk:
    """16 rows that are read from storage at first, 1 MB each."""

    def __init__(self) -> None:
        self.known: set[int] = set()

    def __len__(self) -> int:
        return 16

    def __getitem__(self, row: int) -> torch.Tensor:
        self.known.add(row)
        return torch.zeros(4)


@pytest.mark.parametrize("marked", [False, True])
def test_what_is_read_in_the_first_pass_is_told_from_what_later_ones_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marked: bool
) -> None:
    """Also from what an evaluation reads between them."""
    disk, held_out = Disk(), Disk()
    monkeypatch.setattr(
        pass_reads, "read_from_storage", lambda _root, _pids: 1_000_000 * len(disk.known) + 7 * len(held_out.known)
    )
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches, others = DataLoader(disk, batch_size=2), DataLoader(held_out, batch_size=2)
    if marked:
        with OwnLoop(results_dir=tmp_path) as loop:
            for _ in range(3):
                for _batch in loop.batches(batches):
                    with loop.step():
                        pass
                list(others)
    else:
        with attach(model, optimizer, results_dir=tmp_path):
            for _ in range(3):
                model.train()
                for batch in batches:
                    optimizer.zero_grad()
                    model(batch).sum().backward()
                    optimizer.step()
                model.eval()
                with torch.no_grad():
                    for batch in others:
                        model(batch)
    (folder,) = list_runs(tmp_path)
    (result,) = folder.read().results
    # Of 8 steps three are warm-up; the later passes read nothing, and the evaluation 16 rows.
    read = [result.value(f"read_bytes_{when}") for when in ("first_pass", "later_passes")]
    assert read == [10_000_000, 7 * 16]


def test_one_pass_alone_is_no_comparison(tmp_path: Path) -> None:
    with OwnLoop(results_dir=tmp_path) as loop:
        for _batch in loop.batches(loader()):
            with loop.step():
                pass
    (folder,) = list_runs(tmp_path)
    (result,) = folder.read().results
    assert result.value("read_bytes_first_pass") is None and result.gap("read_bytes_first_pass") is None


def padded(rows: list[torch.Tensor]) -> torch.Tensor:
    """To a length of 24, whatever the rows have."""
    ids = torch.zeros(len(rows), 24, dtype=torch.long)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = row
    return ids


def test_the_length_of_batches_is_told_with_who_pads_them() -> None:
    rows = [torch.arange(1, 8 + index) for index in range(6)]  # 7 to 12 tokens
    passes, batches = Passes(), DataLoader(rows, batch_size=2, collate_fn=padded)
    passes.begin(batches)
    for batch in batches:
        passes.batch_came(batch)
    # Batches of 7 and 8, 9 and 10, 11 and 12 tokens leave 16, 14 and 12 of 24 places.
    assert passes.facts["batch_length"] == 24 and passes.facts["batch_length_unused"] == 14
    place = passes.facts["collate"]
    assert isinstance(place, dict) and place["function"] == "padded"
    passes.batch_came(torch.ones(2, 17, dtype=torch.long))
    assert "batch_length" not in passes.facts  # of several lengths


def test_batches_that_torch_itself_makes_have_no_line() -> None:
    passes = Passes()
    passes.begin(loader())
    passes.batch_came(torch.randn(4, 4))
    assert "collate" not in passes.facts and "batch_length" not in passes.facts
