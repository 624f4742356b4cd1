"""Images channel by channel last: model and batches alike, and told where there is nothing to gain."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Settings
from perf_diagnostics.trials.steps.to_device import move
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.training_of_parts import training_of

CPU = torch.device("cpu")


def is_channels_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


class Looking(torch.nn.Module):
    """A small convolution that remembers how its images came."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 4, 3)
        self.head = torch.nn.Linear(4, 2)
        self.seen: list[bool] = []

    def forward(self, images: torch.Tensor) -> Any:
        self.seen.append(is_channels_last(images))
        return self.head(self.convolution(images).mean(dim=(2, 3)))


def stepped(model: torch.nn.Module, x: torch.Tensor, *, channels_last: bool | None) -> torch.nn.Module:
    settings = Settings(batch_size=4, channels_last=channels_last)
    loader = torch.utils.data.DataLoader([(x, 0)] * 8, batch_size=4)  # type: ignore[arg-type]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    training = training_of(model, optimizer, loader, torch.nn.CrossEntropyLoss(), settings=settings)
    probe = Probe()
    step = TrainingStep(training, settings, CPU, probe)
    probe.start()
    step()
    probe.end_block()
    return model


@pytest.mark.parametrize("channels_last", [True, None])
def test_model_and_batches_are_stored_so_if_asked(channels_last: bool | None) -> None:
    model = Looking()
    stepped(model, torch.randn(3, 8, 8), channels_last=channels_last)
    assert model.seen == [bool(channels_last)]
    assert is_channels_last(model.convolution.weight) is bool(channels_last)


def test_the_same_is_computed_either_way() -> None:
    torch.manual_seed(0)
    image = torch.randn(3, 8, 8)
    weights = []
    for channels_last in (True, None):
        torch.manual_seed(1)
        model = stepped(Looking(), image, channels_last=channels_last)
        weights.append(model.head.weight.detach())
    assert torch.allclose(weights[0], weights[1], atol=1e-6)


def test_a_model_without_images_says_that_it_would_gain_nothing() -> None:
    with pytest.raises(InvalidSettings, match="channels_last=True: no parameter of the Linear has four dimensions"):
        stepped(torch.nn.Linear(4, 2), torch.randn(4), channels_last=True)


def test_only_tensors_of_four_dimensions_are_changed() -> None:
    batch = {"images": torch.randn(2, 3, 4, 4), "words": torch.randn(2, 3, 4), "more": [(torch.randn(1, 3, 4, 4), "a")]}
    moved = move(batch, CPU, non_blocking=False, channels_last=True)
    assert is_channels_last(moved["images"]) and moved["words"].is_contiguous()
    assert moved["more"][0][0].is_contiguous(memory_format=torch.channels_last) and moved["more"][0][1] == "a"
    assert batch["images"].is_contiguous()  # the batch itself is as it was
