"""Several steps are looked at: what comes of tensors that never change is told, and nothing else.

Every operator counts as taking a second, so that seconds are numbers of operators.
"""

from __future__ import annotations

import gc
import random
import time
import weakref
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.record import flush_times
from perf_diagnostics.measure.one_step import dataflow, dispatch_mode
from perf_diagnostics.measure.one_step import look as look_module
from perf_diagnostics.measure.one_step.dataflow import StepDataflow
from perf_diagnostics.measure.one_step.unchanging import Unchanging
from perf_diagnostics.records import TrialResult
from tests.measure.one_step.test_dataflow import Encoder, followed, shown_to, trained

ROWS, WIDTH = 16, 32

#: Looks at steps after the first one, until nothing is looked at any more.
LATER = 5


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))


def seen(step: Callable[[], Any], *modules: nn.Module) -> Unchanging:
    """What is known after all looks at this step; before the second one it runs unseen as well."""
    first = followed(*modules)
    with shown_to(first):
        step()
    assert first.told is not None and first.why_not == ""
    found = first.unchanging()
    first.storages.forget_the_step(found.leaves)
    while found.goes_on:
        assert found.told == [] or found.sure
        for _ in range(min(3, found.due_after or 0)):
            step()
        found.lets_go()
        again = StepDataflow(found.storages)
        with shown_to(again):
            step()
        assert again.why_not == ""
        found.saw(again.fixed_values, again.forward_s)
    return found


def told(step: Callable[[], Any], *modules: nn.Module) -> list[Any]:
    return list(seen(step, *modules).told)


class Headed(nn.Module):
    """A frozen encoder and a head that is trained."""

    def __init__(self, encoder: nn.Module | None = None) -> None:
        super().__init__()
        self.encoder = Encoder() if encoder is None else encoder
        self.encoder.requires_grad_(False).eval()
        self.head = nn.Linear(WIDTH, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = self.encoder(x)
        out: torch.Tensor = self.head(features)
        return out


def training(
    model: nn.Module, batch: Callable[[], torch.Tensor], after: Callable[[], Any] = lambda: None
) -> Callable[[], None]:
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.1)

    def step() -> None:
        model(batch()).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after()

    return step


def test_a_frozen_encoder_on_the_same_batch_is_told_where_its_result_comes_out() -> None:
    model, x = Headed(), torch.randn(ROWS, WIDTH)
    found = seen(training(model, lambda: x), model)
    (one,) = found.told
    assert isinstance(one, dict) and one["text"] == "features = self.encoder(x)"
    # Two layers and what lies between them; one matrix of ROWS by WIDTH numbers of four bytes is to be kept.
    assert one["operators"] == one["seconds_forward"] == 3 and one["seconds_backward"] == 0
    assert one["bytes"] == ROWS * WIDTH * 4 and one["looks"] == 1 + LATER and one["casts"] is False
    assert not found.goes_on and found.due_after is None


@pytest.mark.parametrize("changes", [False, True])
def test_a_sparse_adjacency_made_anew_in_each_step_is_told_unless_its_edges_change(changes: bool) -> None:
    model, x = nn.Linear(WIDTH, 4), torch.randn(ROWS, WIDTH)
    places, weights = torch.stack((torch.arange(ROWS), torch.arange(ROWS).roll(1))), torch.rand(ROWS)

    def step() -> None:
        graph = torch.sparse_coo_tensor(places, weights, (ROWS, ROWS), check_invariants=False).coalesce()
        degrees = torch.sparse.sum(graph, 1).to_dense()
        scaled = graph.values() / degrees[graph.indices()[0]]
        graph = torch.sparse_coo_tensor(graph.indices(), scaled, (ROWS, ROWS), check_invariants=False).coalesce()
        torch.sparse.mm(graph, model(x)).square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        if changes:
            weights.mul_(1.01)

    sites = told(step, model)
    if changes:
        assert sites == []
    else:
        (one,) = sites
        assert one["operators"] >= 4 and one["text"].startswith("graph = ")


