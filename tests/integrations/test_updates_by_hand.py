"""Loops that update their parameters by hand: their steps are found, and nothing else is taken for one."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.func import functional_call, grad

from perf_diagnostics.diagnose.facts.update_facts import BY_HAND
from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model import parameter_changes
from perf_diagnostics.integrations.run_script import Session
from perf_diagnostics.integrations.watching import update_ends, updates_by_hand
from perf_diagnostics.records import Phase, TrialResult
from perf_diagnostics.store.find import list_runs
from tests.integrations.test_first_turns import run_here
from tests.integrations.test_run_script import SCRIPTS, both, without_our_lines
from tests.integrations.updated_by_hand import (
    BATCHES,
    SIZE,
    Batches,
    Momentum,
    functional,
    loader,
    loss_of,
    made,
    new_data,
    of_a_class_of_its_own,
    of_a_transform,
    of_data,
    of_grad,
    subtract_without_gradients,
    with_noise,
    without_gradients,
    write_into_data,
)
from tests.planted.warm import WarmStart

pytestmark = pytest.mark.usefixtures("nothing_of_other_tests")


def result_of(session: Session) -> TrialResult:
    assert session.watch is not None and session.watch.recording.run is not None
    (result,) = session.watch.recording.run.results
    return result


def unseen(result: TrialResult) -> int:
    gap = result.gap("unseen_steps")
    return 0 if gap is None else int(gap.why.split()[0])


def all_but_two_are_steps(result: TrialResult, *, calls: int) -> None:
    """Each batch is a step with so many forwards and backwards.

    The first one is over before it is known, and so the second one's beginning.
    """
    table = result.steps[0]
    assert unseen(result) == 2 and len(table) == BATCHES - 2
    assert table.samples.tolist() == [SIZE] * (BATCHES - 2)
    assert table.columns["forwards"].tolist() == table.columns["backwards"].tolist() == [calls] * (BATCHES - 2)


WAYS = [of_data, new_data, without_gradients, of_grad, with_noise, of_a_class_of_its_own, functional, of_a_transform]


@pytest.mark.parametrize("way", WAYS)
def test_the_steps_are_found_and_the_training_is_what_it_is_alone(way, tmp_path: Path) -> None:
    alone, model = made(), made()
    way(alone, loader())
    with run_here(tmp_path) as session:
        way(model, loader())
    result = result_of(session)
    table = result.steps[0]
    all_but_two_are_steps(result, calls=1)
    for phase in (Phase.DATA_WAIT, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        told = table.host_ns(phase)
        assert told is not None and (told > 0).all(), phase
    assert result.facts["optimizer"] == BY_HAND and result.facts["accumulation_steps"] == 1
    assert "before_update_ns" not in table.columns and result.gap("before_update_ns") is not None
    assert result.gap("probe_overhead_s") is not None
    assert updates_by_hand.NOTE in session.watch.recording.run.notes
    for name, value in model.state_dict().items():
        assert torch.equal(value, alone.state_dict()[name]), name


def test_named_without_an_optimizer_each_step_is_seen(tmp_path: Path) -> None:
    model = made()
    with attach(model, results_dir=tmp_path, quiet=True) as diagnostics:
        of_data(model, loader())
    assert diagnostics.run is not None
    (result,) = diagnostics.run.results
    assert unseen(result) == 0 and result.steps[0].samples.tolist() == [SIZE] * BATCHES
    assert not hasattr(torch.autograd._engine_run_backward, "__wrapped__")


def test_an_optimizer_of_ones_own_is_no_argument(tmp_path: Path) -> None:
    model = made()
    with (
        pytest.raises(InvalidSettings, match=r"left out: optimizer=None"),
        attach(model, Momentum(model.parameters()), results_dir=tmp_path),  # type: ignore[arg-type]
    ):
        pass


def test_batches_that_are_added_up_are_one_step(tmp_path: Path) -> None:
    model = made()
    with run_here(tmp_path) as session:
        for _ in range(3):
            for number, (x, y) in enumerate(loader(), start=1):
                loss_of(model(x), y).backward()
                if number % 3 == 0:
                    subtract_without_gradients(model)
            model.eval()
            with torch.no_grad():
                assert sum(len(model(x)) for x, _ in loader()) == BATCHES * SIZE
            model.train()
    result = result_of(session)
    table = result.steps[0]
    assert len(table) + unseen(result) == 12
    assert table.samples.tolist() == [3 * SIZE] * len(table)
    assert result.facts["accumulation_steps"] == 3


def test_without_a_loader_an_update_that_is_not_seen_cannot_be_told_from_making_the_batch(tmp_path: Path) -> None:
    """Nothing is written into a parameter: they are made anew."""
    model, batches = made(), list(loader())
    with run_here(tmp_path) as session:
        functional(model, batches)
    result = result_of(session)
    # Where the last step ends nobody can tell.
    assert len(result.steps[0]) + unseen(result) == BATCHES - 1
    assert result.steps[0].host_ns(Phase.OPTIMIZER) is None
    gap = result.gap("host_optimizer_ns")
    assert gap is not None and "updated by hand" in gap.why and "in other" in gap.why
    assert result.gap(update_ends.SIGNAL) is None


def test_tensors_of_no_module_are_trained_where_there_is_none(tmp_path: Path) -> None:
    w = torch.zeros(3, 1, requires_grad=True)
    with run_here(tmp_path) as session:
        for x, y in loader():
            loss_of(x.mm(w), y).backward()
            with torch.no_grad():
                w -= 0.1 * w.grad
                w.grad.zero_()
    result = result_of(session)
    assert len(result.steps[0]) + unseen(result) == BATCHES
    assert (result.steps[0].host_ns(Phase.OPTIMIZER) > 0).all()


def test_what_a_large_parameter_does_is_counted_where_torch_does_not_tell(tmp_path: Path, monkeypatch) -> None:
    """As on a device, where comparing would wait for it: two backwards an update, as in the first ones."""
    monkeypatch.setattr(parameter_changes, "SMALL", 0)
    model = made()
    with run_here(tmp_path) as session:
        for number, (x, y) in enumerate(loader()):
            loss_of(model(x), y).backward()
            if number % 2:
                write_into_data(model)
    result = result_of(session)
    assert len(result.steps[0]) + unseen(result) == BATCHES // 2
    assert result.steps[0].samples.tolist() == [2 * SIZE] * len(result.steps[0])


def test_a_look_before_the_update_is_no_border(tmp_path: Path) -> None:
    model = made()
    with run_here(tmp_path) as session:
        for x, y in loader():
            loss_of(model(x), y).backward()
            with torch.no_grad():
                model(x)
                for p in model.parameters():
                    p.sub_(p.grad, alpha=0.1)
                    p.grad = None
    result = result_of(session)
    table = result.steps[0]
    assert table.samples.tolist() == [SIZE] * (BATCHES - 2)
    assert table.columns["forwards_without_gradients"].tolist() == [1] * (BATCHES - 2)


def test_an_inner_loop_is_a_part_of_its_step(tmp_path: Path) -> None:
    """Model-agnostic meta-learning with two inner steps and an outer one, all by hand."""
    model = made()
    with run_here(tmp_path) as session:
        for x, y in loader():
            fast = dict(model.named_parameters())
            for _ in range(2):
                loss = loss_of(functional_call(model, fast, (x,)), y)
                gradients = torch.autograd.grad(loss, tuple(fast.values()), create_graph=True)
                fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients, strict=True)}
            loss_of(functional_call(model, fast, (x,)), y).backward()
            write_into_data(model)
    all_but_two_are_steps(result_of(session), calls=3)


def test_of_the_first_order_its_inner_steps_are_none(tmp_path: Path) -> None:
    """What gradients are taken to was computed from the parameters, and is made anew by each of three inner steps."""
    model = made()
    with run_here(tmp_path) as session:
        for x, y in loader():
            fast = {name: p.clone() for name, p in model.named_parameters()}
            for _ in range(3):
                gradients = torch.autograd.grad(loss_of(functional_call(model, fast, (x,)), y), tuple(fast.values()))
                fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients, strict=True)}
            loss_of(functional_call(model, fast, (x,)), y).backward()
            write_into_data(model)
    all_but_two_are_steps(result_of(session), calls=4)


def test_copies_of_what_an_optimizer_holds_are_an_inner_loops(tmp_path: Path) -> None:
    """A learner begins as a copy of the model, whose optimizer has not stepped yet; no loader has told of it either."""
    model, batches = made(), list(loader())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with run_here(tmp_path) as session:
        for x, y in batches:
            learner = copy.deepcopy(model)
            of_data(learner, [(x, y)] * 3)
            loss_of(learner(x), y).backward()
            for p, own in zip(model.parameters(), learner.parameters(), strict=True):
                p.grad = own.grad
            optimizer.step()
    result = result_of(session)
    table = result.steps[0]
    assert len(table) + unseen(result) == BATCHES and result.facts["optimizer"] == "SGD"
    assert table.columns["backwards"].tolist() == [4] * len(table)


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("source", [loader, lambda: list(loader())], ids=["loader", "list"])
def test_an_optimizer_of_something_else_is_no_reason_against_it(named: bool, source: Callable, tmp_path: Path) -> None:
    """A notebook keeps those of its earlier cells, here of a model that has the same form."""
    torch.manual_seed(3)
    left_over = torch.optim.SGD(torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Linear(5, 1)).parameters(), lr=0.1)
    model, batches = made(), source()
    if named:
        with attach(model, results_dir=tmp_path, quiet=True) as diagnostics:
            of_data(model, batches)
        assert diagnostics.run is not None
        (result,) = diagnostics.run.results
    else:
        with run_here(tmp_path) as session:
            of_data(model, batches)
        result = result_of(session)
    # Without a loader nobody can tell where the last step ends.
    assert len(result.steps[0]) + unseen(result) == BATCHES - isinstance(batches, list)
    assert result.facts["optimizer"] == BY_HAND and left_over.param_groups


def test_an_optimizer_that_comes_later_ends_the_steps_from_then_on(tmp_path: Path) -> None:
    model = made()
    with run_here(tmp_path) as session:
        of_data(model, loader())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in loader():
            loss_of(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    result = result_of(session)
    assert len(result.steps[0]) + unseen(result) == 2 * BATCHES
    assert result.steps[0].samples.tolist() == [SIZE] * len(result.steps[0])
    assert result.facts["optimizer"] == "SGD"


def replaced_inputs(model: torch.nn.Module) -> None:
    """Projected gradient descent on the input."""
    for x, y in loader():
        attacked = x.clone()
        for _ in range(3):
            attacked = attacked.detach().requires_grad_()
            (gradient,) = torch.autograd.grad(loss_of(model(attacked), y), attacked)
            attacked = attacked + 0.1 * gradient.sign()


def changed_inputs(model: torch.nn.Module) -> None:
    model.requires_grad_(requires_grad=False)
    for x, y in loader():
        attacked = x.clone().requires_grad_()
        for _ in range(3):
            loss_of(model(attacked), y).backward()
            attacked.data += 0.1 * attacked.grad.sign()
            attacked.grad.zero_()


def saliency(model: torch.nn.Module) -> None:
    for x, _ in loader():
        model(x.requires_grad_()).sum().backward()


def per_sample(model: torch.nn.Module) -> None:
    """Influence functions: gradients to parameters, which stay what they are."""
    held = {name: p.detach() for name, p in model.named_parameters()}
    gradient = torch.func.vmap(
        grad(lambda held, x, y: loss_of(functional_call(model, held, (x[None],)), y[None])), in_dims=(None, 0, 0)
    )
    for x, y in loader():
        gradient(held, x, y)


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        (replaced_inputs, "no parameter of a module changed, but other tensors did"),
        (changed_inputs, "no parameter of a module changed, but other tensors did"),
        (saliency, f"backward was called {BATCHES} times, and the parameters did not change between them"),
        (per_sample, "no optimizer"),
    ],
)
def test_gradients_alone_are_no_training(looks: Callable, why: str, tmp_path: Path) -> None:
    model = made()
    before = copy.deepcopy(model.state_dict())
    with run_here(tmp_path) as session:
        looks(model)
    assert session.watch.recording.run is None
    (gap,) = [gap for gap in session.watch.observations.gaps if gap.signal == "steps"]
    assert why in gap.why
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def slowly(model: torch.nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> Iterator[bool]:
    """Twelve batches an update; true where ours still stands in torch's engine."""
    for number, (x, y) in enumerate(batches, start=1):
        loss_of(model(x), y).backward()
        if number % BATCHES == 0:
            optimizer.step()
            optimizer.zero_grad()
        yield hasattr(torch.autograd._engine_run_backward, "__wrapped__")


