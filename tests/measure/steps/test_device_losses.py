"""Losses on a device are put together once their steps are done, and read when the block is over."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.measure.steps.device_losses import TOGETHER, DeviceLosses
from perf_diagnostics.measure.steps.probe import Probe
from tests.measure.simulated_device import HostClock, SimulatedDevice


def taken(kept: DeviceLosses) -> dict[int, float]:
    return {step: value for steps, values in kept.take() for step, value in zip(steps, values, strict=True)}


def test_only_losses_of_steps_that_the_device_has_done_are_put_together() -> None:
    kept, waiting = DeviceLosses(), {step: torch.tensor(step / 2) for step in range(3, 3 + TOGETHER + 5)}
    kept.put(waiting, done=TOGETHER + 2)
    assert len(waiting) == TOGETHER + 5  # the last one of the first 128 is step 130, and 130 steps are done: 0 to 129
    kept.put(waiting, done=TOGETHER + 3)
    assert list(waiting) == list(range(TOGETHER + 3, TOGETHER + 8))
    assert taken(kept) == {step: step / 2 for step in range(3, 3 + TOGETHER)}
    assert taken(kept) == {}


def test_of_steps_without_a_loss_between_them_each_keeps_its_number() -> None:
    kept, waiting = DeviceLosses(), {step: torch.tensor(float(step)) for step in range(0, 3 * TOGETHER, 3)}
    kept.put(waiting, done=2 * TOGETHER)
    assert len(waiting) == TOGETHER
    kept.put(waiting, done=3 * TOGETHER)
    assert not waiting and taken(kept) == {step: float(step) for step in range(0, 3 * TOGETHER, 3)}


@pytest.mark.parametrize(("made", "together"), [
    (lambda n: torch.tensor([n / 3], dtype=torch.float64), torch.Tensor),
    (lambda n: torch.tensor(n / 3, dtype=torch.bfloat16), torch.Tensor),
    (lambda n: torch.tensor(n / 3, dtype=torch.float64 if n % 2 else torch.float32), list),
    (lambda n: n / 3, float),
    (lambda n: torch.tensor(n / 3) if n else 0.0, list),
    (lambda n: torch.tensor(n / 3) if n < 9 else 3.0, list),
])  # fmt: skip
def test_losses_of_any_kind_are_what_they_were(made: Any, together: type) -> None:
    kept, waiting = DeviceLosses(), {step: made(step) for step in range(TOGETHER)}
    expected = {step: float(loss) for step, loss in waiting.items()}
    kept.put(waiting, done=TOGETHER)
    ((_, values),) = kept._together
    assert isinstance(values, torch.Tensor) == (together is torch.Tensor)
    assert isinstance(values, list) == (together is list)
    assert taken(kept) == expected


def test_what_a_loss_was_computed_from_is_let_go() -> None:
    weights = torch.zeros(1, requires_grad=True)
    kept, waiting = DeviceLosses(), {step: (weights * step).sum() for step in range(TOGETHER)}
    kept.put(waiting, done=TOGETHER)
    ((_, values),) = kept._together
    assert values.shape == (TOGETHER,) and values.grad_fn is None


def test_nothing_is_put_together_while_a_graph_is_captured() -> None:
    host = HostClock()
    device = SimulatedDevice(host)
    probe = Probe(clock=host, events=device, thread_cpu=lambda: 0)
    probe.start()
    for step in range(4 * TOGETHER):
        device.captures = step >= TOGETHER // 2
        with probe.forward():
            host.spend(1)
        probe.end_step(samples=1, loss=torch.tensor(float(step)))
    assert len(probe._losses) == 4 * TOGETHER and not probe._device_losses._together
    device.captures = False
    for step in range(4 * TOGETHER, 8 * TOGETHER):
        with probe.forward():
            host.spend(1)
        probe.end_step(samples=1, loss=torch.tensor(float(step)))
    assert len(probe._losses) <= TOGETHER
    probe.end_block()
    assert probe.take().columns["loss"].tolist() == [float(step) for step in range(8 * TOGETHER)]