def test_products_of_constants_are_told_but_not_what_weights_go_into() -> None:
    model, x, adjacency = nn.Linear(WIDTH, 4), torch.randn(ROWS, WIDTH), torch.rand(ROWS, ROWS)

    def step() -> None:
        normed = adjacency / adjacency.sum(1, keepdim=True)
        hidden = model(normed @ x)
        (normed @ hidden).square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()

    (one,) = told(step, model)
    # The sum, the quotient and the first product; the quotient and that product are read by what changes.
    assert one["operators"] == 3 and one["bytes"] == 4 * (ROWS * ROWS + ROWS * WIDTH)


@pytest.mark.parametrize("how", ["number by number", "of a list", "of an array", "of other numbers", "of a long array"])
def test_a_table_that_python_fills_is_told_where_it_comes_out_unless_its_numbers_change(how: str) -> None:
    model, steps = nn.Linear(WIDTH, WIDTH), count()

    def table() -> torch.Tensor:
        if how == "of a list":
            return torch.tensor([0.5] * WIDTH).exp()
        if how == "of an array":
            return torch.from_numpy(np.full(WIDTH, 0.5, np.float32)).exp()
        if how == "of a long array":  # which is not compared
            return torch.from_numpy(np.full(1 << 17, 0.5, np.float32)).exp()[:WIDTH]
        filled = torch.zeros(WIDTH)
        for at in range(3):
            filled[at] = at / 2 if how == "number by number" else next(steps)
        return filled

    def step() -> None:
        bank = table()
        (model(torch.randn(ROWS, WIDTH)) * bank).square().mean().backward()

    found = told(step, model)
    if how in ("of other numbers", "of a long array"):
        assert found == []
        return
    (one,) = found
    assert one["text"] == "bank = table()"
    # Zeros, what lifts three numbers and copies each, and the seconds of the three views that are written; or one table
    # lifted, and its exp. Python may have taken 3 µs for each number that is lifted.
    by_number = how == "number by number"
    assert one["operators"] == (7 if by_number else 2) and one["of_python"] is False
    assert one["seconds_forward"] == pytest.approx(10 + 9e-6 if by_number else 2 + 3e-6 * WIDTH, rel=1e-9)


@pytest.mark.parametrize("other", [False, True])
def test_what_python_takes_to_make_the_numbers_of_a_table_counts_with_it(
    monkeypatch: pytest.MonkeyPatch, *, other: bool
) -> None:
    """Where Python takes seconds before a tensor of few numbers, most of them are for something else."""
    ticks, taken = count(0, 1_000_000_000), [0]
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks) + taken[0])
    monkeypatch.setattr(dataflow, "_A_NUMBER_S", 3e-6 if other else 1.0)
    model = nn.Linear(WIDTH, WIDTH)

    def scale(at: int) -> float:
        taken[0] += 500_000_000
        return at / WIDTH

    def step() -> None:
        bank = torch.tensor([scale(at) for at in range(WIDTH)])
        (model(torch.randn(ROWS, WIDTH)) * bank).square().mean().backward()

    found = told(step, model)
    (one,) = found
    if other:
        assert one["seconds_forward"] == pytest.approx(1 + 3e-6 * WIDTH) and one["of_python"] is False
        return
    # Half a second for each number, the second between two operators, and the one that lifts it.
    assert one["seconds_forward"] == pytest.approx(0.5 * WIDTH + 2) and one["of_python"] is True


def changing(model: Headed, how: str) -> tuple[Callable[[], torch.Tensor], Callable[[], Any]]:
    """The batch of each step, and what comes after it."""
    x, steps = torch.randn(ROWS, WIDTH), count()
    numbers = np.random.default_rng(0).standard_normal((ROWS, WIDTH)).astype(np.float32)
    view, several = torch.from_numpy(numbers), [torch.randn(ROWS, WIDTH) for _ in range(2)]
    frozen = list(model.encoder.parameters())
    batches: dict[str, Callable[[], torch.Tensor]] = {
        "another tensor": lambda: torch.randn(ROWS, WIDTH),
        "another part": lambda: x[(next(steps) % 2) * 8 :][:8],
        "turns": lambda: several[next(steps) % 2],
        "in place": lambda: x.add_(0.01),
        "by numpy": lambda: view if np.add(numbers, 0.01, out=numbers).size else x,
        "noise": lambda: x + torch.randn_like(x),
        "a number of the step": lambda: x * next(steps),
        "a number read back": lambda: x * float(torch.rand(1).item()),
    }
    after: dict[str, Callable[[], Any]] = {
        "by average": lambda: [one.lerp_(torch.ones_like(one), 0.1) for one in frozen],
        "by average of data": lambda: [one.data.mul_(0.9) for one in frozen],
        "copied every third step": lambda: next(steps) % 3 or [one.copy_(one * 0.9) for one in frozen],
    }
    return batches.get(how, lambda: x), after.get(how, lambda: None)


