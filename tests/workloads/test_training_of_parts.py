"""A training from a model, an optimizer, a loader and a loss function of somebody's own."""

from __future__ import annotations

import types
from collections import UserDict

import pytest
import torch
from torch.nn import functional
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, Subset, SubsetRandomSampler, TensorDataset

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import BatchCount
from perf_diagnostics.workloads.training_of_parts import count_of, fitted, loss_from, training_of
from tests.workloads.stepping import steps


def parts(batch_size: int = 4):
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.ones(16, 3), torch.zeros(16, dtype=torch.int64)), batch_size=batch_size)
    return model, optimizer, loader


def fit(model, optimizer, loader, loss_fn=functional.cross_entropy, **settings):
    return training_of(model, optimizer, loader, loss_fn, settings=Settings(batch_size=4, **settings))


class TestLoss:
    def test_a_function_of_model_and_batch_is_called_as_it_is(self) -> None:
        def loss_fn(model, batch):
            return model(batch["x"]).sum()

        assert loss_from(loss_fn)(torch.nn.Identity(), {"x": torch.ones(3)}) == 3

    @pytest.mark.parametrize(
        "criterion", [torch.nn.MSELoss(), functional.mse_loss, lambda out, y: ((out - y) ** 2).mean()]
    )
    def test_a_criterion_gets_the_models_output_and_the_targets(self, criterion) -> None:
        batch = (torch.tensor([1.0, 3.0]), torch.tensor([0.0, 0.0]))
        assert loss_from(criterion)(torch.nn.Identity(), batch) == 5  # (1 + 9) / 2

    def test_a_criterion_refuses_batches_that_are_no_pairs(self) -> None:
        for batch in ({"x": 1, "y": 2}, (1, 2, 3), torch.ones(2)):
            with pytest.raises(WorkloadError, match=r"mse_loss needs batches that are pairs \(x, y\); this one is a"):
                loss_from(functional.mse_loss)(torch.nn.Identity(), batch)

    def test_none_takes_the_loss_of_the_output(self) -> None:
        def model(x, labels):
            return types.SimpleNamespace(loss=x + labels)

        assert loss_from(None)(model, {"x": torch.tensor(1), "labels": torch.tensor(2)}) == 3

    def test_none_needs_batches_that_are_mappings(self) -> None:
        with pytest.raises(WorkloadError, match=r"model\(\*\*batch\), and the batch is a list; give a loss function"):
            loss_from(None)(torch.nn.Identity(), [torch.ones(2), torch.ones(2)])

    def test_none_tells_when_the_output_has_no_loss(self) -> None:
        with pytest.raises(WorkloadError, match="The model's output has no loss; add labels"):
            loss_from(None)(lambda: types.SimpleNamespace(loss=None), {})


class TestCount:
    @pytest.mark.parametrize(
        ("batch", "samples"),
        [
            (torch.zeros(5, 3), 5),
            (torch.tensor(1.0), 1),
            ((torch.zeros(6, 3), torch.zeros(6)), 6),
            ([torch.zeros(7, 3)], 7),
            ({"pixels": torch.zeros(2, 3), "label": torch.zeros(2)}, 2),
            (([torch.zeros(3, 8, 8), torch.zeros(3, 9, 9)], [{}, {}]), 2),  # images of differing size, with targets
            (({"x": torch.zeros(4, 2)}, torch.zeros(4)), 4),
        ],
    )
    def test_samples_are_the_rows_of_what_comes_first(self, batch, samples: int) -> None:
        assert count_of(batch) == BatchCount(samples, tokens=None, padding_tokens=None)

    def test_tokens_and_padding_are_counted_where_the_batch_names_them(self) -> None:
        ids, mask = torch.ones(2, 3, dtype=torch.int64), torch.tensor([[1, 1, 1], [1, 0, 0]])
        assert count_of({"input_ids": ids, "attention_mask": mask}) == BatchCount(2, 6, 2)
        assert count_of(UserDict(input_ids=ids, attention_mask=torch.ones(2, 3))) == BatchCount(2, 6, 0)

    def test_padding_is_absent_where_there_is_no_mask(self) -> None:
        assert count_of({"labels": torch.zeros(2), "input_ids": torch.ones(2, 3)}) == BatchCount(2, 6, None)

    @pytest.mark.parametrize("batch", ["text", [], {}, object(), 3])
    def test_what_cannot_be_counted_is_told(self, batch) -> None:
        with pytest.raises(WorkloadError, match="cannot be counted"):
            count_of(batch)


