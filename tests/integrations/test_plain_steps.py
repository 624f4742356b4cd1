"""Steps that are like the one before are ended in the hook itself: what it costs in calls, and that nothing is lost."""

from __future__ import annotations

import collections
import gc
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader

import perf_diagnostics
from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.record import not_shown
from perf_diagnostics.integrations.steps.step_state import QUICK_NS
from perf_diagnostics.integrations.watching import optimizer_turns, patches
from perf_diagnostics.records import ALL_PHASES

OURS = str(Path(perf_diagnostics.__file__).parent)
#: What a fetch consists of is timed in some of them (:mod:`tests.integrations.test_fetch_parts`).
PARTS_OF_FETCHES = "fetch_parts.py"


def parts(rows: int = 38):
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 1))
    loader = DataLoader([(torch.randn(4), torch.randn(1)) for _ in range(rows)], batch_size=4)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), loader


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, the steps count as too short to read the thread's CPU clock in them."""
    monkeypatch.setattr(not_shown, "LEAST_WAIT_NS", 10**15)
    monkeypatch.setattr(not_shown, "LEAST_STEP_NS", 10**15)


class Calls:
    """Counts the calls of our functions in each step: the loop calls it at its steps' ends."""

    def __init__(self) -> None:
        self._steps: list[collections.Counter[str]] = []

    def __call__(self) -> None:
        self._steps.append(collections.Counter())
        sys.setprofile(self._count)

    def _count(self, frame, event, _argument) -> None:
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(OURS) and not file.endswith(PARTS_OF_FETCHES):
            self._steps[-1][frame.f_code.co_name] += 1

    @property
    def usual(self) -> dict[str, int]:
        """Those of most steps: once in 50 ms the memory and a loss are read, and two steps are ended in full."""
        sys.setprofile(None)
        told = collections.Counter(tuple(sorted(step.items())) for step in self._steps[10:-1])
        return dict(told.most_common(1)[0][0])


def loss_of(model, batch):
    return torch.nn.functional.mse_loss(model(batch[0]), batch[1])


def plain(folder: Path, step_ended: Calls) -> None:
    model, optimizer, loader = parts(400)
    with attach(model, optimizer, loader, results_dir=folder):
        for batch in loader:
            loss_of(model, batch).backward()
            optimizer.step()
            optimizer.zero_grad()
            step_ended()
        sys.setprofile(None)


def without_loader(folder: Path, step_ended: Calls) -> None:
    model, optimizer, _ = parts(400)
    with attach(model, optimizer, results_dir=folder):
        for _ in range(100):
            loss_of(model, (torch.randn(4, 4), torch.randn(4, 1))).backward()
            optimizer.step()
            optimizer.zero_grad()
            step_ended()
        sys.setprofile(None)


def accumulating(folder: Path, step_ended: Calls) -> None:
    model, optimizer, loader = parts(1200)
    with attach(model, optimizer, loader, results_dir=folder):
        for number, batch in enumerate(loader):
            loss_of(model, batch).backward()
            if number % 3 == 2:
                optimizer.step()
                optimizer.zero_grad()
                step_ended()
        sys.setprofile(None)


def taking_turns(folder: Path, step_ended: Calls) -> None:
    judge, of_judge, loader = parts(400)
    forger = torch.nn.Linear(4, 4)
    of_forger = torch.optim.SGD(forger.parameters(), lr=0.01)
    with attach([judge, forger], [of_judge, of_forger], loader, results_dir=folder):
        for x, _ in loader:
            with torch.no_grad():
                fake = forger(x)
            (judge(x).mean() - judge(fake).mean()).backward()
            of_judge.step()
            judge(forger(x)).mean().backward()
            of_forger.step()
            step_ended()
        sys.setprofile(None)


def evaluating(folder: Path, step_ended: Calls) -> None:
    model, optimizer, loader = parts(400)
    held_out = DataLoader([torch.randn(4) for _ in range(40)], batch_size=4)
    with attach(model, optimizer, results_dir=folder):
        for batch in loader:
            loss_of(model, batch).backward()
            optimizer.step()
            model.eval()
            with torch.no_grad():
                for x in held_out:
                    model(x)
            model.train()
            step_ended()
        sys.setprofile(None)


def stepping_in_backward(folder: Path, step_ended: Calls) -> None:
    model, _, loader = parts(400)
    optimizers = {p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()}
    for parameter in optimizers:
        parameter.register_post_accumulate_grad_hook(lambda p: optimizers[p].step())
    with attach(model, list(optimizers.values()), loader, results_dir=folder):
        for batch in loader:
            loss_of(model, batch).backward()
            step_ended()
        sys.setprofile(None)