@pytest.mark.parametrize(
    "how",
    [
        *("another tensor", "another part", "turns", "in place", "by numpy", "noise", "a number of the step"),
        *("a number read back", "by average", "by average of data", "copied every third step"),
    ],
)
def test_what_changes_between_steps_is_not_told(how: str) -> None:
    model = Headed()
    batch, after = changing(model, how)

    def without_gradients() -> None:
        with torch.no_grad():
            after()

    assert told(training(model, batch, without_gradients), model) == []


def test_one_number_among_many_that_torch_does_not_count_is_seen() -> None:
    model, x = Headed(), torch.randn(ROWS, WIDTH)
    numbers = x.numpy()

    def changes_one() -> None:
        numbers[ROWS // 3, 5] += 1.0

    assert told(training(model, lambda: x, changes_one), model) == []


def test_batches_shuffled_anew_in_each_pass_never_stay_the_same() -> None:
    model, several = Headed(), [torch.randn(ROWS, WIDTH) for _ in range(2)]

    def passes() -> Iterator[torch.Tensor]:
        while True:
            yield from random.Random(next(seeds)).sample(several, 2)

    for seed in range(8):
        seeds = count(seed * 100)
        assert told(training(model, passes().__next__), model) == []


def test_dropout_and_running_statistics_are_no_constants() -> None:
    x = torch.randn(ROWS, WIDTH)
    for layer in (nn.Dropout(0.5), nn.BatchNorm1d(WIDTH, affine=False)):
        model = Headed(nn.Sequential(layer, Encoder()))
        layer.train()
        assert told(training(model, lambda: x), model) == []


def test_trained_weights_are_no_constants_whether_they_change_or_not() -> None:
    model, x = nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        value: torch.Tensor = model(x) / model.weight.data.norm()
        return value.mean()

    assert told(trained(loss), model) == []


def test_a_queue_and_what_is_written_into_memory_that_stays_are_left_alone() -> None:
    model, queue, x = nn.Linear(WIDTH, WIDTH), torch.rand(ROWS, WIDTH), torch.randn(ROWS, WIDTH)
    out = torch.empty(ROWS, ROWS)

    def step() -> None:
        keys = functional.normalize(queue, dim=1)
        torch.mm(x, x.T, out=out)
        (model(x) @ keys.T).mean().backward()
        with torch.no_grad():
            queue[0] += 1

    assert told(step, model) == []


def test_what_is_written_over_by_what_changes_is_not_kept_but_what_it_is_made_of_is() -> None:
    model, x, y = nn.Linear(WIDTH, 1), torch.randn(ROWS, WIDTH), torch.randn(ROWS, WIDTH)

    def step() -> None:
        mixed = (x.exp() + y).mul_(torch.rand(ROWS, WIDTH))
        model(mixed).mean().backward()

    (one,) = told(step, model)
    assert one["operators"] == 1 and one["bytes"] == ROWS * WIDTH * 4


def test_casts_of_frozen_weights_are_told_as_such() -> None:
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH).requires_grad_(False))

    def step() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = model(torch.randn(ROWS, WIDTH)).float().mean()
        loss.backward()
        torch.optim.SGD(model[0].parameters(), lr=0.1).step()

    (one,) = told(step, model)
    assert one["casts"] is True and one["operators"] == 2 and one["bytes"] == 2 * (WIDTH * WIDTH + WIDTH)


def test_numbers_in_the_code_are_told_by_another_list() -> None:
    x = torch.randn(ROWS, WIDTH, requires_grad=True)

    def loss() -> torch.Tensor:
        return (x + torch.arange(WIDTH).exp()).sum()

    assert told(trained(loss)) == []


