"""The first steps of a loop whose optimizers are not known: where they ended is known later, and is right."""

from __future__ import annotations

import contextlib
import gc
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics.integrations import attach
from perf_diagnostics.integrations.model.trained import Trained
from perf_diagnostics.integrations.run_script import Session
from perf_diagnostics.integrations.steps.cycle import LEAST_PATIENCE, Cycle
from perf_diagnostics.integrations.steps.first_turns import FirstTurns, Turn
from perf_diagnostics.integrations.steps.hindsight import HindsightProbe, OpenBorder
from perf_diagnostics.integrations.steps.loop_probe import BACKWARD, FORWARD, OPTIMIZER
from perf_diagnostics.records import ALL_PHASES, Outcome, StepTable
from tests.measure.simulated_device import HostClock

MS = 1_000_000
NOWHERE = OpenBorder(mark=0, epoch=0, graphs=0, cpu_ns=0, wait_cpu_ns=0, gc_ns=0)


def ends(order: str, *, named: str = "", alive: str = "", to_the_end: bool = True) -> str:
    """The turns with a bar behind each that ended a step; a dot in the order is a batch."""
    cycle = Cycle(map(ord, named))
    stepped: set[str] = set()
    first = FirstTurns(cycle, named=bool(named), expects_more=lambda: bool(set(alive) - stepped))
    ended: set[int] = set()
    place: list[int] = []  # of each turn that is still kept
    batches, begun = 0, 0
    for at, one in enumerate(order):
        if one == ".":
            batches += 1
            continue
        if cycle.decided:
            done = cycle.stepped(ord(one), range(batches - begun))
        else:
            place.append(at)
            stepped.add(one)
            settled = first.took(Turn(ord(one), OpenBorder(**{**vars(NOWHERE), "mark": at}), batches))
            ended |= {turn.border.mark for turn in settled.ended}
            done = settled.ends
        if done:
            ended.add(at)
        if done or ended:
            begun = batches
    if to_the_end and first:
        ended |= {turn.border.mark for turn in first.settle().ended}
    return "".join(one + ("|" if at in ended else "") for at, one in enumerate(order)).replace(".", "")


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        (".a.a.a", "a|a|a|"),
        ("aaa", "a|a|a|"),
        (".ab.ab.ab", "ab|ab|ab|"),  # a GAN
        ("ababab", "ab|ab|ab|"),  # without a loader
        (".abc.abc", "abc|abc|"),
        (".a.b.a.b.a.b", "ab|ab|ab|"),  # each with a batch of its own
        (".a.b.b.b", "a|b|b|b|"),
        (".abb.abb", "abb|ab|b"),
        (".a.a.a.b.b.b", "a|a|a|b|b|b|"),  # one stage after the other
        (".ab.ab.c.c.c", "ab|ab|c|c|c|"),
        (".a", "a|"),
        (".ab", "ab|"),
        (".a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p.q.r.s", "a|b|c|d|e|f|g|h|i|j|k|l|m|n|o|p|q|r|s|"),  # a new one each time
        ("." + "abcdefghijklmnopqrst" * 2, "abcdefghijklmnopqrst|abcdefghijklmnopqrst|"),  # all on one batch
        (".abcdefghijklmnopqrst" * 2, "abcdefghijklmnopqrst|abcdefghijklmnopqrst|"),
    ],
)
def test_where_nobody_named_the_optimizers(order: str, steps: str) -> None:
    assert ends(order) == steps


@pytest.mark.parametrize(
    ("named", "order", "steps"),
    [
        ("a", ".a.a", "a|a|"),
        ("ab", ".a.b.a.b", "ab|ab|"),
        ("ag", ".a.a.a.a.ag.a.ag", "aaaaag|aag|"),
        ("ab", "a" * (LEAST_PATIENCE + 3), "a|" * (LEAST_PATIENCE + 3)),  # the other one belongs to a later stage
        ("abx", "ab" * (LEAST_PATIENCE + 1), "ab|" * (LEAST_PATIENCE + 1)),
        ("abx", "abab", "ab|ab|"),  # the training ends before that is known
    ],
)
def test_where_they_were_named(named: str, order: str, steps: str) -> None:
    assert ends(order, named=named) == steps


