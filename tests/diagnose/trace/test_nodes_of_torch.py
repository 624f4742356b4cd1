"""What torch's own profiler writes of autograd's nodes, and what is made of it: small trainings recorded here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.checkpoint import checkpoint

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.not_measured import NotMeasured
from perf_diagnostics.diagnose.trace.facts import TraceFacts
from perf_diagnostics.diagnose.trace.leaves import Leaves
from perf_diagnostics.diagnose.trace.loops import Loop
from perf_diagnostics.diagnose.trace.operators import Operators
from perf_diagnostics.diagnose.trace.phases import Phases
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.diagnose.trace.rules.cmp017_unused_gradients import GradientsNotUpdated
from perf_diagnostics.diagnose.trace.rules.hst006_time_outside_phases import OperatorsOutsidePhases
from perf_diagnostics.diagnose.trace.rules.hst011_many_small_calls import ManySmallCalls
from perf_diagnostics.diagnose.trace.rules.opt005_recomputation import ForwardAgain
from tests.diagnose.trace.builder import ask

X = torch.randn(64, 128)


def net(depth: int = 2) -> nn.Sequential:
    return nn.Sequential(*[part for _ in range(depth) for part in (nn.Linear(128, 128), nn.Tanh())])


def recorded(
    step: Callable[[], None], folder: Path, *, shapes: bool = True, stack: bool = False, steps: int = 3
) -> TraceFacts:
    """So many steps, after one that is not recorded."""
    path = folder / "trace.json"
    with profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=shapes,
        with_stack=stack,
        schedule=schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=lambda recorder: recorder.export_chrome_trace(str(path)),
    ) as recorder:
        for _ in range(1 + steps):
            step()
            recorder.step()
    return TraceFacts.of(read_trace(path))


def training(model: nn.Module, optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    def step() -> None:
        model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_forward_backward_and_update_follow_each_other(tmp_path: Path) -> None:
    model = net()
    facts = recorded(training(model, torch.optim.AdamW(model.parameters())), tmp_path)
    phases = Phases.of(facts)
    assert len(phases.forward) == len(phases.backward) == len(facts.steps)
    assert (phases.forward.end == phases.backward.start).all()
    # step() and zero_grad()
    assert len(phases.optimizer) == 2 * len(facts.steps)
    assert (phases.backward.end < phases.optimizer.start[::2]).all()
    assert not len(facts.require_nodes().again)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_are_seen_a_second_time(reentrant: bool, tmp_path: Path) -> None:
    model, given = net(4), X.clone().requires_grad_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step() -> None:
        out = given
        for part in model:
            out = checkpoint(part, out, use_reentrant=reentrant)
        out.square().mean().backward()
        optimizer.step()

    facts = recorded(step, tmp_path)
    nodes = facts.require_nodes()
    # Each layer's forward once more: eight of them in each of three passes.
    again = nodes.again
    assert 3 * 8 <= len(again) <= 3 * 16
    assert all(nodes.passes.containing(again.start) >= 0)
    finding = ask(ForwardAgain(info_share=0.001), facts)
    assert isinstance(finding, Finding) and finding.severity is Severity.INFO
    assert finding.recoverable is not None and finding.recoverable.low == 0.0
    if reentrant:  # what is detached there is a leaf, and no parameter
        assert isinstance(ask(GradientsNotUpdated(), facts), NotMeasured)


def test_a_gradient_that_is_derived_again_is_no_second_forward(tmp_path: Path) -> None:
    model, given = net(), X.clone().requires_grad_()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss = model(given).mean()
        (slope,) = torch.autograd.grad(loss, given, create_graph=True)
        (loss + slope.square().sum()).backward()
        optimizer.step()

    facts = recorded(step, tmp_path)
    assert not len(facts.require_nodes().again)
    assert isinstance(ask(GradientsNotUpdated(), facts), Cleared)  # but for the input's own, which is one


def test_the_forward_of_a_later_pass_may_lie_before_an_earlier_one(tmp_path: Path) -> None:
    maker, critic = net(6), net(1)
    makers, critics = torch.optim.Adam(maker.parameters()), torch.optim.Adam(critic.parameters())

    def step() -> None:
        made = maker(X)
        critics.zero_grad()
        critic(made.detach()).mean().backward()
        critics.step()
        makers.zero_grad()
        critic(made).mean().backward()
        makers.step()

    facts = recorded(step, tmp_path)
    phases = Phases.of(facts)
    linear = facts.trace.of(0).where(facts.trace.named(lambda name: name == "aten::linear")[facts.trace.of(0).name])
    assert len(linear) == 3 * (6 + 1 + 1)
    assert (phases.forward.containing(linear.start_ns) >= 0).all()
    # The critic's gradients of the second pass are dropped, and yet no more are written than two updates take.
    assert isinstance(ask(GradientsNotUpdated(), facts), Cleared)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-4}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "foreach": True}),
        (torch.optim.SGD, {"lr": 0.1, "foreach": True}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "fused": True}),
        (torch.optim.Adam, {}),
        (torch.optim.AdamW, {"foreach": True}),
        (torch.optim.AdamW, {"fused": True, "amsgrad": True}),
        (torch.optim.Adagrad, {}),
        (torch.optim.RMSprop, {"momentum": 0.9}),
    ],
)
def test_what_no_optimizer_updates_is_counted(
    kind: type[torch.optim.Optimizer], given: dict[str, object], tmp_path: Path
) -> None:
    student, teacher = net(), net(3)
    optimizer = kind(student.parameters(), **given)

    def step() -> None:
        optimizer.zero_grad()
        (student(X) - teacher(X)).square().mean().backward()
        optimizer.step()

    finding = ask(GradientsNotUpdated(), recorded(step, tmp_path))
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert [one.value for one in finding.evidence[1:]] == [10, 4, 6]
    assert finding.recoverable is not None and finding.recoverable.low == 0.0 < finding.recoverable.high

    teacher.requires_grad_(False)
    assert isinstance(ask(GradientsNotUpdated(), recorded(step, tmp_path)), Cleared)


def test_without_shapes_lists_of_tensors_are_not_counted(tmp_path: Path) -> None:
    model = net()
    facts = recorded(training(model, torch.optim.AdamW(model.parameters(), fused=True)), tmp_path, shapes=False)
    answer = ask(GradientsNotUpdated(), facts)
    assert isinstance(answer, NotMeasured) and "record_shapes" in answer.why


@pytest.mark.parametrize("teacher_first", [True, False])
def test_gradients_that_nobody_clears_are_seen_without_shapes(teacher_first: bool, tmp_path: Path) -> None:
    """A fused update of one operator says nothing of how many tensors it takes."""
    student, teacher = net(), net(3)
    optimizer = torch.optim.AdamW(student.parameters(), fused=True)

    def step() -> None:
        optimizer.zero_grad()
        first, second = (teacher, student) if teacher_first else (student, teacher)
        (first(X) - second(X)).square().mean().backward()
        optimizer.step()

    facts = recorded(step, tmp_path, shapes=False)
    finding = ask(GradientsNotUpdated(), facts)
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING
    assert [one.value for one in finding.evidence] == [pytest.approx(60.0), 10, 6]
    assert "of 10 tensors that backward writes 6 are added to those of the step before" in finding.summary
    # Backward goes the other way round: what was called first is gone through last, and is all that comes then.
    assert finding.recoverable is not None and (finding.recoverable.low > 0) is teacher_first
    leaves = Leaves.of(facts.require_nodes())
    assert leaves.added_come_last is teacher_first
    part = leaves.leading_to_added()
    assert (part.containing(leaves.end_ns[leaves.added]) >= 0).all()
    assert (part.containing(leaves.end_ns[~leaves.added] - 1) < 0).all()
    assert 0 < part.total_ns < facts.require_nodes().passes.total_ns

    teacher.requires_grad_(False)
    assert isinstance(ask(GradientsNotUpdated(), recorded(step, tmp_path, shapes=False)), NotMeasured)


def test_what_is_added_up_for_another_reason_is_none_of_it(tmp_path: Path) -> None:
    one, other = net(), net(3)
    optimizer = torch.optim.AdamW([*one.parameters(), *other.parameters()], fused=True)
    calls = 0

    def zeroed_in_place() -> None:
        optimizer.zero_grad(set_to_none=False)
        (one(X) + other(X)).square().mean().backward()
        optimizer.step()

    def half_zeroed_in_place() -> None:
        other.zero_grad()
        optimizer.zero_grad(set_to_none=False)
        (one(X) + other(X)).square().mean().backward()
        optimizer.step()

    plain = torch.optim.AdamW([*one.parameters(), *other.parameters()], foreach=True)

    def half_zeroed_one_by_one() -> None:
        other.zero_grad()
        for parameter in one.parameters():
            if parameter.grad is not None:
                parameter.grad.zero_()
        (one(X) + other(X)).square().mean().backward()
        plain.step()

    def noisy() -> None:
        plain.zero_grad()
        hooks = [parameter.register_hook(lambda g: g + 1e-3 * torch.rand_like(g)) for parameter in one.parameters()]
        (one(X) + other(X)).square().mean().backward()
        plain.step()
        for hook in hooks:
            hook.remove()

    def updated_in_backward() -> None:
        def update(parameter: torch.Tensor) -> None:
            with torch.no_grad():
                parameter.add_(parameter.grad, alpha=-0.01)
            parameter.grad = None

        plain.zero_grad()
        hooks = [parameter.register_post_accumulate_grad_hook(update) for parameter in one.parameters()]
        (one(X) + other(X)).square().mean().backward()
        plain.step()
        for hook in hooks:
            hook.remove()

    def two_losses() -> None:
        optimizer.zero_grad()
        one(X).square().mean().backward()
        (one(X) + other(X)).square().mean().backward()
        optimizer.step()

    def every_second_step() -> None:
        nonlocal calls
        calls += 1
        (one(X) + other(X)).square().mean().backward()
        if calls % 2:
            optimizer.step()
            optimizer.zero_grad()

    zeroed = (zeroed_in_place, half_zeroed_in_place, half_zeroed_one_by_one)
    for step in (*zeroed, noisy, updated_in_backward, two_losses, every_second_step):
        optimizer.zero_grad()
        answer = ask(GradientsNotUpdated(), recorded(step, tmp_path, shapes=False, steps=4))
        assert isinstance(answer, NotMeasured), step.__name__


def test_of_optimizers_of_other_kinds_nobody_knows_how_many_tensors_they_update(tmp_path: Path) -> None:
    one, other = net(), net()
    first, second = torch.optim.Adam(one.parameters()), torch.optim.SGD(other.parameters(), lr=0.01)

    def step() -> None:
        (one(X) - other(X)).square().mean().backward()
        first.step()
        second.step()

    assert isinstance(ask(GradientsNotUpdated(), recorded(step, tmp_path)), NotMeasured)


def test_accumulated_batches_write_each_gradient_once_a_pass(tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        for _ in range(3):
            model(X).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = recorded(step, tmp_path)
    assert len(facts.require_nodes().passes) == 9
    assert isinstance(ask(GradientsNotUpdated(), facts), Cleared)


@pytest.mark.parametrize(("clips", "where"), [(True, "between backward and update"), (False, "after the update")])
def test_operators_of_no_phase_are_told_with_their_place(clips: bool, where: str, tmp_path: Path) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)
    state = model.state_dict()
    mean = {name: value.clone() for name, value in state.items()}

    def step() -> None:
        model(X).square().mean().backward()
        if clips:
            for _ in range(20):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if not clips:
            for _ in range(20):
                for name, value in state.items():
                    mean[name] = mean[name] * 0.9 + value.clone() * 0.1

    finding = ask(OperatorsOutsidePhases(info_share=0.001), recorded(step, tmp_path))
    assert isinstance(finding, Finding) and finding.severity is Severity.INFO
    assert f"most of it {where}: " in finding.summary
    assert ("aten::clone" in finding.summary) is not clips
    assert finding.recoverable is not None and finding.recoverable.low == 0.0


BOXES = torch.rand(12, 16, 4)


def matched_one_by_one() -> torch.Tensor:
    """Which box is largest, of each of twelve pictures: 12 times 16 rounds of five operators each."""
    best = []
    for boxes in BOXES:
        largest = torch.zeros(())
        for box in boxes:
            area = box[2] * box[3]
            largest = torch.maximum(largest, area)
        best.append(largest)
    return torch.stack(best)


def matched_at_once() -> torch.Tensor:
    return (BOXES[..., 2] * BOXES[..., 3]).amax(1)


@pytest.mark.parametrize("stack", [True, False])
def test_a_loop_outside_of_the_phases_is_told_with_its_pauses_and_where_stacks_were_recorded_its_function(
    stack: bool, tmp_path: Path
) -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, fused=True)

    def step(matched: Callable[[], torch.Tensor]) -> Callable[[], None]:
        def trained() -> None:
            wanted = matched().mean()
            (model(X).mean() - wanted).square().backward()
            optimizer.step()
            optimizer.zero_grad()

        return trained

    facts = recorded(step(matched_one_by_one), tmp_path, stack=stack)
    finding = ask(OperatorsOutsidePhases(info_share=0.0001), facts)
    assert isinstance(finding, Finding) and finding.severity is Severity.INFO
    assert "small operators" in finding.summary and finding.summary.endswith(": a loop in Python.")
    assert ("(matched_one_by_one)" in finding.summary) is stack
    assert finding.remedies[0].says.startswith("Do it for all at once")
    alone = ask(OperatorsOutsidePhases(info_share=0.0001, many=1e9), facts)
    assert isinstance(alone, Finding) and "loop" not in alone.summary
    assert alone.evidence[0].value < finding.evidence[0].value  # without the pauses

    at_once = ask(OperatorsOutsidePhases(info_share=0.0001), recorded(step(matched_at_once), tmp_path, stack=stack))
    assert isinstance(at_once, Finding) and "loop" not in at_once.summary
    assert not at_once.remedies[0].says.startswith("Do it for all at once")


def test_unique_rows_have_advice_of_their_own(tmp_path: Path) -> None:
    model, cells = net(), torch.randint(64, (2_000, 4))
    train = training(model, torch.optim.SGD(model.parameters(), lr=0.01))

    def step() -> None:
        torch.unique(cells, dim=0)
        train()

    finding = ask(OperatorsOutsidePhases(), recorded(step, tmp_path))
    assert isinstance(finding, Finding)
    assert "aten::unique_dim" in finding.summary and "one number of each row" in finding.remedies[0].says


def test_what_derivatives_are_asked_by_gets_gradients_as_well(tmp_path: Path) -> None:
    """Space and time of an equation: nobody updates them, and next to nothing leads to them alone."""
    model, places, times = net(), X[:, :64].clone().requires_grad_(), X[:, 64:].clone().requires_grad_()
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        made = model(torch.cat([places, times], 1)).sum()
        slopes = torch.autograd.grad(made, (places, times), create_graph=True)
        optimizer.zero_grad()
        (slopes[0] - slopes[1]).square().mean().backward()
        optimizer.step()

    answer = ask(GradientsNotUpdated(), recorded(step, tmp_path))
    assert isinstance(answer, Cleared) and "derivatives are asked for" in answer.summary


def test_a_frozen_body_is_a_part_of_the_forward(tmp_path: Path) -> None:
    """With gradients on: its operators make no nodes, for nothing in it is trained."""
    body, head = net(6).requires_grad_(False), nn.Linear(128, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=0.01, fused=True)

    def step() -> None:
        head(body(X)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    facts = recorded(step, tmp_path, steps=5)
    assert isinstance(ask(OperatorsOutsidePhases(), facts), Cleared)
    forward = Phases.of(facts).forward
    linear = facts.trace.of(0).where(facts.trace.named(lambda name: name == "aten::linear")[facts.trace.of(0).name])
    assert len(linear) == 5 * 7 and (forward.containing(linear.start_ns) >= 0).all()
    assert len(forward) == 5


def test_a_plain_training_has_nothing_outside_of_its_phases(tmp_path: Path) -> None:
    model = net(8)
    facts = recorded(training(model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)), tmp_path)
    assert isinstance(ask(OperatorsOutsidePhases(), facts), Cleared)


class Means(nn.Module):
    """The mean of each of 40 groups of rows, by a loop or at once."""

    def __init__(self, *, loops: bool) -> None:
        super().__init__()
        self.loops, self.inner, self.last = loops, nn.Linear(128, 64), nn.Linear(64, 1)
        self.group = torch.arange(64) % 40

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.inner(x)
        if self.loops:
            return self.last(torch.stack([x[self.group == one].mean(0) for one in range(40)]))
        return self.last(torch.zeros(40, 64).index_add(0, self.group, x) / 2)


@pytest.mark.parametrize("loops", [True, False])
def test_a_loop_is_known_by_operators_that_are_called_equally_often(loops: bool, tmp_path: Path) -> None:
    model = Means(loops=loops)
    facts = recorded(training(model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)), tmp_path)
    answer = ask(ManySmallCalls(warn_share=1.0, loop_share=0.001), facts)
    if not loops:
        assert isinstance(answer, Cleared)
        return
    assert isinstance(answer, Finding)
    assert "A loop in Python goes round 4" in answer.summary and "aten::index" in answer.summary
    # eq, index and mean, and that of the loss.
    assert answer.evidence[1].value == 3 * 40 + 1
    assert answer.claims["backward"] > 0
    assert answer.recoverable is not None and "index_add_" in answer.remedies[0].says


@pytest.mark.parametrize("solves", [True, False])
def test_rounds_that_may_need_the_one_before_are_mentioned_only(solves: bool, tmp_path: Path) -> None:
    """A solver's work on the whole batch, and take nothing from it; those of a list of graphs are of many sizes."""
    first, second, last = nn.Linear(128, 32), nn.Linear(32, 128), nn.Linear(128, 1)
    graphs = [torch.rand(2 + at, 128) for at in range(20)]
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters(), *last.parameters()], lr=0.01, fused=True)

    def step() -> None:
        state, rows = X, []
        for at in range(20):
            given = state if solves else graphs[at]
            state = given + 0.1 * second(torch.tanh(first(given)))
            rows.append(state.mean(0))
        last(torch.stack(rows)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    answer = ask(ManySmallCalls(warn_share=1.0, loop_share=1e-9, repeats=1), recorded(step, tmp_path))
    assert isinstance(answer, Finding)
    assert answer.severity is (Severity.INFO if solves else Severity.WARNING)
    assert ("each of which needs the one before" in answer.summary) is solves
    assert (answer.recoverable is None) is solves


def test_a_weight_that_is_made_anew_in_each_round_has_advice_of_its_own(tmp_path: Path) -> None:
    cell, last = nn.utils.parametrizations.orthogonal(nn.Linear(32, 32), "weight", "matrix_exp"), nn.Linear(32, 1)
    optimizer = torch.optim.SGD([*cell.parameters(), *last.parameters()], lr=0.01, fused=True)

    def step() -> None:
        state = X[:, :32]
        for _ in range(20):
            state = torch.tanh(cell(state))
        last(state).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    answer = ask(ManySmallCalls(warn_share=1.0, loop_share=0.001, repeats=1), recorded(step, tmp_path, stack=True))
    assert isinstance(answer, Finding)
    assert "parametrize.cached()" in answer.remedies[0].says
    assert "test_nodes_of_torch.py" in answer.summary and "(step)" in answer.summary


def test_layers_that_are_called_equally_often_are_no_loop(tmp_path: Path) -> None:
    model = net(20)
    facts = recorded(training(model, torch.optim.SGD(model.parameters(), lr=0.01, fused=True)), tmp_path)
    loop = Loop.of(Operators.of(facts))
    assert loop is not None and loop.rounds == 20
    assert isinstance(ask(ManySmallCalls(warn_share=1.0, loop_share=0.001), facts), Cleared)