def test_a_little_is_not_looked_at_again() -> None:
    x, y = torch.randn(ROWS, WIDTH, requires_grad=True), torch.randn(ROWS, WIDTH)

    def loss() -> torch.Tensor:
        out = x
        for _ in range(60):
            out = out.sin()
        return (out + y.exp()).sum()

    found = seen(trained(loss))
    assert found.looks == 1 and found.sure and found.told == []


def test_nothing_is_kept_alive_and_what_has_gone_ends_the_looks() -> None:
    model, gone = Headed(), list[int]()
    held = [torch.randn(ROWS, WIDTH)]
    first = followed(model)
    with shown_to(first):
        training(model, lambda: held[0])()
    assert first.told["computed_again"] == []
    found = first.unchanging()
    first.storages.forget_the_step(found.leaves)
    assert found.goes_on
    weakref.finalize(held[0], gone.append, 1)
    held.clear()
    gc.collect()
    assert gone == [1]
    found.lets_go()
    assert (found.goes_on, found.sure, found.told) == (False, True, [])


def test_the_median_of_the_looks_counts_each_by_the_pace_of_its_step() -> None:
    model, x = Headed(), torch.randn(ROWS, WIDTH)
    step, first = training(model, lambda: x), followed(model)
    with shown_to(first):
        step()
    assert first.told["never_used"] == []
    found = first.unchanging()
    first.storages.forget_the_step(found.leaves)
    for slower, part in ((1.0, 1.0), (2.0, 0.5), (4.0, 2.0)):
        again = StepDataflow(found.storages)
        with shown_to(again):
            step()
        # The whole step is slower, and the encoder's share of it once half as large, and once twice.
        times = {value: slower * part * took for value, took in again.fixed_values.items()}
        found.saw(times, slower * again.forward_s)
    (one,) = found.told
    assert isinstance(one, dict) and one["seconds_forward"] == pytest.approx(3)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first look comes with the first steps; the clock of operators is real."""
    monkeypatch.setattr(flush_times, "FIRST_FLUSH_NS", 0)
    monkeypatch.setattr(look_module, "STEADY_STEPS", 1)
    monkeypatch.setattr(dispatch_mode, "_clock", time.thread_time_ns)


def watched(tmp_path: Path, steps: int, *, inside: bool) -> TrialResult:
    """Of a training with a frozen encoder, inside of the model or called beside it, on one batch."""
    encoder, x = nn.Sequential(*(Encoder() for _ in range(6))), torch.randn(128, WIDTH)
    encoder.requires_grad_(False).eval()
    model = Headed(encoder) if inside else nn.Linear(WIDTH, 4)
    head = model.head if isinstance(model, Headed) else model
    optimizer = torch.optim.SGD(head.parameters(), lr=0.1)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as attached:
        for _ in range(steps):
            given = x
            if not inside:
                with torch.no_grad():
                    given = encoder(x)  # beside
            model(given).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert attached.run is not None
    (result,) = attached.run.results
    return result


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("inside", [True, False])
def test_a_watched_training_is_looked_at_again_until_it_is_sure(tmp_path: Path, *, inside: bool) -> None:
    result = watched(tmp_path, 44, inside=inside)
    (one,) = result.facts["unchanging"]  # type: ignore[misc, str-unpack]
    assert isinstance(one, dict) and one["looks"] == 4 and one["operators"] == 18
    assert [bool(one[name]) for name in ("seconds_forward", "seconds_outside")] == [inside, not inside]
    assert one["text"] == ("features = self.encoder(x)" if inside else "given = encoder(x)  # beside")
    # The first look, thirty steps, and three looks in a row count as little as the warm-up.
    aside = [at for at, warmup in enumerate(result.steps[0].columns["warmup"].tolist()) if warmup][3:]
    assert [at - aside[0] for at in aside] == [0, 31, 32, 33]


@pytest.mark.usefixtures("soon")
def test_a_training_that_ends_before_is_not_told_of(tmp_path: Path) -> None:
    result = watched(tmp_path, 20, inside=True)
    assert "unchanging" not in result.facts and "computed_again" in result.facts
    gap = result.gap("unchanging")
    assert gap is not None and "ended before" in gap.why