@pytest.mark.parametrize(
    ("alive", "order", "steps"),
    [
        ("cg", ".c.c.c.cg.c.c.c.cg", "ccccg|ccccg|"),  # a critic with batches of its own
        ("cg", ".c.c.c.c.g.c.c.c.c.g", "ccccg|ccccg|"),  # the generator has one, too
        ("cg", "cccgcccg", "cccg|cccg|"),  # without a loader
        ("ab", ".a.a.a.b.b.b", "a|a|a|b|b|b|"),  # one stage after the other, both made before the first
        ("ax", ".a.a.a", "a|a|a|"),  # the other one never steps, and the training is short
        ("ax", ".a" * (LEAST_PATIENCE + 3), "a|" * (LEAST_PATIENCE + 3)),
        ("a", ".a.a.a", "a|a|a|"),
        ("abc", ".aab.aab", "aab|aab|"),  # twice on the same batch
    ],
)
def test_where_others_live_that_have_not_stepped_yet(alive: str, order: str, steps: str) -> None:
    assert ends(order, alive=alive) == steps


def test_nobody_is_waited_for_where_no_other_optimizer_lives() -> None:
    assert ends(".a.a.a", alive="a", to_the_end=False) == "a|a|a|"
    assert ends(".a.a.a", alive="ab", to_the_end=False) == "aaa"


def test_steps_that_end_in_hindsight_hold_what_lay_before_their_border() -> None:
    host = HostClock()
    cpu = [0]
    probe = HindsightProbe(bridged=True, clock=host, thread_cpu=lambda: cpu[0])
    borders = []
    for forward, optimizer, after in ((10, 4, 1), (20, 5, 2)):
        for phase, milliseconds in ((FORWARD, forward), (BACKWARD, 1), (OPTIMIZER, optimizer)):
            probe.enter(phase)
            host.spend(milliseconds)
            probe.leave()
        cpu[0] += 7 * MS
        borders.append(probe.open_border())
        host.spend(after)
        probe.epoch += 1
    host.spend(100)
    probe.leave_out(100 * MS, 0)  # a search that belongs to nobody
    probe.end_steps_at([(borders[0], (4, None, None)), (borders[1], (2, None, None))])
    probe.end_step(samples=3)
    probe.end_block()
    table = probe.take()
    # 10 + 1 + 4; then 1 + 20 + 1 + 5; then 2.
    assert (table.wall_ns / MS).tolist() == [15, 27, 2]
    spent = {str(phase): (table.host_ns(phase) / MS).tolist() for phase in ALL_PHASES}
    assert spent["forward"] == [10, 20, 0] and spent["optimizer"] == [4, 5, 0] and spent["other"] == [0, 1, 2]
    assert table.samples.tolist() == [4, 2, 3]
    assert table.columns["epoch"].tolist() == [0, 1, 2]
    assert (table.columns["thread_cpu_ns"] / MS).tolist() == [7, 7, 0]


@contextlib.contextmanager
def run_here(folder: Path) -> Iterator[Session]:
    """What ``perf-diagnostics run`` puts around a script."""
    # In a script's own process there are no models and optimizers of earlier tests.
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()
    gc.collect()
    session = Session(workload="script", name=None, results_dir=folder)
    session.begin()
    try:
        yield session
    finally:
        session.end((Outcome.COMPLETED, "", "script_ended"))


def table_of(session: Session) -> StepTable:
    assert session.watch is not None
    run = session.watch.recording.run
    assert run is not None
    return run.results[0].steps[0]


