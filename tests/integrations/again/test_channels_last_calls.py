"""Trained models whose filters and images are stored channels last, in a script that does neither."""

from __future__ import annotations

import pytest
import torch

from perf_diagnostics.integrations.again.channels_last_calls import ChannelsLastCalls


class Net(torch.nn.Module):
    """Two convolutions; notes whether what it is called with, and what it makes of it, lies channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.second = torch.nn.Conv2d(8, 4, 3, padding=1)
        self.seen: list[tuple[bool, bool]] = []

    def forward(self, x: torch.Tensor, *, weights: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        self.seen.append((lies_last(x), lies_last(hidden)))
        assert weights.shape == (2,)
        out: torch.Tensor = self.second(hidden).mean(dim=(1, 2, 3)) * weights
        return out


def lies_last(tensor: torch.Tensor) -> bool:
    return tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous()


def test_filters_and_images_lie_channels_last_and_the_numbers_stay() -> None:
    torch.manual_seed(0)
    plain, turned = Net(), Net()
    turned.load_state_dict(plain.state_dict())
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9) for net in (plain, turned)]
    calls = ChannelsLastCalls()
    calls.put_into(turned)
    assert calls.without_effect == "no call of a trained model was met"
    assert lies_last(turned.first.weight) and not lies_last(plain.first.weight)
    x, weights = torch.randn(2, 3, 8, 8), torch.ones(2)
    for _ in range(3):
        for net, optimizer in zip((plain, turned), optimizers, strict=True):
            net(x, weights=weights).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert turned.seen == [(True, True)] * 3 and plain.seen == [(False, False)] * 3
    for one, other in zip(plain.parameters(), turned.parameters(), strict=True):
        torch.testing.assert_close(one, other)
    assert not calls.without_effect


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (torch.nn.Linear(3, 2), "the model convolves no images"),
        (torch.nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last), "the filters lie so already"),  # type: ignore[call-overload]
    ],
)
def test_a_model_that_cannot_be_turned_around_is_told(model: torch.nn.Module, why: str) -> None:
    calls = ChannelsLastCalls()
    calls.put_into(model)
    assert calls.without_effect == why


def test_a_second_model_without_images_takes_nothing_back() -> None:
    """A GAN's discriminator may convolve while its generator does not."""
    calls, net = ChannelsLastCalls(), Net()
    calls.put_into(net)
    net(torch.randn(2, 3, 8, 8), weights=torch.ones(2))
    calls.put_into(torch.nn.Linear(3, 2))
    assert not calls.without_effect