class TestTraining:
    def test_it_trains_the_very_parts(self) -> None:
        model, optimizer, loader = parts()
        training = fit(model, optimizer, loader)
        assert training.model is model
        assert training.batches is loader
        losses = steps(training, 5)
        assert losses[-1] < losses[0]
        assert training.facts == {
            "model": "Linear",
            "optimizer": "SGD",
            "optimizer_implementation": "single",
            "num_workers": 0,
            "pin_memory": False,
        }

    def test_the_model_is_put_into_training_mode(self) -> None:
        model, optimizer, loader = parts()
        assert fit(model.eval(), optimizer, loader).model.training

    def test_the_loader_is_batched_as_the_trial_asks(self) -> None:
        training = fit(*parts(batch_size=2))
        assert [training.count(batch).samples for batch in training.batches] == [4, 4, 4, 4]

    def test_an_optimizer_with_state_keeps_it(self) -> None:
        model, optimizer, loader = parts()
        optimizer = torch.optim.AdamW(model.parameters())
        training = fit(model, optimizer, loader)
        steps(training, 2)
        again = fit(model, optimizer, loader)
        assert {int(state["step"]) for state in again.optimizer.state.values()} == {2}

    def test_an_optimizer_of_another_model_is_told(self) -> None:
        (model, _, loader), (_, foreign, _) = parts(), parts()
        with pytest.raises(WorkloadError, match="The SGD trains none of the parameters of the Linear"):
            fit(model, foreign, loader)

    def test_another_implementation_than_asked_for_is_refused(self) -> None:
        with pytest.raises(InvalidSettings, match=r"'fused' was asked for, and the optimizer is SGD \(single\)"):
            fit(*parts(), optimizer_implementation="fused")
        assert fit(*parts(), optimizer_implementation="single").facts["optimizer_implementation"] == "single"

    def test_a_list_of_batches_of_the_right_size_will_do(self) -> None:
        model, optimizer, _ = parts()
        training = fit(model, optimizer, [(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))] * 3)
        assert len(steps(training, 5)) == 5
        assert "num_workers" not in training.facts

    def test_a_list_of_batches_of_another_size_is_refused(self) -> None:
        model, optimizer, _ = parts()
        with pytest.raises(InvalidSettings, match="batch_size=4 was asked for, and the list holds batches of 3"):
            fit(model, optimizer, [(torch.ones(3, 3), torch.zeros(3))])

    def test_loader_settings_need_a_loader(self) -> None:
        model, optimizer, _ = parts()
        with pytest.raises(InvalidSettings, match="num_workers=2 cannot be honoured by these batches: a list is no"):
            fit(model, optimizer, [(torch.ones(4, 3), torch.zeros(4))], num_workers=2)

    def test_batches_that_pass_only_once_are_told(self) -> None:
        model, optimizer, loader = parts()
        with pytest.raises(WorkloadError, match="generator, which passes only once"):
            fit(model, optimizer, (batch for batch in loader))

    def test_no_batch_at_all_is_told(self) -> None:
        model, optimizer, _ = parts()
        with pytest.raises(WorkloadError, match="The list is empty"):
            fit(model, optimizer, [])


