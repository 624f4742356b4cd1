"""Parameters that get no gradient, and gradients that nobody uses: told of a watched training of several steps."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics.integrations import OwnLoop, attach
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.measure.gradients import embedding_gradients
from perf_diagnostics.records import Json
from tests.integrations.test_first_turns import run_here

NUMBERS = ("unused_parameters", "gradients_used", "gradients_nobody_uses", "gradient_bytes_nobody_uses")


BY_WATCHING_AND_BY_MARKS = pytest.mark.parametrize("how", ["attach", "run", "marks"])


@pytest.fixture(autouse=True)
def _no_optimizers_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    """They live on in this process, and are not about to step."""
    monkeypatch.setattr(Trained, "expects_more", False)


class TwoHeads(torch.nn.Module):
    """4 to 8, and from there to one output by either head."""

    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Linear(4, 8)  # 40 parameters
        self.heads = torch.nn.ModuleList([torch.nn.Linear(8, 1), torch.nn.Linear(8, 1)])  # 9 each

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        body = self.body(x)
        self.asides = self.heads[1](body)
        return self.heads[0](body)


def facts_of(
    folder: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, *, teacher=None, how: str, steps: int = 8
) -> Mapping[str, Json]:
    loader = DataLoader(TensorDataset(torch.randn(4 * steps, 4), torch.randn(4 * steps, 1)), batch_size=4)

    def train() -> None:
        for x, y in loader:
            soft = y if teacher is None else teacher(x)
            torch.nn.functional.mse_loss(model(x), soft).backward()
            optimizer.step()
            optimizer.zero_grad()

    if how == "marks":
        with OwnLoop(model=model, optimizer=optimizer, results_dir=folder, quiet=True) as loop:
            for x, y in loop.batches(loader):
                with loop.step():
                    torch.nn.functional.mse_loss(model(x), y if teacher is None else teacher(x)).backward()
                    optimizer.step()
                    optimizer.zero_grad()
        assert not optimizer._optimizer_step_post_hooks
        return loop.run.results[0].facts
    if how == "attach":
        with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
            train()
        return seen.run.results[0].facts
    with run_here(folder) as session:
        train()
    return session.watch.recording.result.facts


def test_of_a_model_that_is_gone_with_its_function_it_is_told_what_was_seen(tmp_path: Path) -> None:
    """The usual script: all of it in ``main()``, and over before anything was written."""

    def main() -> weakref.ref[torch.nn.Module]:
        model = TwoHeads()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for x, y in DataLoader(TensorDataset(torch.randn(20, 4), torch.randn(20, 1)), batch_size=4):
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
        return weakref.ref(model)

    with run_here(tmp_path) as session:
        gone = main()
        gc.collect()
        assert gone() is None
    facts = session.watch.recording.result.facts
    assert [facts[name] for name in NUMBERS] == [9, 40 + 9, 0, 0] and facts["model"] == "TwoHeads"
    assert facts["sparse_gradients"] == 0 and facts["accumulation_steps"] == 1


@BY_WATCHING_AND_BY_MARKS
def test_a_head_that_is_not_in_the_loss_is_counted(tmp_path: Path, how: str) -> None:
    model = TwoHeads()
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), how=how)
    assert [facts[name] for name in NUMBERS] == [9, 40 + 9, 0, 0]  # 8 weights and a bias


@BY_WATCHING_AND_BY_MARKS
def test_a_model_that_is_used_as_a_whole_is_measured_as_none(tmp_path: Path, how: str) -> None:
    model, teacher = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1).requires_grad_(False)
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), teacher=teacher, how=how)
    assert [facts[name] for name in NUMBERS] == [0, 5, 0, 0] and "gradients_nobody_uses_of" not in facts


@pytest.mark.parametrize("how", ["attach", "run"])
def test_a_teacher_that_is_not_frozen_gets_gradients_that_nobody_uses(tmp_path: Path, how: str) -> None:
    model, teacher = torch.nn.Linear(4, 1), TwoHeads()
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), teacher=teacher, how=how)
    assert [facts[name] for name in NUMBERS] == [0, 5, 49, 4 * 49]  # its body and one head, float32
    assert facts["gradients_nobody_uses_of"] == "TwoHeads.body"  # of its heads one has none


@BY_WATCHING_AND_BY_MARKS
def test_a_body_of_which_only_the_head_is_trained_gets_gradients_that_nobody_uses(tmp_path: Path, how: str) -> None:
    model = TwoHeads()
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.heads[0].parameters(), lr=0.01), how=how)
    assert [facts[name] for name in NUMBERS] == [0, 9, 40, 160]
    assert facts["gradients_nobody_uses_of"] == "TwoHeads.body"


def test_what_an_earlier_stage_has_left_is_no_gradient_of_this_one(tmp_path: Path) -> None:
    model, teacher = torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)
    teacher(torch.randn(4, 4)).sum().backward()
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), teacher=None, how="run")
    assert teacher.weight.grad is not None and facts["gradients_nobody_uses"] == 0


def test_one_step_is_too_little_to_tell(tmp_path: Path) -> None:
    model = TwoHeads()
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), how="attach", steps=1)
    assert not set(NUMBERS) & set(facts)


class Forger(torch.nn.Module):
    """40 parameters, and a head of 9 whose output nobody judges."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.aside = torch.nn.Linear(4, 8), torch.nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        body: torch.Tensor = self.body(x)
        self.aside(body)
        return body


