"""Loops that make their optimizer, or their model with it, anew: the steps are right, and nothing grows."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations.model import trained
from perf_diagnostics.integrations.steps.cycle import Cycle
from tests.integrations.test_first_turns import forwards_of, run_here, table_of, trains


def batches(number: int) -> DataLoader:
    return DataLoader([torch.randn(4) for _ in range(4 * number)], batch_size=4)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_a_new_optimizer_in_each_step_takes_the_place_of_the_last_one(tmp_path: Path, kind: type) -> None:
    net = torch.nn.Linear(4, 4)
    with run_here(tmp_path) as session:
        for x in batches(300):
            trains(net, kind(net.parameters(), lr=1e-3), x)
        watch = session.watch
        assert watch is not None
        assert watch.turns.cycle.decided and len(watch.turns.cycle) == 1
        assert len(watch.turns.met) <= 2 and len(watch.trained.optimizers) <= 2
    table = table_of(session)
    # The first step's model was not known before its optimizer was made; it is told, and all others are there.
    assert session.watch.recording.result.gap("unseen_steps").why.startswith("1 step is")
    assert table.samples.tolist() == [4] * 299
    assert forwards_of(table) == [True] * 299


def test_they_may_all_be_kept(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 4)
    kept = []
    with run_here(tmp_path) as session:
        for x in batches(60):
            kept.append(torch.optim.SGD(net.parameters(), lr=1e-3))
            trains(net, kept[-1], x)
    table = table_of(session)
    assert table.samples.tolist() == [4] * 59


def test_an_inner_optimizer_made_for_each_task_is_one_that_takes_turns(tmp_path: Path) -> None:
    net = torch.nn.Linear(4, 4)
    outer = torch.optim.SGD(net.parameters(), lr=1e-3)
    with run_here(tmp_path) as session:
        for x in batches(40):
            fast = copy.deepcopy(net)
            inner = torch.optim.SGD(fast.parameters(), lr=1e-2)
            for _ in range(3):
                trains(fast, inner, x)
            trains(net, outer, x)
    table = table_of(session)
    assert set(table.samples.tolist()) == {4}
    # Each task is one step; those in which its copy was looked for are told.
    gap = session.watch.recording.result.gap("unseen_steps")
    assert gap is not None and len(table) + int(gap.why.split()[0]) == 40


@pytest.mark.slow
def test_models_made_anew_in_each_step_are_not_looked_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trained, "_ALLOWANCE_NS", 0)
    searches = []
    search = trained.living
    monkeypatch.setattr(trained, "living", lambda: searches.append(1) or search())
    with run_here(tmp_path) as session:
        for x in batches(100):
            net = torch.nn.Linear(4, 4)
            trains(net, torch.optim.SGD(net.parameters(), lr=1e-3), x)
    result = session.watch.recording.result
    assert len(searches) < 50
    assert "made anew" in result.gap("new_models").why
    lost = int(result.gap("unseen_steps").why.split()[0])
    assert len(result.steps[0]) + lost == 100 and lost < 50


def test_a_successor_has_the_turns_of_the_one_before() -> None:
    cycle = Cycle([1, 2])
    assert not cycle.stepped(1)
    cycle.rename(1, 3)
    assert cycle.missing == {2}
    assert cycle.stepped(2)
    assert not cycle.stepped(2) and cycle.stepped(3)
