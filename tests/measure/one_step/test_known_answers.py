"""Several steps are looked at: what comes of a model's arguments by what never changes could be kept by sample.

Every operator counts as taking a second, so that seconds are numbers of operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from perf_diagnostics.integrations.shield import LoopObservations
from perf_diagnostics.measure.module_calls import TimedCalls
from perf_diagnostics.measure.one_step import dispatch_mode, samples_again
from perf_diagnostics.measure.one_step.known_answers import SIGNAL
from perf_diagnostics.measure.one_step.look import WHOLE_STEP, StepLook
from tests.measure.one_step.test_dataflow import Encoder
from tests.measure.one_step.test_unchanging import Headed

ROWS, WIDTH, BATCH = 64, 32, 16

Step = Callable[[torch.Tensor], torch.Tensor]


@pytest.fixture(autouse=True)
def _a_second_each(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = count(0, 1_000_000_000)
    monkeypatch.setattr(dispatch_mode, "_clock", lambda: next(ticks))
    monkeypatch.setattr(samples_again, "_ALLOWANCE_NS", 1 << 62)


def told(
    model: nn.Module,
    loss: Step,
    *beside: nn.Module,
    after: Callable[[], Any] = lambda: None,
    rows: torch.Tensor | None = None,
    models: Sequence[nn.Module] = (),
    optimizers: Sequence[torch.optim.Optimizer] = (),
) -> list[Any]:
    """What is told after a training of ten passes over shuffled rows, in which each look takes place that is due."""
    torch.manual_seed(0)
    observations = LoopObservations()
    looks = StepLook(observations, lambda: models or [model], lambda: beside, lambda: optimizers)
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.01)
    x, step, due = torch.randn(ROWS, WIDTH) if rows is None else rows, 0, 0
    for _ in range(14):
        for at in torch.randperm(len(x)).split(BATCH):
            if step == due:
                looks.begin(several=False)
            loss(x[at]).backward()
            optimizer.step()
            optimizer.zero_grad()
            after()
            step += 1
            if looks.under_way:
                looks.end()
                due = step + (looks.due_after or 0) if looks.may_begin(100) else -1
    looks.training_ended()
    assert not any(gap.signal == SIGNAL for gap in observations.gaps)
    return list(looks.facts[SIGNAL])  # type: ignore[arg-type]


def test_the_frozen_part_before_the_trained_one_is_told_where_its_features_come_out() -> None:
    model = Headed()
    (one,) = told(model, lambda x: model(x).square().mean())
    assert one["text"] == "features = self.encoder(x)" and one["operators"] == one["seconds_forward"] == 3
    assert one["bytes"] == BATCH * WIDTH * 4 and one["rows_a_step"] == BATCH and one["again"] == 1.0
    assert one["rows"] / one["different"] > 5


@pytest.mark.parametrize("grads", ["frozen", "only without gradients"])
def test_a_teacher_beside_is_told_at_its_call_whatever_the_loss_makes_of_its_answers(grads: str) -> None:
    teacher, model = Encoder().eval().requires_grad_(grads != "frozen"), nn.Linear(WIDTH, WIDTH)

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            guide = teacher(x)
        return functional.kl_div(model(x).log_softmax(1), guide.softmax(1), reduction="batchmean")

    (one, *_) = told(model, loss, teacher)
    assert one["text"] == "guide = teacher(x)" and one["seconds_outside"] == 3
    # The loss takes its softmax; what kl_div makes of that by itself nobody else could keep.
    assert one["bytes"] == BATCH * WIDTH * 4


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("trained", [True, False])
def test_a_backbone_that_asks_for_gradients_is_known_by_the_optimizers_to_be_untrained(
    *, inside: bool, trained: bool
) -> None:
    """A linear probe: the backbone is called under no_grad, and no optimizer has its parameters."""
    model = Headed()
    model.encoder.requires_grad_(True)
    optimizer = torch.optim.SGD((model if trained else model.head).parameters(), lr=0.01)

    def loss(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            features = model.encoder(x)
        out: torch.Tensor = model(x) if inside else model.head(features)
        return out.square().mean()

    models = [model] if inside else [model.encoder, model.head]
    found = told(model, loss, models=models, optimizers=[optimizer])
    if trained:
        assert found == []
    else:
        (one,) = found
        assert one["operators"] == 3 and one["again"] == 1.0


def test_one_that_is_called_after_the_student_on_rows_that_were_picked_there() -> None:
    teacher, model, x = Encoder().eval().requires_grad_(False), nn.Linear(WIDTH, WIDTH), torch.randn(ROWS, WIDTH)

    def loss(at: torch.Tensor) -> torch.Tensor:
        out = model(x[at])
        return functional.mse_loss(out, teacher(x[at]))

    (one,) = told(model, loss, teacher, rows=torch.arange(ROWS))
    assert one["operators"] == 3 and one["again"] > 0.8


def never(how: str, model: Headed) -> tuple[Step, Callable[[], Any]]:
    frozen, steps = list(model.encoder.parameters()), count()
    losses: dict[str, Step] = {
        "what the trained part gives": lambda x: model.encoder(model.head(x).repeat(1, WIDTH // 4)),
    }
    after: dict[str, Callable[[], Any]] = {
        "an average": lambda: [one.lerp_(torch.ones_like(one), 0.1) for one in frozen],
        "a target that is copied now and then": lambda: next(steps) != 50 or [one.mul_(0.9) for one in frozen],
        "the same, unseen by torch": lambda: next(steps) != 50 or [one.data.mul_(0.9) for one in frozen],
    }
    return losses.get(how, model), after.get(how, lambda: None)


@pytest.mark.parametrize(
    "how",
    [
        *("noise inside", "batch norm that trains", "what the trained part gives"),
        *("an average", "a target that is copied now and then", "the same, unseen by torch"),
    ],
)
def test_what_changes_is_not_told(how: str) -> None:
    model = Headed()
    if how == "noise inside":
        model = Headed(nn.Sequential(nn.Dropout(0.5), Encoder()))
        model.encoder[0].train()  # type: ignore[index]
    if how == "batch norm that trains":
        model = Headed(nn.Sequential(nn.BatchNorm1d(WIDTH, affine=False), Encoder()))
        model.encoder.train()
    loss, after = never(how, model)

    def without_gradients() -> None:
        with torch.no_grad():
            after()

    assert told(model, lambda x: loss(x).square().mean(), after=without_gradients) == []


def test_augmented_samples_do_not_come_again() -> None:
    model = Headed()
    (one,) = told(model, lambda x: model(x + 0.1 * torch.randn_like(x)).square().mean())
    assert one["again"] == 0.0 and one["different"] == pytest.approx(one["rows"], rel=0.4)


def test_one_and_the_same_batch_is_told_as_what_never_changes() -> None:
    model, x = Headed(), torch.randn(BATCH, WIDTH)
    assert told(model, lambda _: model(x).square().mean()) == []


def test_a_training_without_a_frozen_part_is_told_nothing_and_its_calls_are_not_seen() -> None:
    model = Encoder()
    assert told(model, lambda x: model(x).square().mean()) == []
    assert "_compiled_call_impl" not in model.__dict__


@pytest.mark.parametrize("again", [True, False])
def test_a_training_of_plain_tensors_is_looked_through_all_step_long(*, again: bool) -> None:
    body, head = torch.randn(WIDTH, WIDTH, requires_grad=True), torch.randn(WIDTH, 4, requires_grad=True)
    optimizer, elsewhere = torch.optim.SGD([body, head], lr=0.01), [True]
    looks = StepLook(LoopObservations(), list, optimizers=lambda: [optimizer], elsewhere=lambda: elsewhere[0])
    looks.begin(several=False)
    assert looks.under_way
    x, y = torch.randn(ROWS, WIDTH).tanh(), torch.randn(ROWS, 4)  # as a loader would: not shown
    elsewhere[0] = False
    for _ in range(2):  # tasks, each with a backward; the head alone is adapted
        fast, features = head, torch.tanh(x @ body)
        for _ in range(3):
            if again:
                features = torch.tanh(x @ body)
            (slope,) = torch.autograd.grad((features.detach() @ fast - y).square().mean(), fast)
            fast = fast - 0.1 * slope
        (torch.sigmoid(y @ head.T @ body) @ fast - y).square().mean().backward()
    elsewhere[0] = True
    optimizer.step()
    looks.end()
    looks.training_ended()
    assert looks.facts[WHOLE_STEP] is True and float(str(looks.facts["operator_seconds_backward"])) > 10
    lines: Any = looks.facts["computed_again"]
    # A product and its tanh, three times in each of two tasks; else what comes first in the second one is known.
    assert {one["text"]: one["operators"] for one in lines if "tanh" in one["text"]} == (
        {"features = torch.tanh(x @ body)": 12} if again else {"fast, features = head, torch.tanh(x @ body)": 2}
    )


def test_what_the_loop_computes_outside_of_its_models_is_told_where_the_loader_and_the_optimizer_are_known() -> None:
    model, adjacency = nn.Linear(WIDTH, 4), torch.rand(ROWS, ROWS)
    optimizer, elsewhere = torch.optim.SGD(model.parameters(), lr=0.1), [False]
    looks, step = StepLook(LoopObservations(), lambda: [model], elsewhere=lambda: elsewhere[0]), 0
    due = 0
    while step < 60:
        if step == due:
            looks.begin(several=False)
        elsewhere[0] = True  # the loader
        x = torch.randn(ROWS, WIDTH) * adjacency.sum()
        elsewhere[0] = False
        normed = adjacency / adjacency.sum(1, keepdim=True)
        model(normed @ x).square().mean().backward()
        scale = adjacency.square().mean()  # after backward
        for parameter in model.parameters():
            assert parameter.grad is not None
            parameter.grad.mul_(scale)
        elsewhere[0] = True
        optimizer.step()
        optimizer.zero_grad()
        elsewhere[0] = False
        step += 1
        if looks.under_way:
            looks.end()
            due = step + (looks.due_after or 0) if looks.may_begin(100) else -1
    looks.training_ended()
    (one,) = looks.facts["unchanging"]  # type: ignore[misc, str-unpack]
    # The sum and the quotient before the model is called, and the mean of squares after its backward.
    assert isinstance(one, dict) and one["operators"] == one["seconds_outside"] == 4 and one["seconds_forward"] == 0
    # The model's own, the loss's and no other operators count among those of forward.
    assert 3 <= int(str(looks.facts["operators"])) - float(str(looks.facts["operator_seconds_backward"])) <= 6
    assert looks.facts[WHOLE_STEP] is False


def test_another_model_that_comes_to_be_trained_is_looked_at_anew() -> None:
    first, second = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 4)
    looks = StepLook(LoopObservations(), lambda: [first, second])
    second.requires_grad_(False)
    for model in (first, second):
        assert looks.may_begin(100)
        looks.begin(several=False)
        model(torch.randn(ROWS, WIDTH)).sinh().mean().backward()
        looks.end()
        looks.facts["mark"] = True
        assert not looks.may_begin(100) and looks.facts["operators"]
        first.requires_grad_(False)
        second.requires_grad_(True)
    assert looks.may_begin(100) is False


def test_a_stand_in_above_ours_has_not_replaced_it() -> None:
    model = nn.Linear(4, 4)
    below, above = (TimedCalls(model, stand_in) for stand_in in (lambda x: x, lambda x: x + 1))
    assert not below.replaced and not above.replaced
    model.__dict__["_compiled_call_impl"] = len
    assert below.replaced and above.replaced
