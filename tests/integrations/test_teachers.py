"""Models that a step asks and nobody trains: their time is forward, and no preparation of the batch."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model import trained
from perf_diagnostics.integrations.model.beside_models import BesideModels
from perf_diagnostics.measure.module_calls import COMPILED_CALL
from perf_diagnostics.records import ALL_PHASES, StepTable
from tests.integrations.test_first_turns import run_here, table_of

#: What the teacher sleeps, in seconds; the rest of the step takes less than a millisecond.
SLEEPS_S = 0.006


class Teacher(torch.nn.Module):
    """Takes its time, and notes down how much."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(4, 1)
        self.slept_ns: list[int] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter_ns()
        time.sleep(SLEEPS_S)
        self.slept_ns.append(time.perf_counter_ns() - began)
        return self.line(x)


class Distillation:
    """A teacher, a student and 20 batches of 4."""

    def __init__(self) -> None:
        self.teacher, self.student = Teacher(), torch.nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.student.parameters(), lr=0.01)
        self.loader = DataLoader(TensorDataset(torch.randn(80, 4), torch.randn(80, 1)), batch_size=4)
        self.frozen = self.student_first = False

    def asked(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad() if self.frozen else contextlib.nullcontext():
            return self.teacher(x)

    def train(self) -> None:
        for x, y in self.loader:
            if self.student_first:
                out = self.student(x)
                soft = self.asked(x)
            else:
                soft = self.asked(x)
                out = self.student(x)
            (torch.nn.functional.mse_loss(out, soft) + torch.nn.functional.mse_loss(out, y)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad()


@contextlib.contextmanager
def attached(parts: Distillation, folder: Path) -> Iterator[list[StepTable]]:
    tables: list[StepTable] = []
    with attach(parts.student, parts.optimizer, results_dir=folder, quiet=True) as seen:
        yield tables
    tables.extend(seen.run.results[0].steps)


@contextlib.contextmanager
def run(_parts: Distillation, folder: Path) -> Iterator[list[StepTable]]:
    tables: list[StepTable] = []
    with run_here(folder) as session:
        yield tables
    tables.append(table_of(session))


@pytest.mark.parametrize("how", [attached, run])
@pytest.mark.parametrize(("frozen", "student_first"), [(True, False), (False, False), (True, True)])
def test_what_a_teacher_says_before_the_student_is_asked_is_forward(
    tmp_path: Path, how, frozen: bool, student_first: bool
) -> None:
    parts = Distillation()
    parts.frozen, parts.student_first = frozen, student_first
    if frozen:
        parts.teacher.eval().requires_grad_(False)
    with how(parts, tmp_path) as tables:
        parts.train()
    (table,) = tables
    slept_ns = parts.teacher.slept_ns
    assert table.samples.tolist() == [4] * 20
    assert (table.host_ns("forward") >= slept_ns).all()  # all of it, in each of the 20 steps
    assert (table.columns["prepare_ns"] < table.wall_ns / 2).all()
    assert table.columns["prepare_ns"].sum() < sum(slept_ns) / 10
    assert COMPILED_CALL not in parts.teacher.__dict__ and COMPILED_CALL not in parts.student.__dict__


@pytest.mark.parametrize("how", [attached, run])
def test_batches_that_only_an_average_of_the_model_is_asked_about_are_no_training(tmp_path: Path, how) -> None:
    parts = Distillation()
    parts.frozen = True
    parts.teacher.eval()
    with how(parts, tmp_path) as tables:
        parts.train()
        for x, _ in parts.loader:  # fetched with gradients, like a batch to train on
            parts.asked(x)
        parts.train()
    (table,) = tables
    slept_ns = parts.teacher.slept_ns
    # 20 steps, 20 batches of an evaluation, 20 steps: the evaluation is other, and of the 21st step.
    assert table.samples.tolist() == [4] * 40
    assert table.host_ns(ALL_PHASES[-1])[20] >= sum(slept_ns[20:40])
    assert table.host_ns("forward")[20] < sum(slept_ns[20:40])
    assert table.columns["prepare_ns"].sum() < sum(slept_ns) / 10


def test_preparing_a_batch_beside_a_teacher_is_still_preparing(tmp_path: Path) -> None:
    parts = Distillation()
    parts.frozen = True
    slept_ns: list[int] = []
    asked = parts.asked

    def prepared(x: torch.Tensor) -> torch.Tensor:
        began = time.perf_counter_ns()
        time.sleep(SLEEPS_S)
        slept_ns.append(time.perf_counter_ns() - began)
        return asked(x)

    parts.asked = prepared  # type: ignore[method-assign]
    with run(parts, tmp_path) as tables:
        parts.train()
    (table,) = tables
    assert (table.columns["prepare_ns"] >= slept_ns).all()
    assert (table.host_ns("forward") >= parts.teacher.slept_ns).all()


def test_a_teacher_that_is_trained_later_on_is_one_of_those_that_are_trained(tmp_path: Path) -> None:
    parts = Distillation()
    with run(parts, tmp_path) as tables:
        parts.train()
        second = torch.optim.SGD(parts.teacher.parameters(), lr=0.01)
        for x, y in parts.loader:
            torch.nn.functional.mse_loss(parts.teacher(x), y).backward()
            second.step()
            second.zero_grad()
    (table,) = tables
    assert (table.host_ns("forward")[:20] >= parts.teacher.slept_ns[:20]).all()
    assert (table.host_ns("forward")[22:] >= SLEEPS_S * 1e9).all() and len(table) >= 38
    assert COMPILED_CALL not in parts.teacher.__dict__ and COMPILED_CALL not in parts.student.__dict__


def test_a_teacher_that_is_made_inside_of_the_block_is_seen_from_the_first_step(tmp_path: Path) -> None:
    parts = Distillation()
    parts.frozen = True
    parts.teacher = None  # type: ignore[assignment]
    with attached(parts, tmp_path) as tables:
        parts.teacher = Teacher().eval()
        parts.train()
    (table,) = tables
    assert (table.host_ns("forward") >= parts.teacher.slept_ns).all() and len(table) == 20
    assert COMPILED_CALL not in parts.teacher.__dict__


@pytest.mark.parametrize("how", [attached, run])
def test_a_teacher_that_is_made_in_the_midst_of_the_training_is_seen_after_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how
) -> None:
    monkeypatch.setattr(trained, "_ALLOWANCE_NS", 1 << 62)
    looked, found = BesideModels.looked, []

    def noted(self: BesideModels) -> None:
        looked(self)
        found.append(self)

    monkeypatch.setattr(BesideModels, "looked", noted)
    parts = Distillation()
    parts.frozen, first = True, parts.teacher
    with how(parts, tmp_path) as tables:
        parts.train()
        parts.teacher = copy.deepcopy(first)  # an average of the weights, say
        assert found[-1].due_ns > time.perf_counter_ns() + 1_000_000_000
        found[-1].due_ns = 0  # as if it were time
        parts.train()
    (table,) = tables
    slept_ns = [*first.slept_ns, *parts.teacher.slept_ns[20:]]
    assert len(slept_ns) == len(table) == 40
    in_forward = table.host_ns("forward") >= slept_ns
    # The first step of the copy ends before anybody looks for it.
    assert in_forward.tolist() == [True] * 20 + [False] + [True] * 19
    assert COMPILED_CALL not in parts.teacher.__dict__ and COMPILED_CALL not in first.__dict__


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
def test_a_graph_of_teacher_and_student_stays_whole(tmp_path: Path) -> None:
    counters = torch._dynamo.utils.counters
    made = []
    for watched in (contextlib.nullcontext(), run_here(tmp_path)):
        torch._dynamo.reset()
        counters.clear()
        teacher, student = torch.nn.Linear(4, 1).requires_grad_(False), torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(student.parameters(), lr=0.01)

        def loss_of(x: torch.Tensor, teacher=teacher, student=student) -> torch.Tensor:
            return (teacher(x) - student(x)).square().mean()

        compiled = torch.compile(loss_of, backend="eager", fullgraph=True)
        with watched:
            for _ in range(8):
                compiled(torch.randn(4, 4)).backward()
                optimizer.step()
                optimizer.zero_grad()
        made.append((counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())))
    assert made == [(1, 0), (1, 0)]