def contest(folder: Path, how: str, *, critics: int = 1, steps: int = 8, keep: bool = True) -> Mapping[str, Json]:
    """A GAN: a judge of 9 parameters, stepped so often by Adam, and a forger, stepped once by SGD.

    Without ``keep`` the forger's optimizer lets go of its gradients at the end of its step.
    """
    judge, forger = torch.nn.Linear(8, 1), Forger()

    class Clears(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            if not keep:
                self.zero_grad()

    of_judge, of_forger = torch.optim.Adam(judge.parameters()), Clears(forger.parameters(), lr=0.01)
    loader = DataLoader(TensorDataset(torch.randn(4 * steps * critics, 8)), batch_size=4)

    def train() -> None:
        for at, (x,) in enumerate(loader, start=1):
            of_judge.zero_grad()
            (judge(forger(torch.randn(4, 4)).detach()).mean() - judge(x).mean()).backward()
            of_judge.step()
            if at % critics == 0:
                of_forger.zero_grad()
                (-judge(forger(torch.randn(4, 4))).mean()).backward()
                of_forger.step()

    if how == "attach":
        with attach([judge, forger], [of_judge, of_forger], results_dir=folder, quiet=True) as seen:
            train()
        assert seen.steps == steps
        return seen.run.results[0].facts
    with run_here(folder) as session:
        train()
    return session.watch.recording.result.facts


@pytest.mark.parametrize(("how", "critics"), [("attach", 1), ("attach", 3), ("run", 1)])
def test_optimizers_that_take_turns_are_told_of_one_by_one(tmp_path: Path, how: str, critics: int) -> None:
    facts = contest(tmp_path, how, critics=critics)
    judges = {"optimizer": "Adam", "trains": "Linear", "place": 1, "turns": critics}
    forgers = {"optimizer": "Clears", "trains": "Forger", "place": 2, "turns": 1}
    same = {"optimizer_implementation": "single", "sparse_gradients": 0}
    assert facts["optimizers_in_turn"] == 2
    assert facts["gradients_of_optimizers"] == [
        {**judges, **same, "gradients_used": 9, "unused_parameters": 0},
        {**forgers, **same, "gradients_used": 40, "unused_parameters": 9},
    ]
    # Of all: the judge's gradients by the forger's backward are held by somebody.
    assert [facts[name] for name in NUMBERS] == [9, 9 + 40, 0, 0]


def test_where_one_of_several_keeps_no_gradients_only_the_other_is_told_of(tmp_path: Path) -> None:
    facts = contest(tmp_path, "attach", keep=False)
    assert facts["optimizers_in_turn"] == 2 and not set(NUMBERS) & set(facts)
    (judges,) = facts["gradients_of_optimizers"]
    assert judges["optimizer"] == "Adam" and judges["place"] == 1


def test_several_optimizers_of_one_model_are_told_apart_by_its_parts_and_share_what_both_hold(tmp_path: Path) -> None:
    model = TwoHeads()
    both = [*model.body.parameters(), *model.heads[0].parameters()]
    optimizers = [torch.optim.SGD(model.body.parameters(), lr=0.01), torch.optim.SGD(both, lr=0.01)]
    with attach(model, optimizers, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(6):
            model(torch.randn(4, 4)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
            model.zero_grad()
    facts = seen.run.results[0].facts
    assert [one["trains"] for one in facts["gradients_of_optimizers"]] == [
        "TwoHeads.body",
        "TwoHeads.body, TwoHeads.heads",
    ]
    assert [one["gradients_used"] for one in facts["gradients_of_optimizers"]] == [40, 49]
    assert facts["gradients_used"] == 49  # the body's once


def test_a_third_models_gradients_are_used_by_none_of_several(tmp_path: Path) -> None:
    teacher, students = torch.nn.Linear(4, 1), [torch.nn.Linear(4, 1), torch.nn.Linear(4, 1)]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in students]
    with attach([*students, teacher], optimizers, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(6):
            x = torch.randn(4, 4)
            for model, optimizer in zip(students, optimizers, strict=True):
                torch.nn.functional.mse_loss(model(x), teacher(x)).backward()
                optimizer.step()
                optimizer.zero_grad()
    facts = seen.run.results[0].facts
    assert [facts[name] for name in NUMBERS] == [0, 10, 5, 20]


def test_the_table_of_one_of_several_optimizers_is_told_with_its_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_gradients, "LEAST_NUMBERS", 1600)
    plain, words = torch.nn.Linear(4, 1), Words(sparse=False)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in (plain, words)]
    with attach([plain, words], optimizers, results_dir=tmp_path, quiet=True) as seen:
        for _ in range(6):
            for model, optimizer in zip((plain, words), optimizers, strict=True):
                model(torch.randn(4, 4)).sum().backward()
                optimizer.step()
                optimizer.zero_grad()
    facts = seen.run.results[0].facts
    assert facts["embedding_gradient_optimizer"] == 2 and facts["embedding_rows_touched"] == 4


class Words(torch.nn.Module):
    """A table of 100 words of 16 numbers, whose sum is compared."""

    def __init__(self, *, sparse: bool) -> None:
        super().__init__()
        self.table = torch.nn.EmbeddingBag(100, 16, sparse=sparse, mode="sum")
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        words = torch.tensor([[0, 5, 5], [5, 9, 63]] * 2)  # 0, 5, 9 and 63, whatever x says
        return self.head(self.table(words)) + x.mean()


@BY_WATCHING_AND_BY_MARKS
def test_a_dense_gradient_for_the_sake_of_a_few_rows_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(embedding_gradients, "LEAST_NUMBERS", 1600)
    model = Words(sparse=False)
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), how=how)
    told = {name: facts[name] for name in facts if name.startswith("embedding_")}
    assert told == {
        "embedding_gradient_of": "table.weight",
        "embedding_gradient_numbers": 1600,
        "embedding_rows": 100,
        "embedding_rows_touched": 4,
    }
    assert facts["sparse_gradients"] == 0