def nets(number: int) -> list[tuple[torch.nn.Module, torch.optim.Optimizer]]:
    made = [torch.nn.Linear(4, 4) for _ in range(number)]
    return [(net, torch.optim.SGD(net.parameters(), lr=1e-3)) for net in made]


def trains(net: torch.nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor) -> None:
    optimizer.zero_grad()
    net(x).sum().backward()
    optimizer.step()


def test_what_a_script_does_before_its_first_step_is_its_set_up(tmp_path: Path) -> None:
    loader = DataLoader([torch.randn(4) for _ in range(40)], batch_size=4)
    ((net, optimizer),) = nets(1)
    began = time.perf_counter()
    with run_here(tmp_path) as session:
        time.sleep(0.3)
        first = time.perf_counter()
        for x in loader:
            trains(net, optimizer, x)
    assert session.watch is not None and session.watch.recording.run is not None
    (result,) = session.watch.recording.run.results
    setup_s = result.value("setup_s")
    assert setup_s is not None and 0.3 <= setup_s <= first - began + 0.1
    with attach(net, optimizer, loader, results_dir=tmp_path, quiet=True) as attached:
        for x in loader:
            trains(net, optimizer, x)
    assert attached.run is not None
    assert attached.run.results[0].value("setup_s") is None  # when the script began is not known there


def test_a_gan_is_right_from_its_first_step(tmp_path: Path) -> None:
    loader = DataLoader([torch.randn(4) for _ in range(40)], batch_size=4)
    both = nets(2)
    with run_here(tmp_path) as session:
        for x in loader:
            for net, optimizer in both:
                trains(net, optimizer, x)
    table = table_of(session)
    assert table.samples.tolist() == [4] * 10
    assert table.columns["epoch"].tolist() == [0] * 10
    assert (table.columns["host_backward_ns"] > 0).all() and (table.columns["host_optimizer_ns"] > 0).all()
    spent = sum(table.host_ns(phase) for phase in ALL_PHASES if table.host_ns(phase) is not None)
    assert (spent == table.wall_ns).all()


def a_batch() -> DataLoader:
    return DataLoader([torch.randn(4) for _ in range(100)], batch_size=4)


def forwards_of(table: StepTable) -> list[bool]:
    return (table.columns["host_forward_ns"] > 0).tolist()


def test_a_critic_with_batches_of_its_own_is_right_from_its_first_cycle(tmp_path: Path) -> None:
    (critic, of_critic), (generator, of_generator) = nets(2)
    with run_here(tmp_path) as session:
        batches = iter(a_batch())
        for _ in range(5):
            for _ in range(5):
                trains(critic, of_critic, next(batches))
            trains(generator, of_generator, torch.randn(4, 4))
    table = table_of(session)
    assert table.samples.tolist() == [20] * 5  # five batches of 4 for each step of the generator
    assert forwards_of(table) == [True] * 5
    # Calls of six models and as many backwards in each step: the first one holds no less than the others.
    spent = sum(table.host_ns(phase) for phase in ALL_PHASES if table.host_ns(phase) is not None)
    assert (spent == table.wall_ns).all()


def test_the_first_step_has_its_forward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trained, "expects_more", False)  # optimizers of other tests may still be there
    ((net, optimizer),) = nets(1)
    with run_here(tmp_path) as session:
        for x in a_batch():
            trains(net, optimizer, x)
    table = table_of(session)
    assert forwards_of(table) == [True] * 25 and table.samples.tolist() == [4] * 25
    result = session.watch.recording.result
    assert result.gap("unseen_steps") is None
    # The loss of the second step is kept (of the first one's it is not known that it is the step's only one).
    assert not np.isnan(table.columns["loss"][1]) and result.gap("loss") is None


