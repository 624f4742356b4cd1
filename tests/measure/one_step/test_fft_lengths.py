"""Which transforms are told as slow by their length, and what the next fast length would take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.one_step import fft_lengths
from perf_diagnostics.measure.one_step.fft_lengths import SIGNAL
from perf_diagnostics.prime_factors import fast_length, largest_factor
from tests.measure.one_step.test_needless_operators import told, trained


@pytest.mark.parametrize(
    ("length", "factor", "fast"), [(1, 1, 2), (2879, 2879, 2880), (2880, 5, 2880), (34, 17, 36), (121, 11, 126)]
)
def test_lengths_and_their_factors(length: int, factor: int, fast: int) -> None:
    assert largest_factor(length) == factor and fast_length(length) == fast


@pytest.fixture
def _by_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A transform that is tried takes four times as long where its length has a large factor."""
    monkeypatch.setattr(
        fft_lengths, "_took", lambda _ran, _dim, length: 0.001 if largest_factor(length) > 13 else 0.00025
    )


def _convolved(length: int) -> Callable[[], torch.Tensor]:
    signal, kernel = trained(4, 20), trained(4, 20)

    def loss() -> torch.Tensor:
        spectrum = torch.fft.rfft(signal, n=length) * torch.fft.rfft(kernel, n=length)
        return torch.fft.irfft(spectrum, n=length).square().sum()

    return loss


@pytest.mark.usefixtures("_by_length")
def test_a_convolution_of_prime_length_is_told_with_the_next_fast_one() -> None:
    lines = told(SIGNAL, _convolved(41))
    assert {(one["length"], one["instead"]) for one in lines} == {(41, 42)}
    assert sum(one["calls"] for one in lines) == 3  # two there, and one back
    assert all(0 < one["forward"] < 1 and 0 < one["backward"] < 1 for one in lines)


@pytest.mark.usefixtures("_by_length")
@pytest.mark.parametrize("length", [40, 44, 39])
def test_small_factors_are_fast(length: int) -> None:
    assert told(SIGNAL, _convolved(length)) == []


@pytest.mark.usefixtures("_by_length")
def test_complex_ones_are_looked_at_as_well_and_those_over_several_dimensions_are_not() -> None:
    wave = trained(4, 41).to(torch.complex64).detach().requires_grad_()
    (one,) = told(SIGNAL, lambda: torch.fft.fft(wave).abs().sum())
    assert one["length"] == 41 and one["calls"] == 1
    image: Any = trained(41, 41)
    assert told(SIGNAL, lambda: torch.fft.rfft2(image).abs().sum()) == []


def test_a_length_that_is_as_fast_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for part, tells in ((0.85, False), (0.75, True)):
        took = {41: 0.001, 42: 0.001 * part}
        monkeypatch.setattr(fft_lengths, "_took", lambda _ran, _dim, length, took=took: took[length])
        assert bool(told(SIGNAL, _convolved(41))) is tells


@pytest.mark.parametrize("transform", [torch.fft.rfft, torch.fft.fft, lambda one: torch.fft.irfft(one, n=41)])
def test_both_lengths_are_really_tried(monkeypatch: pytest.MonkeyPatch, transform: Any) -> None:
    """How long each takes is another matter."""
    took, tried = fft_lengths._took, []

    def tries(ran: Any, dim: int, length: int) -> float:
        assert took(ran, dim, length) >= 0
        tried.append(length)
        return 1.0 if length == 41 else 0.5

    monkeypatch.setattr(fft_lengths, "_took", tries)
    signal = trained(4, 41)
    (one,) = told(SIGNAL, lambda: transform(signal).abs().sum())
    assert (one["length"], one["instead"]) == (41, 42) and tried == [41, 42] * 3


def test_what_would_take_long_to_try_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fft_lengths, "_BUDGET_S", 0.0)
    assert told(SIGNAL, _convolved(41)) == []


def test_the_remedy_gives_the_same_convolution() -> None:
    signal, kernel = trained(4, 20), trained(4, 22)

    def convolved(n: int) -> torch.Tensor:
        return torch.fft.irfft(torch.fft.rfft(signal, n=n) * torch.fft.rfft(kernel, n=n), n=n)[:, :41]

    torch.testing.assert_close(convolved(41), convolved(fast_length(41)))