def test_with_an_optimizer_nobody_looks_for_updates_by_hand(tmp_path: Path) -> None:
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with run_here(tmp_path) as session:
        # The pass over the loader has found the optimizer, before the first backward.
        assert not any(slowly(model, optimizer, [*loader()] and loader()))
        assert not any(slowly(model, optimizer, loader()))
    table = result_of(session).steps[0]
    assert table.samples.tolist() == [BATCHES * SIZE] * 2
    assert "before_update_ns" in table.columns


def test_what_is_put_into_the_engine_comes_off_with_the_first_step_of_an_optimizer(tmp_path: Path) -> None:
    model = made()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = list(loader())
    with run_here(tmp_path):
        there = list(slowly(model, optimizer, batches))
    assert there[-1] is False and not hasattr(torch.autograd.backward, "__wrapped__")


def test_nothing_is_read_while_a_cuda_graph_is_captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``make_graphed_callables`` does before any optimizer steps: reading a number then would break it."""
    captured = False
    read: list[bool] = []
    values = parameter_changes._values

    def noted(*given):
        read.append(captured)
        return values(*given)

    for module in (parameter_changes, updates_by_hand):
        monkeypatch.setattr(module, "captures", lambda _device: captured)
    monkeypatch.setattr(parameter_changes, "_values", noted)
    model = made()
    x, y = next(iter(loader()))
    with run_here(tmp_path):
        for captured in (False, True, True, False):  # noqa: B007
            loss_of(model(x), y).backward()
            torch.autograd.grad(loss_of(model(x), y), [*model.parameters()])
    assert read and not any(read)


def test_a_fault_in_looking_takes_no_other_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("a graph of a kind that nobody knows")

    monkeypatch.setattr(updates_by_hand, "_reached", fails)
    model = made()
    batches = list(loader())
    with run_here(tmp_path) as session:
        for x, y in batches:
            loss_of(model(x), y).backward()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in batches:
            loss_of(model(x), y).backward()
            optimizer.step()
    result = result_of(session)
    assert len(result.steps[0]) + unseen(result) == BATCHES
    assert result.gap("updates_by_hand") is not None and result.gap("steps") is None


@pytest.mark.slow
def test_a_script_under_the_command_is_measured_and_left_alone(tmp_path: Path, warm: WarmStart) -> None:
    plain, watched = both(tmp_path, str(SCRIPTS / "by_hand.py"), warm=warm)
    assert watched.stdout == plain.stdout and watched.returncode == plain.returncode == 0
    assert without_our_lines(watched.stderr) == plain.stderr == ""
    (folder,) = list_runs(tmp_path / "results")
    (result,) = folder.read().results
    table = result.steps[0]
    # Two passes over 30 batches, each with an evaluation, and 20 batches without a loader, of which the last step's end
    # nobody can tell.
    assert len(table) + unseen(result) == 2 * 30 + 20 - 1 and unseen(result) == 2
    loaded = table.where(np.arange(len(table)) < 2 * 30 - 2)
    assert loaded.samples.tolist() == [8] * len(loaded)
    assert (loaded.host_ns(Phase.FORWARD) >= 3_000_000).all()
    # What follows the last write into a parameter, 2 ms of sleep, is other once the first steps have told how long an
    # update takes; with the loader and without it.
    without = table.where(np.arange(len(table)) >= 2 * 30 - 2)
    for steps in (loaded, without):
        updated, after = steps.host_ns(Phase.OPTIMIZER), steps.host_ns(Phase.OTHER)
        assert (updated > 0).all() and (updated + after >= 2_000_000).all()
        assert np.median(updated[10:]) < 2_000_000 and np.median(after[10:]) >= 1_500_000
    assert table.steady.wall_ns.sum() / 1e9 == pytest.approx(result.value("measured_wall_s"), rel=0.005)