class Columns(torch.nn.Module):
    """Tables of so many rows of 4 numbers each, of which rows 0 and 1 are looked up; the first is there twice."""

    def __init__(self, *rows: int) -> None:
        super().__init__()
        self.tables = torch.nn.ModuleList(torch.nn.Embedding(count, 4) for count in rows)
        self.again = torch.nn.Embedding(rows[0], 4)
        self.again.weight = self.tables[0].weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first_two = torch.tensor([0, 1])
        return sum(table(first_two).sum() for table in self.tables) + x.mean(dim=1, keepdim=True)


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        # 200 + 100 rows of 4, of which 2 a table were touched; of the table of 3 most were.
        ((200, 100, 3), {"tables": 2, "tables_numbers": 1200, "tables_untouched": 1184.0, "rows": 200}),
        ((200, 3), {"rows": None}),  # 800 numbers in one table that is hardly touched
        ((400, 3), {"tables": None, "rows": 400}),  # large enough by itself: 1600
        ((3, 3, 3), {"rows": None}),
    ],
)
def test_tables_that_a_step_hardly_touches_are_counted_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[int, ...], told: Mapping[str, Json]
) -> None:
    monkeypatch.setattr(embedding_gradients, "LEAST_NUMBERS", 1000)
    model = Columns(*rows)
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), how="attach")
    assert {name: facts.get(f"embedding_{name}") for name in told} == told


@BY_WATCHING_AND_BY_MARKS
def test_sparse_gradients_are_told_and_tables_of_usual_size_are_not(tmp_path: Path, how: str) -> None:
    model = Words(sparse=True)
    facts = facts_of(tmp_path, model, torch.optim.SGD(model.parameters(), lr=0.01), how=how)
    assert facts["sparse_gradients"] == 1600 and facts["gradients_used"] == 1600 + 17
    assert not any(name.startswith("embedding_") for name in facts)


def test_an_optimizer_that_keeps_no_gradients_tells_nothing(tmp_path: Path) -> None:
    """It may have flattened them, or have let them go at the end of its step."""

    class Clears(torch.optim.SGD):
        def step(self, closure=None):
            super().step(closure)
            self.zero_grad()

    model = TwoHeads()
    facts = facts_of(tmp_path, model, Clears(model.parameters(), lr=0.01), how="attach")
    assert not set(NUMBERS) & set(facts)


def test_of_two_optimizers_that_share_a_model_the_other_ones_gradients_are_used(tmp_path: Path) -> None:
    """The one that was named steps each time, the other one, which the loop was not told of, with it."""
    model = TwoHeads()
    optimizers = [torch.optim.SGD(part.parameters(), lr=0.01) for part in (model.body, model.heads[0])]
    with OwnLoop(model=model, optimizer=optimizers[0], results_dir=tmp_path, quiet=True) as loop:
        for _ in range(8):
            with loop.step():
                model(torch.randn(4, 4)).sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
    assert [loop.run.results[0].facts[name] for name in NUMBERS] == [0, 40, 0, 0]


def test_a_table_that_an_inner_loop_has_replaced_is_not_asked_for_its_gradient(recwarn) -> None:
    """As torchopt's MetaSGD and learn2learn's update_module do: torch warns who asks such a tensor."""
    table = torch.nn.Embedding(100_000, 16)
    given = table.weight
    table._parameters["weight"] = given - 0.1 * torch.ones_like(given)  # type: ignore[assignment]
    assert embedding_gradients.dense_gradients([table], without=()) is None
    assert [str(one.message) for one in recwarn] == []
