"""CMP020 and CMP042 in traces: nodes that torch's own profiler shows evaluated in several backward passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp020_repeated_backward import RepeatedBackward
from perf_diagnostics.diagnose.trace.names import ENGINE
from perf_diagnostics.diagnose.trace.nodes import GRADIENT
from perf_diagnostics.diagnose.trace.rules.cmp020_repeated_backward import NodesAgain
from perf_diagnostics.diagnose.trace.rules.cmp042_graph_of_earlier_steps import NodesOfEarlierSteps
from tests.diagnose.answers import clear, found, missing, number
from tests.diagnose.trace.builder import TraceBuilder, ask, repeated
from tests.diagnose.trace.test_nodes_of_torch import X, net, recorded

AGAIN = "backward passes a step through a kept graph"


class Tasks:
    """A body with three heads, and what their losses are."""

    def __init__(self) -> None:
        self.body, self.heads = net(6), nn.ModuleList(nn.Linear(128, 4) for _ in range(3))
        self.optimizer = torch.optim.SGD([*self.body.parameters(), *self.heads.parameters()], lr=0.01)

    def losses(self) -> list[torch.Tensor]:
        out = self.body(X)
        return [head(out).square().mean() for head in self.heads]

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()


def one_by_one() -> Callable[[], None]:
    tasks = Tasks()

    def step() -> None:
        for loss in tasks.losses():
            loss.backward(retain_graph=True)
        tasks.update()

    return step


def test_the_body_is_gone_through_again_for_each_loss_but_the_first(tmp_path: Path) -> None:
    finding = found(ask(NodesAgain(), recorded(one_by_one(), tmp_path, steps=8)))
    assert number(finding, "backward passes a step").value == 3 and number(finding, AGAIN).value == 2
    share = number(finding, "nodes evaluated again")
    assert isinstance(share.value, float) and 10 < share.value < 90
    assert "(loss_a + loss_b).backward()" in finding.remedies[0].says


def sum_of_losses() -> Callable[[], None]:
    tasks = Tasks()

    def step() -> None:
        torch.stack(tasks.losses()).sum().backward()
        tasks.update()

    return step


def nothing_shared() -> Callable[[], None]:
    models = [net(4) for _ in range(3)]
    optimizer = torch.optim.SGD([one for model in models for one in model.parameters()], lr=0.01)

    def step() -> None:
        for loss in [model(X).square().mean() for model in models]:
            loss.backward(retain_graph=True)
        optimizer.step()
        optimizer.zero_grad()

    return step


def accumulated() -> Callable[[], None]:
    model = net(4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        for part in X.chunk(3):
            model(part).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def derived_again() -> Callable[[], None]:
    model = net(4)
    optimizer, given = torch.optim.SGD(model.parameters(), lr=0.01), X.clone().requires_grad_()

    def step() -> None:
        loss = model(given).square().mean()
        (slope,) = torch.autograd.grad(loss, given, create_graph=True)
        (loss + slope.square().sum()).backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


@pytest.mark.parametrize("training", [sum_of_losses, nothing_shared, accumulated, derived_again])
def test_what_goes_through_each_graph_once_is_well(training: Callable[[], Callable[[], None]], tmp_path: Path) -> None:
    answer = clear(ask(NodesAgain(), recorded(training(), tmp_path)))
    assert number(answer, AGAIN).value == 0


def test_gradients_that_are_needed_by_themselves_are_no_sum(tmp_path: Path) -> None:
    """Asked for without writing them, as who weighs the losses by their gradients does; or taken away in between."""
    tasks = Tasks()

    def asked() -> None:
        for loss in tasks.losses():
            torch.autograd.grad(loss, list(tasks.body.parameters()), retain_graph=True)
        tasks.update()

    def asked_twice() -> None:  # of batches that are accumulated, whose own backward adds up
        for _ in range(2):
            asked_of = tasks.losses()
            for loss in asked_of:
                torch.autograd.grad(loss, list(tasks.body.parameters()), retain_graph=True)
            asked_of[0].backward()
        tasks.update()

    def changed() -> None:
        for loss in tasks.losses():
            loss.backward(retain_graph=True)
            torch.nn.utils.clip_grad_norm_(tasks.body.parameters(), 1.0)
        tasks.update()

    def taken() -> None:
        for loss in tasks.losses():
            loss.backward(retain_graph=True)
            for one in tasks.body.parameters():
                one.grad = None
        tasks.update()

    for step in (asked, asked_twice, changed, taken):
        clear(ask(NodesAgain(), recorded(step, tmp_path, steps=8)))


def test_an_update_in_between_makes_them_two_trainings(tmp_path: Path) -> None:
    body, ahead = net(6), nn.Linear(128, 1)
    first, second = torch.optim.SGD(body.parameters(), lr=0.0), torch.optim.SGD(ahead.parameters(), lr=0.01)

    def step() -> None:
        out = ahead(body(X)).square().mean()
        first.zero_grad()
        out.backward(retain_graph=True)
        second.zero_grad()
        out.backward()

    assert number(clear(ask(NodesAgain(), recorded(step, tmp_path))), AGAIN).value == 0


@pytest.mark.parametrize("detached", [False, True])
def test_what_a_discriminator_leaves_in_the_generator_is_mentioned(detached: bool, tmp_path: Path) -> None:
    """Whether the profiler's steps end with the loop's rounds or with the first optimizer's updates."""
    generator, discriminator = net(4), net(2)
    makes = torch.optim.SGD(generator.parameters(), lr=0.01, fused=True)
    judges = torch.optim.SGD(discriminator.parameters(), lr=0.01, fused=True)
    limits = RepeatedBackward(warn_share=1e-9)

    def judged() -> torch.Tensor:
        made: torch.Tensor = generator(X)
        discriminator.zero_grad()
        discriminator(made.detach() if detached else made).square().mean().backward(retain_graph=not detached)
        judges.step()
        return made

    def made_better(made: torch.Tensor) -> None:
        generator.zero_grad()
        discriminator(made).mean().backward()
        makes.step()

    answer = ask(NodesAgain(limits), recorded(lambda: made_better(judged()), tmp_path, steps=5))
    made = [generator(X)]

    def from_update_to_update() -> None:
        made_better(made.pop())
        made.append(judged())

    later = ask(NodesOfEarlierSteps(), recorded(from_update_to_update, tmp_path, steps=8))
    if detached:
        clear(answer)
        clear(later)
        return
    finding = found(answer)
    assert finding.severity is Severity.INFO and "another optimizer's update" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.low == 0
    assert "made.detach()" in finding.remedies[0].says and "made.detach()" in found(later).remedies[0].says