#: A fetch and a call of the model are one call of ours each, and so are a backward and clearing gradients; an
#: optimizer's step is two. What does not come next in a plain step takes one more.
ONCE = {"timed": 1, "backward": 1, "begins": 1, "ends": 1}
ALWAYS = {"__next__": 1, **ONCE}
LEADS_ON = {"may_give_gradients": 1, "_may_give_gradients": 1}
PASS = {
    "__init__": 1,
    "__iter__": 1,
    "_timed_pass": 1,
    "watches": 1,
    "pass_begins": 1,
    "knows": 1,
    "trains_now": 1,
    "pass_began": 1,
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("loop", "calls"),
    [
        (plain, {**ALWAYS, "zero_grad": 1}),
        # The rows that the model is given are looked at in the call of ours: are they those of the last step?
        (without_loader, {**ONCE, "is_like_last": 1, "zero_grad": 1}),
        (accumulating, {**ALWAYS, "__next__": 3, "timed": 3, "backward": 3, "zero_grad": 1}),
        # Five calls of models, one of them without gradients; whose turn it is is asked twice. Between two of them
        # nothing is computed: does what the second one is called with lead on from the first one?
        (
            taking_turns,
            {**ALWAYS, **LEADS_ON, "timed": 5, "backward": 2, "begins": 2, "ends": 2, "stepped": 2}
            | {"begins_otherwise": 5, "ends_otherwise": 2, "ended_plainly": 1},
        ),
        # Ten batches more, and the end of the pass over them: 11 fetches and 10 calls; a pass begins.
        (
            evaluating,
            {**ALWAYS, **PASS, "__next__": 12, "timed": 11, "enter": 1, "leave": 1}
            | {"begins_otherwise": 23, "ends_otherwise": 1, "ended_plainly": 1}
            | {"makes_its_own": 1},  # once a pass
        ),
        # Four parameters.
        (
            stepping_in_backward,
            {**ALWAYS, "begins": 4, "ends": 4, "ends_otherwise": 1}
            | {"backward_stepped": 1, "_ends_plainly": 1, "ended_plainly": 1},
        ),
    ],
)
def test_a_step_is_measured_in_these_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: Callable[[Path, Calls], None], calls: dict[str, int]
) -> None:
    for module in (patches, optimizer_turns):
        monkeypatch.setattr(module, "QUICK_NS", 10**15)  # counting calls makes them slow
    seen = Calls()
    loop(tmp_path, seen)
    assert seen.usual == calls


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("quick_ns", [QUICK_NS, -1], ids=["plain", "each told in full"])
def test_what_differs_is_told_of_the_step_in_which_it_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quick_ns: int
) -> None:
    monkeypatch.setattr(patches, "QUICK_NS", quick_ns)
    torch._dynamo.reset()
    model, optimizer, loader = parts()
    plain = losses = 0
    seen_steps = []
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for epoch in range(4):
            for number, (x, y) in enumerate(loader):
                if (epoch, number) == (1, 5):
                    torch.compile(lambda x: x + 1, backend="eager", fullgraph=True)(x)
                if (epoch, number) == (2, 5):
                    gc.collect()
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                plain += seen._watch.state.plain_steps > 0
                seen_steps.append(seen.steps)
                losses += 1
    assert (plain > 0) == (quick_ns > 0)
    assert seen_steps == list(range(1, 41))
    table = seen.run.results[0].steps[0]
    assert table.samples.tolist() == ([4] * 9 + [2]) * 4
    assert table.columns["epoch"].tolist() == [epoch for epoch in range(4) for _ in range(10)]
    assert table.columns["graphs"].tolist() == [0] * 15 + [1] * 25
    assert table.columns["gc_ns"][25] > 0
    spent = sum(table.host_ns(phase) for phase in ALL_PHASES if table.host_ns(phase) is not None)
    assert (spent == table.wall_ns).all()
    # Blocks are ended, and models looked for, between steps; nothing else lies between them.
    begins, block = table.columns["start_ns"], table.columns["block"]
    assert (begins[:-1] + table.wall_ns[:-1] == begins[1:])[block[:-1] == block[1:]].all()


