"""Loops that do odd things between, before and inside their steps: the steps stay right, and nothing is disturbed."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model import describe
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.record.recording import Recording
from perf_diagnostics.records import ALL_PHASES
from tests.integrations.test_first_turns import run_here, table_of


class Parts:
    """A small training over 20 batches of 4."""

    def __init__(self) -> None:
        self.model = torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.loader = DataLoader(TensorDataset(torch.randn(80, 4), torch.randn(80, 1)), batch_size=4)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        torch.nn.functional.mse_loss(self.model(x), y).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def breaking_off(parts: Parts) -> list[int]:
    for _ in range(4):
        for number, batch in enumerate(parts.loader):
            if number == 5:
                break
            parts.step(*batch)
    # The sixth batch of each pass is fetched and not used: it counts where the next step is, of which it is no part.
    return [4] * 20


def a_slice(parts: Parts) -> list[int]:
    for batch in itertools.islice(parts.loader, 12):
        parts.step(*batch)
    return [4] * 12


def two_loaders_zipped(parts: Parts) -> list[int]:
    for (x, y), (a, b) in zip(parts.loader, Parts().loader, strict=True):
        parts.step(torch.cat([x, a]), torch.cat([y, b]))
    return [8] * 20


def passes_inside_passes(parts: Parts) -> list[int]:
    inner = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=4)
    for _ in range(10):
        for batch in inner:
            parts.step(*batch)
    return [4] * 20


def without_end(parts: Parts) -> list[int]:
    def endless() -> Iterator[list[torch.Tensor]]:
        while True:
            yield from parts.loader

    for _, batch in zip(range(30), endless(), strict=False):
        parts.step(*batch)
    return [4] * 30


def evaluating_after_each_step(parts: Parts) -> list[int]:
    held_out = iter(Parts().loader)
    for batch in parts.loader:
        parts.model.train()
        parts.step(*batch)
        parts.model.eval()
        with torch.no_grad():
            parts.model(next(held_out)[0])
    return [4] * 20


def the_same_batch_again_and_again(parts: Parts) -> list[int]:
    batch = next(iter(parts.loader))
    for _ in range(25):
        parts.step(*batch)
    return [4] * 25


def averaging_weights(parts: Parts) -> list[int]:
    average = torch.optim.swa_utils.AveragedModel(parts.model)
    for batch in parts.loader:
        parts.step(*batch)
        average.update_parameters(parts.model)
        with torch.no_grad():
            average(batch[0])
    return [4] * 20


def losing_some_steps_to_the_scaler(parts: Parts) -> list[int]:
    scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
    for number, (x, y) in enumerate(parts.loader):
        loss = torch.nn.functional.mse_loss(parts.model(x), y)
        scaler.scale(loss * float("inf") if number in (5, 6) else loss).backward()
        scaler.step(parts.optimizer)
        scaler.update()
        parts.optimizer.zero_grad()
    return [4] * 5 + [12] + [4] * 12  # two batches more lie in the step that follows


def in_a_child_as_well(parts: Parts) -> list[int]:
    for number, batch in enumerate(parts.loader):
        parts.step(*batch)
        if number == 10:
            child = os.fork()
            if not child:
                for other in Parts().loader:
                    parts.step(*other)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    return [4] * 20


LOOPS = [
    *(a_slice, two_loaders_zipped, passes_inside_passes, without_end, evaluating_after_each_step),
    *(the_same_batch_again_and_again, averaging_weights, losing_some_steps_to_the_scaler),
]


@pytest.mark.parametrize("loop", LOOPS)
def test_the_steps_of_a_script_are_right(tmp_path: Path, loop: Callable[[Parts], list[int]]) -> None:
    parts = Parts()
    with run_here(tmp_path) as session:
        samples = loop(parts)
    table = table_of(session)
    assert table.samples.tolist() == samples
    spent = sum(table.host_ns(phase) for phase in ALL_PHASES if table.host_ns(phase) is not None)
    assert (spent == table.wall_ns).all() and (table.host_ns(ALL_PHASES[-1]) >= 0).all()
    assert (table.columns["host_forward_ns"] > 0).all()
    result = session.watch.recording.result
    assert result.facts["accumulation_steps"] == 1
    assert result.trial.settings.batch_size == samples[0]


@pytest.mark.parametrize("loop", [breaking_off, in_a_child_as_well])
def test_no_step_is_lost_or_made_up(tmp_path: Path, loop: Callable[[Parts], list[int]]) -> None:
    parts = Parts()
    with run_here(tmp_path) as session:
        samples = loop(parts)
    assert len(table_of(session)) == len(samples)
    assert len(list(tmp_path.iterdir())) == 1


def test_a_signals_handler_may_call_the_model_while_steps_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    called = []

    def handler(_number: int, _frame: object) -> None:
        with torch.no_grad():
            called.append(parts.model(torch.zeros(2, 4)).shape)

    take = Recording._close_block

    def interrupted(self: Recording) -> None:
        take(self)
        os.kill(os.getpid(), signal.SIGUSR1)  # the block has ended, and the next one has not begun

    monkeypatch.setattr(Recording, "_close_block", interrupted)
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with attach(parts.model, parts.optimizer, parts.loader, results_dir=tmp_path) as seen:
            for batch in parts.loader:
                parts.step(*batch)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert called and seen.run.results[0].steps[0].samples.tolist() == [4] * 20
    assert seen.run.results[0].gap("steps") is None


def test_what_a_signals_handler_raises_inside_of_our_code_reaches_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()

    def handler(_number: int, _frame: object) -> None:
        raise TimeoutError("the job's time is over")  # an OSError, which might be a fault of ours

    count = describe.count_batch

    def interrupted(batch: object) -> object:
        found = count(batch)
        if len(seen._watch.steps.batches) == 0 and seen.steps == 7:
            os.kill(os.getpid(), signal.SIGUSR1)
        return found

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with (
            pytest.raises(TimeoutError, match="time is over"),
            attach(parts.model, parts.optimizer, parts.loader, results_dir=tmp_path) as seen,
        ):
            monkeypatch.setattr(describe, "count_batch", interrupted)
            monkeypatch.setattr(seen._watch.probe, "stop_wait_clock", lambda: None)  # so that batches are counted there
            for batch in parts.loader:
                parts.step(*batch)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(seen.run.results[0].steps[0]) == 7


def test_several_trainings_at_once_in_one_process_each_see_their_own(tmp_path: Path) -> None:
    one, other = Parts(), Parts()
    with attach(one.model, one.optimizer, one.loader, name="one", results_dir=tmp_path) as first:
        for batch in one.loader:
            one.step(*batch)
            if first.steps == 5:
                with attach(other.model, other.optimizer, other.loader, name="two", results_dir=tmp_path) as second:
                    for inner in other.loader:
                        other.step(*inner)
    assert first.steps == second.steps == 20
    assert second.run.results[0].steps[0].samples.tolist() == [4] * 20
    assert first.run.results[0].steps[0].samples.tolist() == [4] * 20


@pytest.mark.parametrize("late", [False, True])
def test_the_usual_number_of_batches_counts_and_not_that_of_the_last_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    monkeypatch.setattr(Trained, "expects_more", late)  # so that the steps are told when all of them are over
    parts = Parts()
    with run_here(tmp_path) as session:
        for number, (x, y) in enumerate(parts.loader):
            torch.nn.functional.mse_loss(parts.model(x), y).backward()
            if number % 3 == 2 or number == 19:  # 20 batches of 4: six steps of three of them, and one of two
                parts.optimizer.step()
                parts.optimizer.zero_grad()
    table = table_of(session)
    result = session.watch.recording.result
    assert table.samples.tolist() == [12] * 6 + [8]
    assert result.facts["accumulation_steps"] == 3 and result.trial.settings.batch_size == 4


def test_a_training_of_one_step_knows_its_batch(tmp_path: Path) -> None:
    parts = Parts()
    with run_here(tmp_path) as session:
        parts.step(*next(iter(parts.loader)))
    result = session.watch.recording.result
    assert result.steps[0].samples.tolist() == [4]
    assert result.trial.settings.batch_size == 4 and result.facts["accumulation_steps"] == 1