@pytest.mark.parametrize("detached", [False, True])
def test_a_state_that_keeps_its_graph_brings_earlier_steps_along(detached: bool, tmp_path: Path) -> None:
    cell = nn.RNNCell(128, 128)
    optimizer, state = torch.optim.SGD(cell.parameters(), lr=0.0), torch.zeros(64, 128)

    def step() -> None:
        nonlocal state
        for _ in range(10):
            state = cell(X, state)
        state.square().mean().backward(retain_graph=not detached)
        if detached:
            state = state.detach()
        # An update in place would end it with an error: the graph needs the weights as they were.
        optimizer.zero_grad()

    facts = recorded(step, tmp_path, steps=8)
    within = clear(ask(NodesAgain(), facts))
    assert number(within, AGAIN).value == 0
    answer = ask(NodesOfEarlierSteps(), facts)
    if detached:
        assert number(clear(answer), "nodes that an earlier step evaluated").value == 0
    else:
        finding = found(answer)
        share = number(finding, "nodes that an earlier step evaluated")
        assert isinstance(share.value, float) and 10 < share.value < 95
        assert "detach" in finding.remedies[0].says


def test_where_passes_lie_in_one_another_nothing_is_said(tmp_path: Path) -> None:
    model, given = net(2), X.clone().requires_grad_()

    def step() -> None:
        checkpoint(model, given, use_reentrant=True).square().mean().backward()

    missing(ask(NodesAgain(), recorded(step, tmp_path)))


@pytest.mark.parametrize(("again", "severity"), [(50, None), (150, Severity.WARNING), (400, Severity.CRITICAL)])
def test_how_much_is_done_again_decides(again: float, severity: Severity | None, tmp_path: Path) -> None:
    """Steps of 1 ms with two passes through one node, the second of so many µs; then a parameter has its gradient."""
    node = {"Sequence number": 7}

    def one_pass(builder: TraceBuilder, start: float, length: float, *, adds: bool) -> None:
        builder.operator("aten::ones_like", start - 5, start - 4)  # backward() begins
        builder.operator(f"{ENGINE}MmBackward0", start, start + length, **node)
        until = start + length + 10
        builder.operator(f"{ENGINE}{GRADIENT}", until - 10, until)
        builder.operator(GRADIENT, until - 9, until - 1)
        builder.operator("aten::add_" if adds else "aten::detach", until - 8, until - 2)

    def fill(builder: TraceBuilder, start: float) -> None:
        builder.operator("aten::mm", start + 10, start + 100, **node)
        one_pass(builder, start + 200, 100, adds=False)
        one_pass(builder, start + 400, again, adds=True)
        builder.note("Optimizer.step#SGD.step", start + 900, start + 950)

    answer = ask(NodesAgain(), repeated(1000, 5, fill, deviceProperties=[]).facts(tmp_path))
    assert number(answer, "nodes evaluated again").value == pytest.approx(again / 10, rel=0.01)
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity
