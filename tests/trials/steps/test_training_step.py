"""What a training step does with its batches: accumulation, precision, and gradients that a graph owns."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.afterwards.overhead import Unmeasured
from perf_diagnostics.trials.steps.process_settings import process_settings
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.training_of_parts import training_of
from perf_diagnostics.workloads.workload import BatchCount, Training


def linear_training(settings: Settings) -> Any:
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    data = [(torch.randn(4), i % 2) for i in range(24)]
    loader = torch.utils.data.DataLoader(data, batch_size=settings.batch_size)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return training_of(model, optimizer, loader, torch.nn.CrossEntropyLoss(), settings=settings)


def test_accumulated_steps_equal_one_step_of_the_large_batch() -> None:
    weights = []
    for settings in (Settings(batch_size=8), Settings(batch_size=4, accumulation_steps=2)):
        training = linear_training(settings)
        probe = Probe()
        step = TrainingStep(training, settings, torch.device("cpu"), probe)
        probe.start()
        step()
        step()
        probe.end_block()
        table = probe.take()
        assert table.samples.tolist() == [8, 8]
        weights.append(training.model.weight.detach().clone())
    assert torch.allclose(weights[0], weights[1], atol=1e-6)


def test_a_partial_last_batch_counts_its_true_samples() -> None:
    settings = Settings(batch_size=10)
    probe = Probe()
    step = TrainingStep(linear_training(settings), settings, torch.device("cpu"), probe)
    probe.start()
    for _ in range(4):
        step()
    probe.end_block()
    table = probe.take()
    assert table.samples.tolist() == [10, 10, 4, 10]
    assert table.columns["epoch"].tolist() == [0, 0, 0, 1]


def test_precision_that_the_device_does_not_train_in_is_refused() -> None:
    cpu = torch.device("cpu")
    settings = Settings(batch_size=4, precision="float16")
    with pytest.raises(InvalidSettings, match="float16"):
        TrainingStep(linear_training(settings), settings, cpu, Probe())
    with pytest.raises(InvalidSettings, match="tf32"), process_settings(Settings(batch_size=4, precision="tf32"), cpu):
        pass


def test_the_scale_of_the_gradient_scaler_halves_with_each_skipped_update() -> None:
    settings = Settings(batch_size=4)
    training = linear_training(settings)
    step = TrainingStep(training, settings, torch.device("cpu"), Probe())
    assert step.loss_scale is None
    step._scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    step()
    assert step.loss_scale == 4.0
    training.model.weight.data.fill_(float("inf"))  # so that its gradients are no numbers
    step()
    assert step.loss_scale == 2.0


@pytest.mark.parametrize(("mode", "kept"), [("reduce-overhead", True), ("max-autotune", True), ("default", False)])
def test_a_loss_outlives_the_next_run_of_a_cuda_graph(mode: str, kept: bool) -> None:
    """Each run takes the memory of what the last one returned, as a graph does; the loss is read after both."""
    settings = Settings(batch_size=4, compile_mode=mode)
    training = linear_training(settings)
    returned: list[torch.Tensor] = []

    def loss_of(model: Any, batch: Any) -> torch.Tensor:
        for loss in returned:
            loss.detach().fill_(float("nan"))
        returned.append(training.loss_of(model, batch))
        return returned[-1]

    parts = dataclasses.replace(training, loss_of=loss_of, to_device=lambda batch, _device: batch)
    probe = Probe()
    step = TrainingStep(parts, settings, torch.device("cuda:0"), probe)
    probe.start()
    step()
    step()
    probe.end_block()
    losses = probe.take().columns["loss"]
    assert np.isfinite(losses).tolist() == [kept, True]


class _GraphedLinear(torch.autograd.Function):
    """A product whose backward leaves its gradients where the next run writes its own, as a CUDA graph's does."""

    room: ClassVar[dict[str, torch.Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.needed = len(weights)
        return sum((x * weight for weight in weights), torch.zeros(()))

    @staticmethod
    def backward(ctx: Any, *of_outputs: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        found = []
        for number in range(ctx.needed):
            room = _GraphedLinear.room.setdefault(f"{number}", torch.zeros(()))
            found.append(room.copy_((x * of_outputs[0]).sum()).detach())  # no copy: autograd takes it as it is
        return (None, *found)


class _Graphed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trained = torch.nn.Parameter(torch.ones(()))
        self.untrained = torch.nn.Parameter(torch.ones(()))  # has a gradient, and no optimizer
        self.unused = torch.nn.Parameter(torch.ones(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _GraphedLinear.apply(x, self.trained, self.untrained).sum()


@pytest.mark.parametrize("micro_steps", [1, 2, 3])
def test_gradients_that_a_cuda_graph_left_are_added_up(micro_steps: int) -> None:
    """Batches are 1, 2, 4, …: so is the gradient of each; without a copy the last one alone would be left, twice."""
    settings = Settings(batch_size=1, compile_mode="reduce-overhead", accumulation_steps=micro_steps)
    model = _Graphed()
    seen: list[tuple[float, float, object]] = []

    class Optimizer(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            of_trained, of_untrained = (float(one.grad) for one in (model.trained, model.untrained))
            seen.append((of_trained, of_untrained, model.unused.grad))

    training = Training(
        model=model,
        optimizer=Optimizer([model.trained, model.unused], lr=0.1),
        batches=[torch.tensor([2.0**power]) for power in range(9)],
        loss_of=lambda module, batch: module(batch) * micro_steps,
        count=lambda batch: BatchCount(len(batch)),
        to_device=lambda batch, _device: batch,
    )
    step = TrainingStep(training, settings, torch.device("cuda:0"), Unmeasured())
    for _ in range(3):
        step()
    sums = [sum(2.0**power for power in range(n * micro_steps, (n + 1) * micro_steps)) for n in range(3)]
    assert [of_trained for of_trained, _, _ in seen] == sums
    assert [of_untrained for _, of_untrained, _ in seen] == np.cumsum(sums).tolist()  # nobody clears it
    assert [of_unused for _, _, of_unused in seen] == [None] * 3
