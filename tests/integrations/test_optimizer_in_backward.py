"""Optimizers that step as soon as their parameter's gradient is there: what is a step then, and whose time it is."""

from __future__ import annotations

import _thread
import threading
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.watching.watch import Watch
from perf_diagnostics.records import ALL_PHASES
from tests.integrations.test_first_turns import run_here, table_of

PAUSE_S = 0.004


class Paused(torch.optim.SGD):
    """Takes its time."""

    def step(self, closure=None):
        threading.Event().wait(PAUSE_S)
        return super().step(closure)


def parts(kind=torch.optim.SGD):
    """The recipe of torch's tutorial on saving memory: one optimizer a parameter, each called by its parameter."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    optimizers = {p: kind([p], lr=0.01) for p in model.parameters()}

    def hook(parameter: torch.Tensor) -> None:
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    loader = DataLoader([torch.randn(4) for _ in range(48)], batch_size=4)
    return model, optimizers, loader


def closes(table) -> None:
    spent = sum(table.host_ns(phase) for phase in ALL_PHASES if table.host_ns(phase) is not None)
    assert (spent == table.wall_ns).all()


def test_each_backward_is_a_step_and_the_optimizers_time_is_their_own(tmp_path: Path) -> None:
    model, optimizers, loader = parts(Paused)
    with attach(model, list(optimizers.values()), loader, results_dir=tmp_path) as seen:
        for x in loader:
            model(x).sum().backward()
    result = seen.run.results[0]
    table = result.steps[0]
    assert table.samples.tolist() == [4] * 12
    assert result.facts["accumulation_steps"] == 1
    # Four parameters of 4 ms each, all inside the backward.
    assert (table.columns["host_optimizer_ns"] >= 4 * PAUSE_S * 1e9).all()
    assert (table.columns["host_backward_ns"] > 0).all()
    assert (table.columns["host_backward_ns"] < table.columns["host_optimizer_ns"]).sum() > 6
    closes(table)


def test_a_script_with_them_has_steps_as_well(tmp_path: Path) -> None:
    model, _, loader = parts()
    with run_here(tmp_path) as session:
        for x in loader:
            model(x).sum().backward()
    table = table_of(session)
    assert table.samples.tolist() == [4] * 12
    assert (table.columns["host_forward_ns"][1:] > 0).all()
    assert session.watch.recording.run.results[0].facts["model"] == "Sequential"
    closes(table)


@pytest.mark.parametrize("named", [True, False])
def test_one_more_that_steps_after_the_backward_ends_the_step(tmp_path: Path, named: bool) -> None:
    model, optimizers, loader = parts()
    head = torch.nn.Linear(1, 1)
    after = torch.optim.SGD(head.parameters(), lr=0.01)

    def train() -> None:
        for x in loader:
            head(model(x)).sum().backward()
            after.step()
            after.zero_grad()

    if named:
        with attach([model, head], [*optimizers.values(), after], loader, results_dir=tmp_path) as seen:
            train()
        table = seen.run.results[0].steps[0]
    else:
        with run_here(tmp_path) as session:
            train()
        table = table_of(session)
    assert table.samples.tolist() == [4] * 12
    closes(table)


@pytest.mark.flaky(reruns=1)  # somebody else may hold a backward up for as long as what is planted
def test_one_that_raises_inside_the_backward_keeps_no_time(tmp_path: Path) -> None:
    class Fails(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            Fails.calls += 1
            if Fails.calls == 18:  # of four a step: the second one in the fifth
                raise RuntimeError("this once")
            return super().step(closure)

    model, optimizers, loader = parts(Fails)
    with attach(model, list(optimizers.values()), loader, results_dir=tmp_path) as seen:
        for x in loader:
            try:
                model(x).sum().backward()
            except RuntimeError:
                threading.Event().wait(0.05)  # what is done about it is nobody's phase
    # Nothing but what a machine without counters of its processors' energy lacks.
    assert {gap.signal for gap in seen._watch.observations.gaps} <= {"cpu_power", "energy_cpu"}
    table = seen.run.results[0].steps[0]
    assert sum(table.samples) == 48 and len(table) == 11
    assert (table.columns["host_optimizer_ns"] < 40e6).all() and (table.columns["host_backward_ns"] < 40e6).all()
    closes(table)


class _Elsewhere(torch.autograd.Function):
    """Steps an optimizer in a thread that Python did not start, as torch's own thread for a device does."""

    @staticmethod
    def forward(ctx, x, optimizer):
        ctx.optimizer = optimizer
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        done = threading.Event()

        def step() -> None:
            ctx.optimizer.step()
            done.set()

        _thread.start_new_thread(step, ())
        assert done.wait(10)
        return grad, None


def test_steps_in_torchs_own_threads_count(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 1)
    optimizer = Paused(model.parameters(), lr=0.01)
    loader = DataLoader([torch.randn(4) for _ in range(40)], batch_size=4)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for x in loader:
            _Elsewhere.apply(model(x), optimizer).sum().backward()
    table = seen.run.results[0].steps[0]
    assert table.samples.tolist() == [4] * 10
    assert (table.columns["host_optimizer_ns"] >= PAUSE_S * 1e9).all()
    closes(table)


def test_a_thread_that_python_started_is_none_of_torchs(tmp_path: Path) -> None:
    watch = Watch(workload="w", name=None, results_dir=tmp_path)
    said = [watch.turns.computes_gradients()]
    thread = threading.Thread(target=lambda: said.append(watch.turns.computes_gradients()))
    thread.start()
    thread.join()
    done = threading.Event()

    def ask() -> None:
        said.append(watch.turns.computes_gradients())
        threading.current_thread()  # makes a stand-in, which must not count
        said.append(Watch(workload="w", name=None, results_dir=tmp_path).turns.computes_gradients())
        done.set()

    _thread.start_new_thread(ask, ())
    assert done.wait(10)
    assert said == [False, False, True, True]
