"""What crosses between host and device in a watched loop, with float64 tensors standing for the device's."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from perf_diagnostics import attach
from perf_diagnostics.integrations.looks.crossings_look import CrossingsLook
from perf_diagnostics.integrations.record.training_folder import WARM_UP_STEPS
from perf_diagnostics.measure.crossings.summed import STEPS
from perf_diagnostics.measure.one_step.mode_stack import is_alone
from perf_diagnostics.measure.one_step.operator_lines import OperatorLines
from perf_diagnostics.records import TrialResult
from tests.measure.one_step.test_look_span import Depths

DEVICE = torch.float64

#: Steps of a warm-up and those that count before anybody looks, and some after.
LONG = 60


def trained(
    folder: Path,
    loss_of: Callable[[Any, torch.Tensor], torch.Tensor],
    *,
    steps: int = LONG,
    after: Callable[[torch.Tensor], object] = lambda _loss: None,
    before_update: Callable[[torch.Tensor], object] = lambda _loss: None,
    begun: Callable[[Any], object] = lambda _watch: None,
    pretended: bool = True,
) -> TrialResult:
    """A training under watch whose first second, after which steps may be looked through, is over at once."""
    model = torch.nn.Linear(4, 1, dtype=DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, results_dir=folder, quiet=True) as seen:
        recording = seen._watch.recording
        looks = recording.looks
        assert looks is not None
        if pretended:
            crossings = CrossingsLook(
                seen._watch.observations,
                seen._watch.probe,
                looks.operators.why_not,
                looks.operators.trained_models,
                on_device=lambda tensor: tensor.dtype is DEVICE,
                wanted=lambda: True,
                clock=recording.clock,
            )
            recording.looks = dataclasses.replace(looks, crossings=crossings)
        begun(seen._watch)
        for step in range(steps):
            if step == 20:
                # As when the first second is over; and no loss is to be kept, which a CPU reads at once.
                recording._times.at_ns = recording._times.at_step = seen._watch.state.due_ns = 0
                seen._watch.steps.losses.due_ns = 1 << 62
            loss = loss_of(model, torch.ones(2, 4).to(DEVICE))
            loss.backward()
            before_update(loss)
            optimizer.step()
            optimizer.zero_grad()
            after(loss)
    (result,) = seen.run.results
    assert is_alone()
    return result


def lines(result: TrialResult) -> list[tuple[str, str, float]]:
    told = result.facts["crossings_at"]
    assert isinstance(told, list)
    return [(one["kind"], one["text"], one["calls"]) for one in told if isinstance(one, dict)]


pytestmark = pytest.mark.usefixtures("nothing_compiled")


def test_reads_and_copies_are_counted_with_their_lines(tmp_path: Path) -> None:
    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        out = model(batch)
        for _ in range(3):
            out.mean().item()
        return out.sum() * torch.tensor(0.5, dtype=DEVICE)

    result = trained(tmp_path, loss_of)
    assert result.value("reads_back_per_step") == 3
    assert result.value("copies_in_per_step") == 2 and result.value("small_copies_per_step") == 2
    assert result.value("reads_back_idle_s") > 0
    assert lines(result) == [
        ("read", "out.mean().item()", 3.0),
        ("small copy", "loss = loss_of(model, torch.ones(2, 4).to(DEVICE))", 1.0),
        ("small copy", "return out.sum() * torch.tensor(0.5, dtype=DEVICE)", 1.0),
    ]
    # None of the steps that were looked through counts, and they come before those that are looked through for more.
    since = np.flatnonzero(result.steps[0].columns["warmup"])[WARM_UP_STEPS:]
    assert since[:STEPS].tolist() == list(range(since[0], since[0] + STEPS)) and len(since) > STEPS


def test_what_the_loop_reads_after_the_update_belongs_to_the_step(tmp_path: Path) -> None:
    read: list[float] = []
    result = trained(tmp_path, lambda model, batch: model(batch).sum(), after=lambda loss: read.append(loss.item()))
    assert len(read) == LONG
    assert result.value("reads_back_per_step") == 1
    assert result.quantity("reads_back_per_step").source.endswith("_local_scalar_dense in other (1)")
    assert next(text for _, text, _ in lines(result)).startswith("result = trained(")


def test_what_is_read_between_backward_and_the_update_is_the_optimizers(tmp_path: Path) -> None:
    """As a gradient scaler does before it steps, and who clips and logs the norm."""
    result = trained(tmp_path, lambda model, batch: model(batch).sum(), before_update=lambda loss: loss.item())
    assert result.value("optimizer_waits_per_step") == result.value("reads_back_per_step") == 1
    assert result.value("optimizer_waits_idle_s") == result.value("reads_back_idle_s") > 0


def test_our_own_work_between_two_steps_is_nobodys_idling(tmp_path: Path) -> None:
    """The loop ends a step with a read: what comes until the next operator is charged to that, but for what is ours."""

    def slowly(watch: Any) -> None:
        watch.recording.before_take = lambda: time.sleep(0.05)

    result = trained(
        tmp_path, lambda model, batch: model(batch).sum(), after=lambda loss: loss.item(), begun=slowly, steps=40
    )
    assert result.value("reads_back_per_step") == 1
    assert 0 < result.value("reads_back_idle_s") < 0.02


def test_steps_with_an_evaluation_are_looked_through_another_time(tmp_path: Path) -> None:
    steps = itertools.count()

    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        if next(steps) % 3 == 0:
            model.eval()
            with torch.no_grad():
                for _ in range(50):
                    model(batch).sum().item()
            model.train()
        return model(batch).sum()

    result = trained(tmp_path, loss_of)
    assert (result.value("reads_back_per_step"), result.value("copies_in_per_step")) == (0, 1)
    assert [kind for kind, *_ in lines(result)] == ["small copy"]
    source = result.quantity("reads_back_per_step").source
    assert source == "operators of 5 steps that do not count"  # and names none of the evaluation's reads


def test_what_evaluates_in_each_step_is_said_to(tmp_path: Path) -> None:
    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        return model.eval()(batch).sum()

    gap = trained(tmp_path, loss_of).gap("copies_in_per_step")
    assert gap is not None and "evaluated in each step" in gap.why


def test_when_measuring_ends_early_nothing_is_watched_on(tmp_path: Path) -> None:
    watches: list[Any] = []
    modes: list[bool] = []

    def after(_loss: torch.Tensor) -> None:
        (watch,) = watches
        modes.append(is_alone())
        if watch.recording.looks.under_way and watch.state.active:
            watch.fails(ValueError("lost count"))

    result = trained(tmp_path, lambda model, batch: model(batch).sum(), after=after, begun=watches.append)
    assert modes.count(False) == 1 and modes[-1]
    gap = result.gap("copies_in_per_step")
    assert gap is not None and gap.why == "measuring ended early"


def test_a_healthy_step_reads_nothing(tmp_path: Path) -> None:
    result = trained(tmp_path, lambda model, batch: model(batch).sum())
    assert result.value("copies_in_per_step") == 1
    assert (result.value("reads_back_per_step"), result.value("waits_per_step")) == (0, 0)
    assert (result.value("reads_back_idle_s"), result.value("waits_idle_s")) == (0, 0)


def test_on_the_cpu_nobody_looks_and_nothing_is_missing(tmp_path: Path) -> None:
    result = trained(tmp_path, lambda model, batch: model(batch).sum(), pretended=False)
    assert result.value("copies_in_per_step") is None and result.gap("copies_in_per_step") is None
    assert "crossings_at" not in result.facts


def test_a_training_that_ends_before_says_so(tmp_path: Path) -> None:
    result = trained(tmp_path, lambda model, batch: model(batch).sum(), steps=20 + STEPS - 2)
    gap = result.gap("copies_in_per_step")
    assert gap is not None and gap.why.startswith("the training ended before 5 steps")


def test_a_mode_of_the_users_own_is_left_alone(tmp_path: Path) -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Own(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        with Own():
            return model(batch).sum() * model(batch).sum().item()

    assert trained(tmp_path, loss_of).value("reads_back_per_step") == 1


def test_a_fault_of_ours_ends_the_looking_and_not_the_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: OperatorLines) -> Any:
        raise ValueError("no such frame")

    monkeypatch.setattr(OperatorLines, "line", broken)
    result = trained(tmp_path, lambda model, batch: model(batch).sum() * model(batch).sum().item())
    assert len(result.steps[0]) == LONG and result.value("reads_back_per_step") is None
    gap = result.gap("copies_in_per_step")
    assert gap is not None and "no such frame" in gap.why


def test_looking_imports_no_compiler() -> None:
    """It takes about a second, and stays in somebody's process."""
    script = """
import sys, torch
from perf_diagnostics.measure.one_step.mode_stack import put_on, take_off
from perf_diagnostics.measure.crossings.crossings import Crossings
seen = Crossings(clock=lambda: 0, on_device=lambda tensor: True)
put_on(seen)
(torch.ones(2) + 1).sum().item()
take_off(seen)
seen.step_ends()
assert seen.steps[0].reads == 1
sys.exit("torch._dynamo" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.skipif(sys.platform == "win32", reason="nothing is forked there")
def test_a_worker_that_is_forked_meanwhile_sees_nothing(tmp_path: Path) -> None:
    here, there = [], []

    def loss_of(model: Any, batch: torch.Tensor) -> torch.Tensor:
        here.append(torch._C._len_torch_dispatch_stack())
        if here.count(1) == 1:  # the first step that is looked through
            loader = DataLoader(Depths(), num_workers=1, multiprocessing_context="fork")
            there.extend(int(one) for one in loader)
        return model(batch).sum()

    trained(tmp_path, loss_of)
    assert here.count(1) >= STEPS and there and set(there) == {0}