def test_a_first_step_whose_forward_was_not_seen_is_not_recorded_but_told(tmp_path: Path) -> None:
    ((net, optimizer),) = nets(1)
    with run_here(tmp_path) as session:
        for _ in range(25):
            trains(net, optimizer, torch.randn(4, 4))  # no loader: nothing tells of the model before it is trained
    result = session.watch.recording.result
    assert forwards_of(result.steps[0]) == [True] * 24
    assert result.gap("unseen_steps").why.startswith("1 step is not in the record")
    assert result.value("first_step_s") > 0


def test_of_a_gan_without_a_loader_the_first_round_is_not_recorded(tmp_path: Path) -> None:
    both = nets(2)
    with run_here(tmp_path) as session:
        for _ in range(10):
            for net, optimizer in both:
                trains(net, optimizer, torch.randn(4, 4))
    table = table_of(session)
    assert forwards_of(table) == [True] * 9
    assert "1 step is" in session.watch.recording.result.gap("unseen_steps").why


@pytest.mark.parametrize("critics", [1, 5])
def test_without_a_loader_a_gans_batch_is_that_of_one_call(tmp_path: Path, critics: int) -> None:
    """Not all rows of the turns before it was known who takes them."""
    (critic, of_critic), (generator, of_generator) = nets(2)
    with run_here(tmp_path) as session:
        for _ in range(6):
            for _ in range(critics):
                of_critic.zero_grad()
                fake = generator(torch.randn(4, 4)).detach()
                (critic(fake) - critic(torch.randn(4, 4)) + critic(torch.randn(4, 4))).sum().backward()
                of_critic.step()
            of_generator.zero_grad()
            critic(generator(torch.randn(4, 4))).sum().backward()
            of_generator.step()
    result = session.watch.recording.run.results[0]
    assert result.trial.settings.batch_size == 4
    assert set(result.steps[0].samples.tolist()) == {4}


def test_data_read_before_the_training_is_no_part_of_its_first_step(tmp_path: Path) -> None:
    for made_before in (False, True):
        loader = a_batch()
        ((net, optimizer),) = nets(1) if made_before else [(None, None)]
        with run_here(tmp_path) as session:
            mean = sum(x.mean() for x in loader)
            if not made_before:
                ((net, optimizer),) = nets(1)
            for x in a_batch():
                trains(net, optimizer, x - mean)
        table = table_of(session)
        assert table.samples.tolist() == [4] * 25
        assert forwards_of(table) == [True] * len(table)


def test_folds_one_after_the_other_have_steps_of_their_own(tmp_path: Path) -> None:
    kept = nets(3)  # all made before: nothing but the batches tells that they do not take turns
    with run_here(tmp_path) as session:
        for net, optimizer in kept:
            for x in DataLoader([torch.randn(4) for _ in range(24)], batch_size=4):
                trains(net, optimizer, x)
    table = table_of(session)
    assert table.samples.tolist() == [4] * 18
    assert table.columns["epoch"].tolist() == [0] * 6 + [1] * 6 + [2] * 6


def test_a_named_optimizer_that_never_steps_takes_no_steps_away(tmp_path: Path) -> None:
    (net, optimizer), (other, idle) = nets(2)
    loader = DataLoader([torch.randn(4) for _ in range(4 * 30)], batch_size=4)
    with attach([net, other], [optimizer, idle], loader, results_dir=tmp_path) as seen:
        for x in loader:
            trains(net, optimizer, x)
    table = seen.run.results[0].steps[0]
    assert table.samples.tolist() == [4] * 30
    assert (table.columns["host_forward_ns"] > 0).all()


def test_the_only_step_of_a_script_is_told_as_the_one_in_which_it_was_found_out(tmp_path: Path) -> None:
    net, optimizer = nets(1)[0]
    with run_here(tmp_path) as session:
        net(torch.randn(2, 4)).mean().backward()
        optimizer.step()
    assert session.watch is not None
    (gap,) = (gap for gap in session.watch.observations.gaps if gap.signal == "steps")
    assert gap.why.startswith("1 step was seen, in which it was found what is trained")
