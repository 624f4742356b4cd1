"""Modules that there are: what was made since the last look is told without looking."""

from __future__ import annotations

import copy
import io
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model import trained
from perf_diagnostics.measure import living as living_module
from perf_diagnostics.measure.living import Living, Made, living


class Own(torch.nn.Linear):
    """A class that nobody else refers to."""


def made(*there: torch.nn.Module) -> Made:
    """As of a look at these."""
    found = Made()
    found.looked(Living(list(there), []))
    return found


def test_what_is_made_is_told_and_what_was_there_is_not() -> None:
    first = Own(2, 2)
    asked = made(first)
    assert not asked.anything()
    second = copy.deepcopy(first)  # an average of the weights
    assert asked.anything()
    asked.looked(Living([first, second], []))
    assert not asked.anything()
    file = io.BytesIO()
    torch.save(second, file)
    file.seek(0)
    assert not asked.anything()
    third = torch.load(file, weights_only=False)
    assert asked.anything() and isinstance(third, Own)


def test_one_that_takes_the_place_of_one_that_goes_is_told() -> None:
    model = Own(2, 2)
    asked = made(model)
    del model
    assert not asked.anything()
    model = Own(2, 2)
    assert asked.anything()
    asked.looked(Living([model], []))
    for _ in range(3):
        Own(2, 2)(torch.randn(1, 2))  # made and gone: a loss that each step makes
    assert not asked.anything()


def test_a_new_class_is_told() -> None:
    asked = made()

    class Another(torch.nn.Module):
        pass

    assert asked.anything() and Another.__mro__[1] is torch.nn.Module


def test_where_references_are_not_counted_there_may_always_be_something(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(living_module, "_COUNTED", False)
    assert made().anything() and Made().anything()


@pytest.mark.parametrize("new", [False, True])
def test_all_objects_are_looked_through_again_only_where_something_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new: bool
) -> None:
    looks = []

    def counted() -> Living:
        looks.append(len(steps))
        return living()

    monkeypatch.setattr(trained, "living", counted)
    monkeypatch.setattr(trained, "_ALLOWANCE_NS", 1 << 62)
    model, steps, kept = torch.nn.Linear(4, 1), [], []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with attach(model, optimizer, results_dir=tmp_path, quiet=True) as seen:
        for x in DataLoader([torch.randn(4) for _ in range(60)], batch_size=4):
            model(x).mean().backward()
            optimizer.step()
            steps.append(x)
            seen._watch.trained.beside.due_ns = 0  # as if it were time
            if len(steps) == 10 and new:
                kept.append(Own(4, 1))
            seen._watch.state.due_ns = 0  # no step is ended in the short way
    assert looks == ([0, 10] if new else [0])
    assert [type(one) for one in seen._watch.trained.beside.modules] == []  # let go at the end


def test_where_nothing_seems_to_be_made_a_look_takes_a_thousandth_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looks = [0], []

    def counted() -> Living:
        looks.append(now[0])
        return Living([], [])

    monkeypatch.setattr(trained, "living", counted)
    monkeypatch.setattr(trained.time, "perf_counter_ns", lambda: now[0])
    monkeypatch.setattr(Made, "anything", lambda _: False)
    one = trained.Trained([torch.nn.Linear(1, 1)], [], lambda _: None, lambda _: None)  # type: ignore[arg-type,return-value]
    one._see_beside(counted())
    for second in range(1, 1000):
        now[0] = second * 1_000_000_000
        one.look_beside()
    # 50 ms at the least are a thousandth of 50 s.
    assert looks[:3] == [0, 50_000_000_000, 100_000_000_000] and len(looks) == 20
