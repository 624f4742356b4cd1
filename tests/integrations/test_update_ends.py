"""Of what follows a backward: the update by hand is optimizer; making the next batch, and callbacks, are other."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.watching import function_modes, update_ends
from perf_diagnostics.records import ALL_PHASES, Phase, TrialResult
from tests.integrations.updated_by_hand import (
    BATCHES,
    Batches,
    functional,
    loader,
    loss_of,
    made,
    new_data,
    of_a_class_of_its_own,
    of_data,
    of_grad,
    subtract_without_gradients,
    with_noise,
    without_gradients,
    write_into_data,
)

pytestmark = pytest.mark.usefixtures("nothing_of_other_tests", "nothing_compiled")

PAUSE_S = 0.002
OTHER = ALL_PHASES[-1]


def by_foreach(model: torch.nn.Module, batches: Batches) -> None:
    parameters = list(model.parameters())
    for x, y in batches:
        loss_of(model(x), y).backward()
        with torch.no_grad():
            torch._foreach_add_(parameters, [p.grad for p in parameters], alpha=-0.1)
        model.zero_grad()


def made_slowly(batches: Batches, paused: list[int]) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Batches, and how long each took to be made, in ns."""
    for batch in batches:
        began = time.perf_counter_ns()
        time.sleep(PAUSE_S)
        paused.append(time.perf_counter_ns() - began)
        yield batch


def watched(model: torch.nn.Module, folder: Path, train: Callable[[], object]) -> TrialResult:
    with attach(model, results_dir=folder, quiet=True) as seen:
        train()
    assert seen.run is not None and torch._C._len_torch_function_stack() == 0
    (result,) = seen.run.results
    return result


@pytest.mark.parametrize(
    "way", [of_data, new_data, without_gradients, of_grad, with_noise, of_a_class_of_its_own, by_foreach]
)
def test_the_update_is_optimizer_and_making_the_batch_is_other(way: Callable[..., None], tmp_path: Path) -> None:
    alone, model = made(), made()
    way(alone, list(loader()))
    paused: list[int] = []
    batches = made_slowly(list(loader()), paused)
    result = watched(model, tmp_path, lambda: way(model, batches))
    table = result.steps[0]
    assert len(table) == BATCHES - 1  # where the last one ends nobody can tell
    warmup, optimizer, other = table.columns["warmup"], table.host_ns(Phase.OPTIMIZER), table.host_ns(OTHER)
    assert optimizer is not None and other is not None and (optimizer[~warmup] > 0).all()
    assert table.columns["updates"][~warmup].tolist() == [1] * (~warmup).sum()
    # The next batch is made after the update.
    assert np.median(other / paused[1:]) > 0.7 and np.median(optimizer) < PAUSE_S * 1e9 / 2
    gap = result.gap(update_ends.SIGNAL)
    assert gap is not None and "an estimate" in gap.why and result.gap("host_optimizer_ns") is None
    for name, value in model.state_dict().items():
        assert torch.equal(value, alone.state_dict()[name]), name


def a_parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.ones(3))


def copied(p: torch.nn.Parameter) -> None:
    p.copy_(p + 1)


def subtracted(p: torch.nn.Parameter) -> None:
    p -= 1


def into_out(p: torch.nn.Parameter) -> None:
    torch.add(p, 1, out=p)


def into_a_part(p: torch.nn.Parameter) -> None:
    p[0] = 2


def set_anew(p: torch.nn.Parameter) -> None:
    p.data = p.data + 1


def set_twice(p: torch.nn.Parameter) -> None:
    p.data = p.data + 1
    p.data.mul_(2)


def scaled(p: torch.nn.Parameter) -> None:
    p.data.view(-1)[1:].mul_(2)


def read(p: torch.nn.Parameter) -> None:
    p.norm()
    torch.stack([p, p]).add_(1)
    p.detach().clone().mul_(2)


def cleared(p: torch.nn.Parameter) -> None:
    p.grad = torch.ones(3)
    p.grad.zero_()
    p.grad = None


def of_other_kinds(_: torch.nn.Parameter) -> None:
    """Tensors that count no changes, and such as have no memory of their own."""
    with torch.inference_mode():
        torch.ones(2).add_(1)
    torch.eye(2).to_sparse().mul_(2)
    torch.ones(2, device="meta").add_(1)


