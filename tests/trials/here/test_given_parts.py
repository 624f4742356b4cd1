"""Parts that no trial could train are refused by name; trying whether they can be copied copies no tensor."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.here.given_parts import (
    check_data,
    check_loss,
    check_model,
    check_optimizer,
    check_together,
    check_trained,
)

MODEL = torch.nn.Linear(4, 3)
ADAM = torch.optim.Adam(MODEL.parameters())


@pytest.mark.parametrize(
    ("check", "given", "says"),
    [
        (check_model, None, r"torch\.nn\.Module, not NoneType"),
        (check_model, len, r"torch\.nn\.Module, not builtin_function_or_method"),
        (check_model, torch.nn.Linear, r"the class Linear; give a model made of it: Linear\(…\)"),
        (check_loss, "mse", r"function or a module, not str \('mse'\)"),
        (check_loss, torch.nn.MSELoss, r"the class MSELoss; give a loss made of it: MSELoss\(\)"),
        (check_optimizer, None, r"torch\.optim\.Optimizer, not NoneType"),
        (check_optimizer, torch.optim.Adam, r"the class Adam; .* Adam\(model\.parameters\(\)\)"),
        (check_optimizer, torch.optim.lr_scheduler.StepLR(ADAM, 1), "not StepLR"),
    ],
)
def test_parts_that_are_none(check: Any, given: object, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        check(given)


def test_parts_that_are_some() -> None:
    check_model(MODEL)
    check_optimizer(ADAM)
    for loss in (None, torch.nn.MSELoss(), torch.nn.functional.mse_loss, lambda model, batch: model(batch).sum()):
        check_loss(loss)
    check_together(MODEL, None, ADAM)


def test_something_must_be_trained_by_this_optimizer() -> None:
    frozen = torch.nn.Linear(4, 3).requires_grad_(False)
    with pytest.raises(InvalidSettings, match=r"The Linear has no parameter .*requires_grad_\(True\)"):
        check_trained(frozen)
    check_trained(frozen, torch.nn.Linear(3, 1))  # a loss with weights of its own
    with pytest.raises(InvalidSettings, match="The Adam trains none of the parameters of the Linear"):
        check_together(torch.nn.Linear(4, 3), None, ADAM)


def test_an_optimizer_that_calls_the_model_itself_is_refused() -> None:
    with pytest.raises(InvalidSettings, match="LBFGS calls the model itself"):
        check_optimizer(torch.optim.LBFGS(MODEL.parameters()))
    check_optimizer(torch.optim.SGD(MODEL.parameters(), lr=0.1))  # its step takes a closure, and needs none


def test_lazy_parameters_are_refused_until_they_have_a_size() -> None:
    lazy = torch.nn.LazyLinear(3)
    optimizer = torch.optim.SGD(lazy.parameters(), lr=0.1)
    with pytest.raises(InvalidSettings, match="The LazyLinear has lazy parameters"):
        check_together(lazy, None, optimizer)
    lazy(torch.ones(2, 4))
    check_together(lazy, None, optimizer)


def test_what_cannot_be_copied_is_told_and_what_can_keeps_its_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    class Streaming(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 3)
            self.rows = (row for row in range(3))

    streaming = Streaming()
    with pytest.raises(InvalidSettings, match=r"The Streaming or SGD cannot be copied.*'generator'"):
        check_together(streaming, None, torch.optim.SGD(streaming.parameters(), lr=0.1))

    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    copied: list[torch.Tensor] = []
    deep = torch.Tensor.__deepcopy__
    monkeypatch.setattr(torch.Tensor, "__deepcopy__", lambda t, memo: copied.append(t) or deep(t, memo))
    check_together(model, torch.nn.CrossEntropyLoss(), optimizer)
    assert copied == []
    copy.deepcopy(model[1])  # the twin: its three buffers are copied when nothing stands for them
    assert len(copied) == 3


class Stream(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Any:
        return iter(torch.ones(6, 2))


DATA = TensorDataset(torch.zeros(10, 4))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (None, "dataloader=None has no batches"),
        ("batches", "dataloader='batches' has no batches"),
        (DATA, r"a data set \(TensorDataset\).*DataLoader\(dataset"),
        (iter([torch.ones(4, 2)]), "passes only once"),
        ((torch.ones(4, 2) for _ in range(3)), "a generator, which passes only once"),
        ([], "an empty list"),
        (DataLoader(TensorDataset(torch.zeros(0, 4)), batch_size=4), "an empty DataLoader"),
        ([torch.ones(3, 2)], "batch_size=4 was asked for, and the list holds batches of 3"),
        ([1, 2], "dataloader: The samples in a batch of type int cannot be counted"),
        (DataLoader(TensorDataset(torch.zeros(3, 4)), batch_size=1), "batch_size=4: no batch would be full"),
    ],
)
def test_data_that_no_configuration_could_train_on(data: object, says: str) -> None:
    with pytest.raises(InvalidSettings, match=says):
        check_data(data, [Settings(batch_size=4), Settings(batch_size=8)])


@pytest.mark.parametrize("data", [DataLoader(DATA), DataLoader(Stream(), batch_size=2), [torch.ones(4, 2)] * 2])
def test_data_that_some_configuration_could_train_on(data: object) -> None:
    check_data(data, [Settings(batch_size=100), Settings(batch_size=4)])
