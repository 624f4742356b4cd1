"""Two trainings in two threads of one process, each under an ``attach`` of its own; and one inside the other."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path

import pytest
import torch
from torch.optim import optimizer as torch_optimizer
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.attached import Attached
from perf_diagnostics.integrations.steps.step_state import StepState, unseen
from perf_diagnostics.integrations.watching import every_step
from perf_diagnostics.integrations.watching.every_step import see_steps
from perf_diagnostics.integrations.watching.patches import replace

#: Longer than any of this takes.
LONG_S = 60


def parts(batch_size: int = 4, batches: int = 8):
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader([torch.randn(4) for _ in range(batch_size * batches)], batch_size=batch_size)
    return model, optimizer, loader


def train(model, optimizer, loader) -> int:
    for batch in loader:
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
    return len(loader)


def in_thread(target) -> threading.Thread:
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread


def recorded(seen: Attached) -> tuple[int, set[int]]:
    table = seen.run.results[0].steps[0]
    return len(table), set(table.columns["samples"].tolist())


def unseen_steps(seen: Attached) -> int:
    """Steps that the record says are not in it."""
    gap = seen.run.results[0].gap("unseen_steps")
    return 0 if gap is None else int(gap.why.split()[0])


@pytest.mark.parametrize("named", [True, False])
def test_each_attach_has_all_steps_of_its_own_thread_also_while_another_one_ends(tmp_path: Path, named: bool) -> None:
    both, made, seen, failed = threading.Barrier(2), [0, 0], {}, []

    def one(number: int, until_ended: threading.Thread | None) -> None:
        try:
            all_parts = parts(batch_size=4 + number)
            with attach(
                *(all_parts if named else all_parts[:1]), results_dir=tmp_path, name=f"run-{number}", quiet=True
            ) as seen[number]:
                both.wait(LONG_S)
                made[number] += train(*all_parts)
                # What is measured at the end of one is not to be missing in the other, which goes on meanwhile.
                while until_ended is not None and until_ended.is_alive():
                    made[number] += train(*all_parts)
        except BaseException as error:
            failed.append(error)
            raise

    first = in_thread(lambda: one(0, None))
    one(1, first)
    first.join(LONG_S)
    assert not failed and made[0] == 8 and made[1] >= 8
    for number in (0, 1):
        steps, samples = recorded(seen[number])
        assert samples == {4 + number}
        assert steps + unseen_steps(seen[number]) == made[number]


def test_what_a_thread_keeps_unseen_is_its_own() -> None:
    here, done = StepState(lambda _mark: None, lambda: 0), []

    def elsewhere() -> None:
        theirs = StepState(lambda _mark: None, lambda: 0)
        with unseen():
            done.append((here.active, theirs.active))
        done.append((here.active, theirs.active))

    in_thread(elsewhere).join(LONG_S)
    assert done == [(True, False), (True, True)]
    with unseen():
        assert not here.active
    assert here.active


def test_what_stands_in_for_something_is_gone_in_the_end_in_whatever_order_it_goes() -> None:
    class Owner:
        name = "its own"

    class Inherits(Owner):
        pass

    for owner in (Owner, Inherits):
        before = dict(vars(owner))
        first, second, third = ExitStack(), ExitStack(), ExitStack()
        for new, patches in (("first", first), ("second", second), ("third", third)):
            replace(owner, "name", new, patches)
        second.close()
        first.close()
        assert owner.name == "third"
        third.close()
        assert owner.name == "its own" and dict(vars(owner)) == before


def test_an_optimizers_step_does_not_raise_where_a_watch_of_all_steps_begins_and_ends_inside_it() -> None:
    _, optimizer, _ = parts()
    told: list[str] = []
    with ExitStack() as around:

        def begins(*_: object) -> None:
            told.append("begins")
            with ExitStack() as patches:
                see_steps(lambda *_: told.append("another"), lambda *_: None, patches)

        see_steps(begins, lambda *_: told.append("ends"), around)
        optimizer.step()
        optimizer.step()
    optimizer.step()
    assert told == ["begins", "ends"] * 2
    assert not torch_optimizer._global_optimizer_pre_hooks and not torch_optimizer._global_optimizer_post_hooks


def test_arguments_that_one_of_several_watches_changes_are_those_of_the_step() -> None:
    _, optimizer, _ = parts()
    given, changed = [], []
    with ExitStack() as patches:
        see_steps(lambda _, args, kwargs: (args, {**kwargs, "closure": lambda: 3.0}), nothing, patches)
        see_steps(lambda _, args, kwargs: given.append(kwargs["closure"]()), nothing, patches)
        changed.append(optimizer.step())
    assert given == changed == [3.0]


def nothing(*_: object) -> None:
    """Nothing is to be done."""


def test_an_optimizers_step_does_not_raise_where_the_last_watch_ends_in_another_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(every_step, "_LOOK_S", 1e-4)
    _, optimizer, _ = parts()
    inside, goes_on, failed = threading.Event(), threading.Event(), []
    patches = ExitStack()

    def begins(*_: object) -> None:
        inside.set()
        goes_on.wait(LONG_S)

    def step() -> None:
        try:
            optimizer.step()
        except RuntimeError as error:
            failed.append(error)

    see_steps(begins, nothing, patches)
    stepping = in_thread(step)
    assert inside.wait(LONG_S)
    patches.close()  # the other thread is between two hooks, and gets no further
    goes_on.set()
    stepping.join(LONG_S)
    assert not failed
    with ExitStack() as later:
        see_steps(begins, nothing, later)
    hooks = import_module("torch.optim.optimizer")
    assert not hooks._global_optimizer_pre_hooks and not hooks._global_optimizer_post_hooks


def test_a_watch_inside_another_has_the_steps_of_its_own_optimizer(tmp_path: Path) -> None:
    one, other = parts(batch_size=4), parts(batch_size=2)
    with (
        attach(*one, results_dir=tmp_path, name="one", quiet=True) as outer,
        attach(*other, results_dir=tmp_path, name="other", quiet=True) as inner,
    ):
        for mine, theirs in zip(one[2], other[2], strict=True):
            for (model, optimizer, _), batch in ((one, mine), (other, theirs)):
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.step()
    assert recorded(outer) == (8, {4}) and recorded(inner) == (8, {2})