@pytest.mark.parametrize(
    ("does", "writes"),
    [
        *((one, True) for one in (copied, subtracted, into_out, into_a_part, set_anew, set_twice, scaled)),
        *((one, False) for one in (read, cleared, of_other_kinds)),
    ],
)
def test_what_writes_into_a_parameter(does: Callable[[torch.nn.Parameter], None], *, writes: bool) -> None:
    p, mode = a_parameter(), update_ends._LastWrite()
    mode.begin([p])
    with torch.no_grad(), mode:
        does(p)
    assert bool(mode.over_ns) is writes


def test_what_looking_costs_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 10))
    monkeypatch.setattr(update_ends, "_clock", lambda: next(now))
    p, mode = a_parameter(), update_ends._LastWrite()
    mode.begin([p])
    with mode:
        p.detach()  # came at 0, called at 10, over at 20, left at 30
        p.data  # noqa: B018 - came at 40, ..., left at 70
        p.data.add_(1)  # p.data until 110; came at 120, called at 130, over at 140
    assert mode.over_ns == 140 and mode.by_then == (4, 7 * 10) and mode.in_all == (4, 8 * 10)


def test_two_models_are_updated(tmp_path: Path) -> None:
    """What follows the call of the second one is looked at as well, in another way, until the backward is over."""
    first, second, batches = made(), made(), list(loader())

    def train() -> None:
        for x, y in batches:
            (loss_of(first(x), y) + loss_of(second(x), y)).backward()
            write_into_data(first, second)

    with attach([first, second], results_dir=tmp_path, quiet=True) as seen:
        train()
    assert seen.run is not None
    table = seen.run.results[0].steps[0]
    optimizer = table.host_ns(Phase.OPTIMIZER)
    assert optimizer is not None and (optimizer[~table.columns["warmup"]] > 0).all()


def test_modes_of_the_users_stay_as_they_are(tmp_path: Path) -> None:
    """Around the updates, inside them, and from an update to the next forward."""
    model, batches, seen = made(), list(loader()), []

    def train() -> None:
        for x, y in batches:
            loss_of(model(x), y).backward()
            with torch.device("meta"):
                of_ones = torch.ones(1).device.type
                write_into_data(model)
                if len(seen) % 2:
                    model(x)
                seen.append((of_ones, torch.ones(1).device.type))
            assert torch.ones(1).device.type == "cpu"

    watched(model, tmp_path, train)
    assert seen == [("meta", "meta")] * BATCHES


@pytest.mark.parametrize("when", ["before", "in the loop"])
def test_an_update_that_is_traced_whole_in_the_third_step_is_as_without_us(tmp_path: Path, when: str) -> None:
    """With ``fullgraph=True`` any function of ours that torch cannot trace would end the training."""

    def scale(values: torch.Tensor) -> torch.Tensor:
        return values * 0.1

    def compiled() -> Callable[..., Any]:
        return torch.compile(scale, backend="eager", fullgraph=True)

    early, model, batches = compiled() if when == "before" else None, made(), list(loader())

    def train() -> None:
        for number, (x, y) in enumerate(batches):
            loss_of(model(x), y).backward()
            this = (early or compiled()) if number == 2 else scale
            for p in model.parameters():
                p.data.sub_(this(p.grad))
                p.grad = None

    watched(model, tmp_path, train)


def test_where_something_is_compiled_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function_modes, "compiled_graphs", lambda: 1)
    model = made()
    result = watched(model, tmp_path, functools.partial(of_data, model, list(loader())))
    assert result.steps[0].host_ns(Phase.OPTIMIZER) is None and result.gap("host_optimizer_ns") is not None


def test_where_not_all_updates_are_seen_none_is_told_of(tmp_path: Path) -> None:
    """From the third one on they are made by nothing of torch's."""
    model, batches = made(), list(loader())

    def train() -> None:
        for number, (x, y) in enumerate(batches):
            loss_of(model(x), y).backward()
            for p in model.parameters():
                if number < 2:
                    p.data.add_(p.grad, alpha=-0.1)
                else:
                    ctypes.memset(p.data_ptr(), number, p.nbytes)
            model.zero_grad()

    result = watched(model, tmp_path, train)
    optimizer = result.steps[0].host_ns(Phase.OPTIMIZER)
    assert optimizer is None or (optimizer[2:] == 0).all()


def test_after_the_warm_up_nothing_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put: list[object] = []
    monkeypatch.setattr(update_ends, "put_on", lambda mode: put.append(mode) or function_modes.put_on(mode))
    model = made()
    watched(model, tmp_path, functools.partial(of_data, model, list(loader())))
    assert 2 <= len(put) <= update_ends.LOOKED_UPDATES


