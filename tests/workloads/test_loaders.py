"""Loaders from settings: what each setting does, what is refused, and rebatching somebody else's loader."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, SequentialSampler, TensorDataset

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads.loaders import (
    batches_a_pass,
    loader_arguments,
    loader_facts,
    random_numbers,
    rebatched,
    shuffled_loader,
)

CPU = torch.device("cpu")


def numbers(count: int = 20) -> TensorDataset:
    return TensorDataset(torch.arange(count))


def seen(loader) -> list[list[int]]:
    return [batch[0].tolist() for batch in loader]


def test_nothing_chosen_means_no_workers_and_nothing_pinned_on_a_cpu() -> None:
    assert loader_arguments(Settings(batch_size=4), CPU) == {"batch_size": 4, "num_workers": 0, "pin_memory": False}


def test_every_loader_setting_arrives() -> None:
    settings = Settings(batch_size=4, num_workers=2, prefetch_factor=5, persistent_workers=True, pin_memory=False)
    assert loader_arguments(settings, CPU) == {
        "batch_size": 4,
        "num_workers": 2,
        "pin_memory": False,
        "prefetch_factor": 5,
        "persistent_workers": True,
    }


def test_memory_is_pinned_for_cuda_unless_it_is_switched_off(monkeypatch) -> None:
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    cuda = torch.device("cuda")
    assert loader_arguments(Settings(batch_size=1, device="cuda"), cuda)["pin_memory"] is True
    assert loader_arguments(Settings(batch_size=1, device="cuda", pin_memory=False), cuda)["pin_memory"] is False


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (Settings(batch_size=4, prefetch_factor=2), "prefetch_factor=2 needs worker processes"),
        (Settings(batch_size=4, num_workers=0, persistent_workers=True), "persistent_workers=True needs worker"),
    ],
)
def test_worker_settings_without_workers_are_refused(settings: Settings, text: str) -> None:
    with pytest.raises(InvalidSettings, match=text):
        loader_arguments(settings, CPU)


def test_workers_that_are_not_to_persist_need_no_workers() -> None:
    assert "persistent_workers" not in loader_arguments(Settings(batch_size=4, persistent_workers=False), CPU)


@pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator can be pinned for")
def test_pinned_memory_without_an_accelerator_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="pin_memory=True needs an accelerator"):
        loader_arguments(Settings(batch_size=4, pin_memory=True), CPU)


def test_the_order_follows_from_the_seed_and_changes_each_epoch() -> None:
    first, same, other = (
        shuffled_loader(numbers(), Settings(batch_size=8), device=CPU, seed=seed) for seed in (1, 1, 2)
    )
    epochs = [seen(first), seen(first)]
    assert [len(batch) for batch in epochs[0]] == [8, 8, 4]  # 20 = 8 + 8 + 4
    assert sorted(itertools.chain.from_iterable(epochs[0])) == list(range(20))
    assert epochs[0] != epochs[1]
    assert epochs == [seen(same), seen(same)]
    assert epochs[0] != seen(other)


def test_a_batch_larger_than_the_data_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="batch_size=21 is more than the 20 samples"):
        shuffled_loader(numbers(20), Settings(batch_size=21), device=CPU, seed=0)
    assert len(seen(shuffled_loader(numbers(20), Settings(batch_size=20), device=CPU, seed=0))) == 1


def test_facts_tell_worker_settings_only_where_there_are_workers() -> None:
    alone = shuffled_loader(numbers(), Settings(batch_size=4), device=CPU, seed=0)
    assert loader_facts(alone) == {"num_workers": 0, "pin_memory": False}
    settings = Settings(batch_size=4, num_workers=1, prefetch_factor=3)
    helped = shuffled_loader(numbers(), settings, device=CPU, seed=0)
    assert loader_facts(helped) == {
        "num_workers": 1,
        "pin_memory": False,
        "prefetch_factor": 3,
        "persistent_workers": False,
    }
    assert loader_facts([1, 2]) == {}


def test_how_many_batches_a_pass_has_is_asked_of_torchs_own_samplers_alone() -> None:
    class Drawing(SequentialSampler):
        def __len__(self) -> int:
            raise AssertionError("nobody asked it to draw its order")

    assert batches_a_pass(DataLoader(numbers(10), batch_size=4, shuffle=True)) == 3
    assert batches_a_pass(DataLoader(numbers(10), batch_size=4, drop_last=True)) == 2
    assert batches_a_pass(DataLoader(numbers(10), batch_size=4, sampler=Drawing(numbers(10)))) is None
    assert batches_a_pass(DataLoader(numbers(10), batch_size=None)) is None


class TestRebatched:
    def test_a_loader_that_fits_is_returned_itself(self) -> None:
        loader = DataLoader(numbers(), batch_size=4, num_workers=0)
        assert rebatched(loader, Settings(batch_size=4, num_workers=0), CPU) is loader

    def test_the_batch_size_changes_and_the_order_stays(self) -> None:
        loader = DataLoader(numbers(10), batch_size=4)
        assert seen(rebatched(loader, Settings(batch_size=5), CPU)) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]

    def test_sampler_collation_and_dropping_the_rest_are_kept(self) -> None:
        loader = DataLoader(
            numbers(10), batch_size=2, sampler=[9, 7, 5, 3, 1], drop_last=True, collate_fn=lambda rows: [len(rows)]
        )
        assert list(rebatched(loader, Settings(batch_size=3), CPU)) == [[3]]  # 5 samples: one batch of 3, 2 dropped

    def test_loader_settings_are_added_and_the_rest_is_kept(self) -> None:
        loader = DataLoader(numbers(), batch_size=4, num_workers=2, prefetch_factor=7, persistent_workers=True)
        changed = rebatched(loader, Settings(batch_size=4, num_workers=1), CPU)
        assert (changed.num_workers, changed.prefetch_factor, changed.persistent_workers) == (1, 7, True)

    def test_a_loader_of_a_class_of_its_own_stays_one_with_what_it_holds(self) -> None:
        class Shifted(DataLoader):
            def __init__(self, data: TensorDataset, by: int, size: int) -> None:
                super().__init__(data, batch_size=size)
                self.by = by

            def __iter__(self):
                for (batch,) in super().__iter__():
                    yield (batch + self.by,)

        before = Shifted(numbers(6), 10, 2)
        after = rebatched(before, Settings(batch_size=3), CPU)
        assert type(after) is Shifted and seen(after) == [[10, 11, 12], [13, 14, 15]]
        assert seen(before) == [[10, 11], [12, 13], [14, 15]]  # the given one is left what it was
        assert (before.batch_size, after.batch_size, len(after)) == (2, 3, 2)

    def test_a_loader_around_another_one_is_refused(self) -> None:
        class Around(DataLoader):
            def __init__(self, inner: DataLoader) -> None:
                super().__init__(inner.dataset, batch_size=inner.batch_size)
                self.inner = inner

        around = Around(DataLoader(numbers(6), batch_size=2))
        assert rebatched(around, Settings(batch_size=2), CPU) is around
        with pytest.raises(InvalidSettings, match=r"The loader is a Around around another DataLoader \(inner\)"):
            rebatched(around, Settings(batch_size=3), CPU)

    def test_the_accelerator_that_is_pinned_for_is_kept(self) -> None:
        loader = DataLoader(numbers(), batch_size=4)
        if not hasattr(loader, "pin_memory_device"):
            pytest.skip("this torch has no such argument any more")
        loader.pin_memory_device = "cuda:1"
        assert rebatched(loader, Settings(batch_size=5), CPU).pin_memory_device == "cuda:1"

    def test_workers_can_be_taken_away(self) -> None:
        loader = DataLoader(
            numbers(), batch_size=4, num_workers=2, prefetch_factor=7, persistent_workers=True, timeout=9
        )
        changed = rebatched(loader, Settings(batch_size=2, num_workers=0), CPU)
        assert (changed.num_workers, changed.persistent_workers, changed.timeout) == (0, False, 0)
        assert len(seen(changed)) == 10

    @pytest.mark.skipif(torch.accelerator.is_available(), reason="an accelerator can be pinned for")
    def test_a_loader_that_would_pin_is_read_as_torch_reads_it_without_an_accelerator(self) -> None:
        loader = DataLoader(numbers(), batch_size=4, pin_memory=True)
        assert rebatched(loader, Settings(batch_size=2), CPU).pin_memory is False
        assert loader_facts(loader)["pin_memory"] is False

    def test_a_stream_is_rebatched_too(self) -> None:
        class Stream(IterableDataset):
            def __iter__(self):
                return iter(range(5))

        changed = rebatched(DataLoader(Stream(), batch_size=4), Settings(batch_size=2), CPU)
        assert [batch.tolist() for batch in changed] == [[0, 1], [2, 3], [4]]

    def test_batches_of_ones_own_are_taken_at_the_size_they_have(self) -> None:
        own = [[9, 8, 7], [0], [1, 2, 3]]  # the rest of a pass may lie anywhere
        loader = DataLoader(numbers(10), batch_sampler=own)
        assert rebatched(loader, Settings(batch_size=3), CPU) is loader
        changed = rebatched(loader, Settings(batch_size=3, num_workers=1), CPU)
        assert changed.num_workers == 1 and changed.batch_sampler is own
        assert seen(rebatched(loader, Settings(batch_size=3, num_workers=0), CPU)) == own

    def test_at_another_size_they_are_refused_with_the_one_they_have(self) -> None:
        with pytest.raises(InvalidSettings, match=r"batch_size=4: .*\(list\), of 2 samples\. Ask for batch_size=2"):
            rebatched(DataLoader(numbers(), batch_sampler=[[0, 1], [2]]), Settings(batch_size=4), CPU)

    @pytest.mark.parametrize(
        ("own", "says"),
        [
            ([[0, 1], [2], [3]], "of 1 to 2 samples, which no batch size describes"),
            ([], "and there is none"),
            (iter([[0, 1]]), "passes only once"),
        ],
    )
    def test_uneven_batches_of_ones_own_have_no_size(self, own: Any, says: str) -> None:
        with pytest.raises(InvalidSettings, match=says):
            rebatched(DataLoader(numbers(), batch_sampler=own), Settings(batch_size=2), CPU)

    @pytest.mark.parametrize(("drop_last", "last"), [(False, [[9]]), (True, [])])
    def test_a_batch_sampler_of_torchs_own_is_made_anew(self, drop_last: bool, last: list[list[int]]) -> None:
        own = BatchSampler(SequentialSampler(range(10)), 5, drop_last)
        loader = DataLoader(numbers(10), batch_sampler=own)
        assert seen(rebatched(loader, Settings(batch_size=3), CPU)) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], *last]

    def test_a_data_set_that_gives_batches_keeps_them(self) -> None:
        loader = DataLoader(numbers(10), batch_size=None)
        assert rebatched(loader, Settings(batch_size=4), CPU) is loader
        assert rebatched(loader, Settings(batch_size=4, num_workers=1), CPU).batch_size is None


def test_random_numbers_depend_on_seed_and_purpose_alone() -> None:
    assert random_numbers(3, "a").random() == random_numbers(3, "a").random()
    assert random_numbers(3, "a").random() != random_numbers(3, "b").random()
    assert random_numbers(3, "a").random() != random_numbers(4, "a").random()
    assert 0 <= random_numbers(-1, "a").random() < 1