class Stream(IterableDataset):
    """So many samples, one pass after another."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self):
        return iter([(torch.ones(3), 0)] * self.samples)


def two_rows_each(items):
    """A sample makes two rows, so that a batch of two samples counts four."""
    x, y = torch.utils.data.default_collate(items)
    return torch.cat([x, x]), torch.cat([y, y])


class TestFullBatches:
    """A trial whose steps never hold the batch that was asked for does not pass as that batch (here: 4 samples)."""

    @pytest.mark.parametrize("drop_last", [False, True])
    def test_more_than_a_pass_holds_is_refused(self, drop_last: bool) -> None:
        model, optimizer, loader = parts()
        small = DataLoader(Subset(loader.dataset, range(3)), batch_size=1, drop_last=drop_last)
        with pytest.raises(
            InvalidSettings, match=r"batch_size=4: no batch would be full, for one pass .* has 3 samples"
        ):
            fit(model, optimizer, small)

    def test_a_loader_that_is_batched_so_already_is_refused_too(self) -> None:
        model, optimizer, loader = parts()
        with pytest.raises(InvalidSettings, match="has 3 samples"):
            fit(model, optimizer, DataLoader(Subset(loader.dataset, range(3)), batch_size=4))

    def test_the_sampler_says_what_a_pass_holds(self) -> None:
        model, optimizer, loader = parts()
        with pytest.raises(InvalidSettings, match="has 2 samples"):
            fit(model, optimizer, DataLoader(loader.dataset, sampler=SubsetRandomSampler([1, 2])))

    @pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 2]), (True, [4])])
    def test_the_last_batch_may_be_partial(self, drop_last: bool, sizes: list[int]) -> None:
        model, optimizer, loader = parts()
        six = DataLoader(Subset(loader.dataset, range(6)), batch_size=1, drop_last=drop_last)
        training = fit(model, optimizer, six)
        assert [training.count(batch).samples for batch in training.batches] == sizes

    def test_of_a_stream_the_first_batch_tells(self) -> None:
        model, optimizer, _ = parts()
        training = fit(model, optimizer, DataLoader(Stream(3), batch_size=1))
        with pytest.raises(InvalidSettings, match="no batch would be full, for the stream's first one holds 3"):
            training.count(next(iter(training.batches)))
        training = fit(model, optimizer, DataLoader(Stream(6), batch_size=1))
        assert [training.count(batch).samples for batch in training.batches] == [4, 2]

    def test_of_a_stream_with_a_collation_of_its_own_nothing_can_be_told(self) -> None:
        model, optimizer, _ = parts()
        training = fit(model, optimizer, DataLoader(Stream(2), batch_size=1, collate_fn=two_rows_each))
        assert [training.count(batch).samples for batch in training.batches] == [4]

    def test_a_training_that_is_given_again_is_held_to_the_new_size_only(self) -> None:
        training = fit(*parts()[:2], DataLoader(Stream(6), batch_size=1))
        smaller = fitted(training, Settings(batch_size=2))
        assert [smaller.count(batch).samples for batch in smaller.batches] == [2, 2, 2]


class TestBatchesOfOnesOwn:
    """A loader that makes its batches in its own way is measured at the size they have (here: 4 is asked for)."""

    def test_a_batch_sampler_of_that_size_is_kept(self) -> None:
        model, optimizer, loader = parts()
        own = DataLoader(loader.dataset, batch_sampler=[[0, 1, 2, 3], [4, 5, 6, 7]])
        training = fit(model, optimizer, own)
        assert training.batches is own and [training.count(batch).samples for batch in own] == [4, 4]

    @pytest.mark.parametrize("stream", [False, True])
    def test_batches_that_the_data_set_gives_are_kept(self, stream: bool) -> None:
        model, optimizer, _ = parts()
        given = [(torch.ones(4, 3), torch.zeros(4, dtype=torch.int64))] * 3

        class Batches(IterableDataset):
            def __iter__(self):
                return iter(given)

        own = DataLoader(Batches() if stream else given, batch_size=None)
        training = fit(model, optimizer, own)
        # Three items, fewer than the four samples of a batch: items are batches here.
        assert training.batches is own and [training.count(batch).samples for batch in own] == [4, 4, 4]
        with pytest.raises(InvalidSettings, match="the DataLoader with batch_size=None holds batches of 4"):
            fitted(training, Settings(batch_size=8))

    def test_a_pass_is_what_the_sampler_in_torchs_batch_sampler_holds(self) -> None:
        model, optimizer, loader = parts()
        few = BatchSampler(SubsetRandomSampler([1, 2, 3]), 1, drop_last=False)
        with pytest.raises(InvalidSettings, match="has 3 samples"):
            fit(model, optimizer, DataLoader(loader.dataset, batch_sampler=few))

    def test_an_empty_data_set_of_batches_is_told(self) -> None:
        model, optimizer, _ = parts()
        with pytest.raises(WorkloadError, match="is empty"):
            fit(model, optimizer, DataLoader([], batch_size=None))


def test_a_class_of_losses_is_told() -> None:
    with pytest.raises(WorkloadError, match=r"the class MSELoss; give MSELoss\(\) instead"):
        loss_from(torch.nn.MSELoss)