def with_callbacks(model: torch.nn.Module, batches: Batches, paused: list[int]) -> None:
    for x, y in batches:
        loss_of(model(x), y).backward()
        subtract_without_gradients(model)
        began = time.perf_counter_ns()
        time.sleep(PAUSE_S)
        paused.append(time.perf_counter_ns() - began)


def test_with_a_loader_what_comes_after_the_update_is_other(tmp_path: Path) -> None:
    model = made()
    paused: list[int] = []
    result = watched(model, tmp_path, lambda: with_callbacks(model, loader(), paused))
    table = result.steps[0]
    steady = ~table.columns["warmup"]
    optimizer, other = table.host_ns(Phase.OPTIMIZER), table.host_ns(OTHER)
    assert len(table) == BATCHES and optimizer is not None and other is not None and (optimizer[steady] > 0).all()
    assert np.median(other[steady] / np.array(paused)[steady]) > 0.7
    assert np.median(optimizer[steady]) < PAUSE_S * 1e9 / 2
    assert table.samples.tolist() == [4] * BATCHES and result.gap(update_ends.SIGNAL) is not None


def test_with_a_loader_an_update_that_is_not_seen_is_in_optimizer_with_what_follows(tmp_path: Path) -> None:
    model = made()
    result = watched(model, tmp_path, lambda: functional(model, loader()))
    assert result.steps[0].host_ns(Phase.OPTIMIZER) is not None and result.gap(update_ends.SIGNAL) is None


def test_with_a_loader_nothing_stays_on_torchs_stack_where_two_losses_are_made_of_one_call(tmp_path: Path) -> None:
    model, on_stack = made(), []

    def train() -> None:
        for _ in range(3):
            for x, y in loader():
                out = model(x)
                loss_of(out, y).backward(retain_graph=True)
                out.square().mean().backward()
                subtract_without_gradients(model)
                on_stack.append(torch._C._len_torch_function_stack())

    result = watched(model, tmp_path, train)
    steady = int((~result.steps[0].columns["warmup"]).sum())
    assert steady and on_stack[-steady:] == [0] * steady


def test_a_fault_in_looking_takes_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: object) -> int:
        raise ValueError("no such clock")

    monkeypatch.setattr(update_ends, "_call_ns", fails)
    model = made()
    result = watched(model, tmp_path, functools.partial(of_data, model, list(loader())))
    assert len(result.steps[0]) == BATCHES - 1 and result.steps[0].host_ns(Phase.OPTIMIZER) is None
    gap = result.gap(update_ends.SIGNAL)
    assert gap is not None and "no such clock" in gap.why


def test_an_optimizer_that_comes_after_all_ends_the_look(tmp_path: Path) -> None:
    model, batches = made(), list(loader())

    def train() -> None:
        loss_of(model(batches[0][0]), batches[0][1]).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            optimizer.step()
            optimizer.zero_grad()
            loss_of(model(x), y).backward()

    result = watched(model, tmp_path, train)
    assert result.facts["optimizer"] == "SGD" and result.gap(update_ends.SIGNAL) is None


@pytest.mark.parametrize("way", ["grad", "backward", "functional_call"])
def test_where_no_model_is_called_next_nothing_stays_on_torchs_stack(way: str, tmp_path: Path) -> None:
    """A backward is itself a function that is seen: torch takes the mode off meanwhile, and puts it back."""
    model, on_stack = made(), []

    def train() -> None:
        weights = {name: one.detach().clone().requires_grad_() for name, one in model.named_parameters()}
        for x, y in list(loader()) * 3:
            if way == "functional_call":
                loss = loss_of(torch.func.functional_call(model, weights, (x,)), y)
            else:
                loss = loss_of(torch.nn.functional.linear(x, *list(weights.values())[:2]).mean(1, keepdim=True), y)
            if way == "backward":
                loss.backward()
                given = [one.grad for one in weights.values()]
            else:
                given = [*torch.autograd.grad(loss, list(weights.values()), allow_unused=True)]
            weights = {
                name: (one.detach() if g is None else (one - 0.1 * g).detach()).requires_grad_()
                for (name, one), g in zip(weights.items(), given, strict=True)
            }
            on_stack.append(torch._C._len_torch_function_stack())

    with attach(model, results_dir=tmp_path, quiet=True):
        train()
    assert on_stack[-len(list(loader())) :] == [0] * len(list(loader()))