def test_an_optimizer_whose_step_calls_a_hooked_one_may_fail_and_be_tried_again(tmp_path: Path) -> None:
    model, plain, loader = parts()
    plain.step()  # from here on the step of SGD itself calls hooks, too

    class Fails(torch.optim.SGD):
        calls = 0

        def step(self, closure=None):
            self.calls += 1
            if self.calls in (5, 6, 9):
                raise RuntimeError("this time")
            return super().step(closure)

    optimizer = Fails(model.parameters(), lr=0.01)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for x, y in loader:
            torch.nn.functional.mse_loss(model(x), y).backward()
            for _ in range(3):
                try:
                    optimizer.step()
                    break
                except RuntimeError:
                    assert seen._watch.steps.stepping  # torch says nothing of it
    assert optimizer.calls == 13  # ten steps, of which two are tried again, one of them twice
    assert seen.run.results[0].steps[0].samples.tolist() == [4] * 9 + [2]


@pytest.mark.filterwarnings("ignore")  # of torch's compiler, about torch
def test_a_step_that_is_compiled_as_a_whole_has_no_graphs_of_ours(tmp_path: Path) -> None:
    pytest.importorskip("torch._C._dynamo.eval_frame")
    if not hasattr(torch._C._dynamo.eval_frame, "set_code_exec_strategy"):
        pytest.skip("this torch cannot leave single functions untraced")
    counters = torch._dynamo.utils.counters
    made, broken = [], []
    for watched in (False, True):
        torch._dynamo.reset()
        counters.clear()
        model, optimizer, loader = parts()

        def step(x, y, model=model, optimizer=optimizer) -> None:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()

        compiled = torch.compile(step, backend="eager", dynamic=False)
        if watched:
            with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
                for x, y in loader:
                    compiled(x, y)
        else:
            for x, y in loader:
                compiled(x, y)
        made.append(counters["stats"]["unique_graphs"])
        broken.append(sum(counters["graph_break"].values()))
    (result,) = seen.run.results
    # No call of the model is seen, so it is looked for among its parts; the steps in which that is done are told.
    assert len(result.steps[0]) == 8 and result.gap("unseen_steps").why.startswith("2 steps are")
    # torch breaks the graph at the backward and around the optimizer's step anyway, there perhaps one line earlier.
    assert made[1] <= made[0] + 1 and broken[1] <= broken[0]


@pytest.mark.usefixtures("quick")
def test_without_a_loader_a_step_with_other_rows_is_told_with_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patches, "QUICK_NS", 10**15)
    model, optimizer, _ = parts()
    rows = [4] * 12 + [8] + [4] * 6 + [2, 2] + [4] * 12
    plain = 0
    with attach(model, optimizer, results_dir=tmp_path) as seen:
        for number, many in enumerate(rows):
            if number == 16:
                model.eval()
                with torch.no_grad():
                    model(torch.randn(16, 4))
                model.train()
            if number == 24:
                model(torch.randn(3, 4))  # called twice
            loss_of(model, (torch.randn(many, 4), torch.randn(many, 1))).backward()
            optimizer.step()
            plain += seen._watch is not None and seen._watch.state.plain_steps > 0
    table = seen.run.results[0].steps[0]
    rows[24] += 3
    warmup = table.columns["warmup"]
    assert plain > 3
    assert table.samples[~warmup].tolist() == [many for many, cold in zip(rows, warmup, strict=True) if not cold]
    assert table.columns["forwards"].tolist() == [2 if number == 24 else 1 for number in range(len(rows))]


@pytest.mark.usefixtures("quick")
def test_what_comes_in_another_order_is_told_as_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Among plain steps: a batch is skipped, a call fails, the model is asked twice, backward runs twice."""
    monkeypatch.setattr(patches, "QUICK_NS", 10**15)
    model, optimizer, loader = parts(120)
    with attach(model, optimizer, loader, results_dir=tmp_path) as seen:
        for number, batch in enumerate(loader):
            if number == 8:
                continue
            if number == 12:
                with pytest.raises(RuntimeError):
                    model(torch.randn(4, 5))
            if number == 16:
                (loss_of(model, batch) + loss_of(model, batch)).backward()
            elif number == 20:
                loss = loss_of(model, batch)
                loss.backward(retain_graph=True)
                loss.backward()
            else:
                loss_of(model, batch).backward()
            optimizer.step()
    columns = seen.run.results[0].steps[0].columns
    steps = [number for number in range(30) if number != 8]
    assert columns["samples"].tolist() == [8 if number == 9 else 4 for number in steps]
    assert columns["forwards"].tolist() == [2 if number in {12, 16} else 1 for number in steps]
    assert columns["backwards"].tolist() == [2 if number == 20 else 1 for number in steps]
    assert columns["backwards_keeping"].tolist() == [number == 20 for number in steps]
