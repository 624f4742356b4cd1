"""Trainings of days: nothing is dropped, memory stays, and the files stay few."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from perf_diagnostics.integrations import OwnLoop
from perf_diagnostics.integrations.model.losses import MOST_KEPT, Losses
from perf_diagnostics.integrations.record import parts
from perf_diagnostics.integrations.record.flush_times import MOST_STEPS_A_BLOCK
from perf_diagnostics.integrations.record.parts import StepParts
from perf_diagnostics.records import StepTable
from tests.measure.simulated_device import HostClock

MS = 1_000_000


def parquets(root: Path) -> list[Path]:
    return sorted(root.rglob("steps.rank0-*.parquet"))


def test_a_day_of_steps_is_written_in_few_parts(tmp_path: Path) -> None:
    host = HostClock()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for _ in range(1440):  # a step a minute, 24 hours
            with loop.step(samples=1), loop.forward():
                host.spend(60_000)
    # Every hundredth of the time so far once there are 500 s; at first a part a step.
    written = len(parquets(tmp_path))
    assert written < 500
    result = loop.run.results[0]
    assert len(result.steps[0]) == 1440
    assert int(result.steps[0].wall_ns.sum()) == 86_400_000 * MS


def test_spilled_steps_are_let_go_and_read_again_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "KEPT_STEPS", 300)
    host = HostClock()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for number in range(2000):
            with loop.step(samples=1):
                with loop.forward():
                    host.spend(40)
                if number == 1500:  # a phase that is first seen when most parts are written
                    with loop.backward():
                        host.spend(2)
    kept = loop._loop.recording._disk.parts
    assert kept.spilled and kept._kept_steps <= 300
    table = loop.run.results[0].steps[0]
    assert len(table) == 2000 and table.columns["block"][-1] > 3
    assert int(table.wall_ns.sum()) == (2000 * 40 + 2) * MS
    assert int(table.columns["host_backward_ns"].sum()) == 2 * MS  # earlier parts have it as zeros
    assert not [gap for gap in loop.run.results[0].gaps if gap.signal == "host_backward_ns"]


def test_steps_that_cannot_be_written_are_bounded_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "KEPT_STEPS", 100)
    kept = StepParts()
    for _ in range(30):
        kept.add(StepTable({"wall_ns": np.full(20, 5), "samples": np.ones(20), "warmup": np.zeros(20)}))
    assert kept.steps == 600 and kept.lost == 400 and sum(map(len, kept._unwritten)) == 200


def test_losses_that_wait_stay_few() -> None:
    import torch

    now = [0]
    losses = Losses(clock=lambda: now[0])
    for step in range(40_000):
        now[0] += 10 * MS
        if losses.wanted:
            losses.backward(torch.tensor(float(step), requires_grad=True))
            losses.step_ends(step)
        elif not step & 7:
            losses.look()
    kept = losses.take()
    assert 100 < len(kept) <= MOST_KEPT
    # Numbers: a tensor of the host would pin a piece of its heap between free ones until it is read.
    assert all(type(loss) is float and loss == step for step, loss in kept.items())


def test_a_loss_on_a_device_waits_there_without_its_graph() -> None:
    import torch

    losses = Losses()
    losses.backward(torch.zeros((), device="meta", requires_grad=True) + 1)
    losses.step_ends(3)
    ((step, loss),) = losses.take().items()
    assert step == 3 and isinstance(loss, torch.Tensor) and loss.device.type == "meta" and not loss.requires_grad


@pytest.mark.slow
def test_a_minute_at_five_thousand_steps_a_second_drops_nothing_and_does_not_grow(tmp_path: Path) -> None:
    host = HostClock()
    held: list[int] = []
    tracemalloc.start()
    with OwnLoop(results_dir=tmp_path, clock=host) as loop:
        for number in range(300_000 + 3):
            with loop.step(samples=1), loop.forward():
                host.now_ns += 200_000
            if number in (140_000, 299_000):
                held.append(tracemalloc.get_traced_memory()[0])
        peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    table = loop.run.results[0].steps[0]
    assert len(table) == 300_003 and (table.wall_ns == 200_000).all()
    # Kept are 100,000 steps of 16 columns at most, and one block on the tape of at most 200 bytes a step.
    assert held[1] < held[0] + MOST_STEPS_A_BLOCK * 200
    assert peak < 100_000 * 16 * 8 * 2 + MOST_STEPS_A_BLOCK * 200 * 4 + 20e6
    assert len(parquets(tmp_path)) <= 15  # one after a second, then one every five


def test_the_time_around_the_steps_is_theirs_however_long_somebody_else_runs_in_between(tmp_path: Path) -> None:
    host = HostClock()

    def late() -> int:
        """Each reading comes a millisecond after the one before, as if others had the core in between."""
        host.spend(1)
        return host()

    with OwnLoop(results_dir=tmp_path, clock=late) as loop:
        for _ in range(20):
            with loop.step(samples=1), loop.forward():
                host.spend(5)
    result = loop.run.results[0]
    assert len(result.steps[0].steady) == 17
    # All of the 17 steady steps lie in one block: no reading of the clock may lie between them and its ends.
    assert result.value("measured_wall_s") == pytest.approx(result.steps[0].steady.wall_ns.sum() / 1e9, rel=1e-9)
