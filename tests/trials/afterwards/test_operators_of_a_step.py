"""One step after the timed ones is looked through: what is told, what it may take, and that nothing stays behind."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.module_calls import stands_in
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.one_step.mode_stack import is_alone
from perf_diagnostics.records import Length, Outcome, Settings, Trial
from perf_diagnostics.trials.afterwards import operators_of_a_step
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.operators_of_a_step import OperatorsOfAStep, kept_s
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.workloads.workload import BatchCount, Training

CPU = torch.device("cpu")
ROWS = 64

pytestmark = pytest.mark.usefixtures("nothing_compiled")

Loss = Callable[[torch.nn.Module, torch.Tensor], torch.Tensor]


class OneHot(torch.nn.Module):
    """A table whose rows are picked by a product."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(512, 8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.one_hot(ids, 512).float() @ self.table


class Frozen(torch.nn.Module):
    """Multiplies a large matrix that never changes with itself in each step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(ROWS, 1)
        self.register_buffer("matrix", torch.rand(256, 256))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        scale = (self.matrix @ self.matrix @ self.matrix).mean()
        return self.layer(ids.float()) * scale


def squared(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
    return model(batch).pow(2).mean()


def training_of(model: torch.nn.Module, loss_of: Loss = squared) -> Training:
    generator = torch.Generator().manual_seed(0)
    return Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.01),
        batches=[torch.randint(0, 512, (ROWS,), generator=generator) for _ in range(8)],
        loss_of=loss_of,
        count=lambda batch: BatchCount(len(batch)),
    )


def timed_of(training: Training, **changes: Any) -> Timed:
    timed = Timed(
        trial=Trial(workload="w", settings=Settings(batch_size=ROWS)),
        training=training,
        device=CPU,
        step_s=0.001,
        left_s=lambda: None,
        observations=Observations(),
        spent_s=60.0,
    )
    return dataclasses.replace(timed, **changes)


def look(timed: Timed) -> dict[str, Any]:
    assert look_afterwards(timed, [OperatorsOfAStep()]) == []
    return timed.facts


def why(timed: Timed) -> str:
    return "; ".join(gap.why for gap in timed.observations.gaps if gap.signal == "zero_products")


def test_products_with_zeros_are_told_with_their_line() -> None:
    timed = timed_of(training_of(OneHot()))
    (told,) = look(timed)["zero_products"]
    assert told["function"] == "OneHot.forward" and told["zeros"] == pytest.approx(511 / 512)
    assert told["calls"] == 1 and told["shape"] == [ROWS, 512]
    assert why(timed) == ""


def test_all_of_forward_is_seen_and_not_the_models_calls_alone() -> None:
    def prepared(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            batch = batch.flip(0)
        return squared(model, batch)

    plain, more = (look(timed_of(training_of(OneHot(), one))) for one in (squared, prepared))
    assert more["operators"] == plain["operators"] + 10


def test_each_micro_step_is_seen() -> None:
    accumulated = Trial(workload="w", settings=Settings(batch_size=ROWS, accumulation_steps=3))
    (told,) = look(timed_of(training_of(OneHot()), trial=accumulated))["zero_products"]
    assert told["calls"] == 3


def test_what_stays_the_same_is_told_from_several_steps() -> None:
    steps = []

    def counted(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        steps.append(batch)
        return squared(model, batch)

    facts = look(timed_of(training_of(Frozen(), counted)))
    assert [one["function"] for one in facts["unchanging"]] == ["Frozen.forward"]
    assert len(steps) == 1 + 30 + 5


def test_only_one_step_is_looked_through_where_there_is_time_for_no_more() -> None:
    timed = timed_of(training_of(Frozen()), step_s=0.06, spent_s=10.0)
    facts = look(timed)
    assert "unchanging" not in facts and facts["zero_products"] == []
    gaps = {gap.signal: gap.why for gap in timed.observations.gaps}
    assert "does not hold enough steps" in gaps["unchanging"] and set(gaps) <= {"unchanging", "known_answers"}


def test_what_the_first_look_took_is_gone_for_the_later_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 9 s that may go into it, 30 plain steps and another look of 0.1 s take 3.2: there, unless 7 s have passed."""
    looked = []

    def seconds() -> float:
        return 7.0 * bool(looked)

    def slow(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        looked.append(batch)
        return squared(model, batch)

    monkeypatch.setattr(operators_of_a_step.time, "monotonic", seconds)
    timed = timed_of(training_of(Frozen(), slow), step_s=0.1)
    facts = look(timed)
    assert len(looked) == 1 and "unchanging" not in facts
    assert "does not hold enough steps" in "; ".join(gap.why for gap in timed.observations.gaps)
    monkeypatch.setattr(operators_of_a_step.time, "monotonic", lambda: 0.0)
    assert "unchanging" in look(timed_of(training_of(Frozen()), step_s=0.1))


@pytest.mark.parametrize(
    ("changes", "looks"),
    [
        ({"step_s": 5.0, "spent_s": 60.0}, False),  # of 60 s 9 may go into it, and a step is taken to be twice as long
        ({"step_s": 4.0, "spent_s": 60.0}, True),
        ({"step_s": 0.4, "spent_s": 1.0}, True),  # a second may go into it at any rate
        ({"step_s": 1.0, "left_s": lambda: 1.5}, False),
    ],
)
def test_it_may_take_a_part_of_the_trials_time(changes: dict[str, Any], looks: bool) -> None:
    timed = timed_of(training_of(OneHot()), **changes)
    assert bool(look(timed)) is looks
    assert ("does not hold a step" in why(timed)) is not looks


def test_where_times_are_compared_nobody_looks() -> None:
    timed = timed_of(training_of(OneHot()), look=False)
    assert look(timed) == {} and timed.observations.gaps == ()


def test_a_ceiling_is_not_looked_at() -> None:
    without = Trial(workload="w", settings=Settings(batch_size=ROWS, ceiling="no_optimizer"))
    assert look(timed_of(training_of(OneHot()), trial=without)) == {}


def test_a_compiled_model_is_left_alone() -> None:
    model: Any = torch.compile(OneHot(), backend="eager")
    timed = timed_of(training_of(model))
    assert look(timed) == {} and "compile" in why(timed)


@pytest.mark.parametrize("fails_at", [None, 1])
def test_nothing_stays_behind(fails_at: int | None) -> None:
    steps = itertools.count(1)

    def failing(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        loss = squared(model, batch)
        if next(steps) == fails_at:
            raise ValueError("this batch cannot be trained on")
        return loss

    model, backward = OneHot(), torch.autograd.backward
    timed = timed_of(training_of(model, failing))
    look(timed)
    assert torch.autograd.backward is backward and stands_in(model) is None and is_alone()
    assert why(timed) == ("" if fails_at is None else "ValueError: this batch cannot be trained on")


def test_ctrl_c_leaves_nothing_behind_either() -> None:
    def interrupted(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        squared(model, batch)
        raise KeyboardInterrupt

    model, backward = OneHot(), torch.autograd.backward
    with pytest.raises(KeyboardInterrupt):
        look(timed_of(training_of(model, interrupted)))
    assert torch.autograd.backward is backward and stands_in(model) is None and is_alone()


def test_a_later_step_that_fails_is_the_reason_of_what_later_steps_tell() -> None:
    steps = itertools.count(1)

    def failing(model: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if next(steps) == 5:
            raise ValueError("this batch cannot be trained on")
        return squared(model, batch)

    timed = timed_of(training_of(Frozen(), failing))
    assert look(timed)["zero_products"] == []
    gaps = {gap.signal: gap.why for gap in timed.observations.gaps}
    assert "unchanging" in gaps and set(gaps.values()) == {"ValueError: this batch cannot be trained on"}


def test_one_batch_again_and_again_tells_nothing_of_what_stays_the_same() -> None:
    training = training_of(Frozen())
    facts = look(timed := timed_of(dataclasses.replace(training, batches=[*training.batches][:1])))  # type: ignore[misc]
    assert "unchanging" not in facts
    gaps = {gap.signal: gap.why for gap in timed.observations.gaps}
    assert "each pass over the data is one batch" in gaps["unchanging"]


def test_a_model_of_which_nothing_is_trained_is_left_alone() -> None:
    model, other = OneHot(), torch.nn.Linear(8, 1)
    training = training_of(model, lambda model, batch: other(model(batch).detach()).mean())
    training = dataclasses.replace(training, optimizer=torch.optim.SGD(other.parameters(), lr=0.1))
    timed = timed_of(training)
    assert look(timed) == {} and "trains nothing of the workload's model" in why(timed)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        (Settings(batch_size=ROWS), 0.6),
        (Settings(batch_size=ROWS, ceiling="no_optimizer"), 0.0),
        (Settings(batch_size=ROWS, compile_mode="default"), 0.0),
    ],
)
def test_a_trial_that_needs_all_its_time_keeps_some_for_the_look(settings: Settings, kept: float) -> None:
    assert kept_s(settings, 4.0) == pytest.approx(kept)
    assert kept_s(Settings(batch_size=ROWS), 600.0) == 5.0 and kept_s(settings, -1.0) == 0.0


def test_a_measured_trial_is_looked_through_though_it_takes_all_its_time(tmp_path: Path) -> None:
    never_known = Length(warmup_steps=2, max_steps=1_000_000, half_width=1e-6)
    trial = Trial(workload="w", settings=Settings(batch_size=ROWS), length=never_known)
    result = measure(trial, lambda _settings: training_of(OneHot()), budget_s=4.0, directory=tmp_path).result
    assert result.outcome is Outcome.COMPLETED and result.stop_reason == "time_budget"
    assert [one["function"] for one in result.facts["zero_products"]] == ["OneHot.forward"]  # type: ignore[union-attr]
    assert 1.5 < result.value("measured_wall_s") < 3.4  # type: ignore[operator]
