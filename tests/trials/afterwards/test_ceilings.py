"""The measured ceilings, against what a machine can plausibly do and against their own arithmetic."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from perf_diagnostics.trials.afterwards import ceilings


def test_bytes_over_the_best_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_COPY_BYTES", 4 * 1000)
    times = itertools.cycle([0, 4000, 0, 2000, 0, 9000])  # copies of 4, 2 and 9 µs: the best counts
    assert ceilings.memory_bandwidth(torch.device("cpu"), clock=lambda: next(times)) == pytest.approx(2 * 4000 / 2e-6)


def test_copies_of_a_quick_device_are_timed_together() -> None:
    # 100 µs a copy and 20 µs to wait for the device: one by one they would look 17 % slower than they are.
    asked: list[int] = []

    def copies_ns(times: int) -> int:
        asked.append(times)
        return times * 100_000 + (20_000 if len(asked) > 1 else 50_000_000)  # the first one loads a kernel

    assert ceilings._best_copy_ns(copies_ns, queued=True) == pytest.approx(100_000, rel=0.01)
    assert asked == [1, 1, *[42] * 6]  # 42 of 120 µs are 5 ms
    assert ceilings._best_copy_ns(copies_ns, queued=False) == 120_000
    # Where one takes long enough, one it is.
    assert ceilings._best_copy_ns(lambda times: times * 9_000_000, queued=True) == 9_000_000


def test_a_real_copy_moves_gigabytes_a_second() -> None:
    found = ceilings.memory_bandwidth(torch.device("cpu"))
    assert found is not None
    assert 5e8 < found < 2e12


def test_no_room_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_COPY_BYTES", 2**60)
    assert ceilings.memory_bandwidth(torch.device("cpu")) is None


# -- products


class Products:
    """A clock that only products move: each takes 2 n³ operations at ``rate`` a second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self.now_ns = 0
        self.widths: list[int] = []

    def matmul(self, left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> None:
        assert left.shape == right.shape == out.shape
        self.widths.append(left.shape[0])
        self.now_ns += int(2 * left.shape[0] ** 3 / self.rate * 1e9)

    def __call__(self) -> int:
        return self.now_ns


def ceiling(rate: float, monkeypatch: pytest.MonkeyPatch, precision: str = "float32") -> tuple[float | None, Products]:
    products = Products(rate)
    monkeypatch.setattr(torch, "matmul", products.matmul)
    monkeypatch.setattr(ceilings, "_WIDEST", 1024)  # real memory is taken for them
    return ceilings.matmul_ceiling(torch.device("cpu"), precision, clock=products), products


@pytest.mark.parametrize("rate", [1e9, 50e9, 1e12, 100e12])
def test_products_find_the_rate_within_half_a_second(rate: float, monkeypatch: pytest.MonkeyPatch) -> None:
    found, products = ceiling(rate, monkeypatch)
    assert found == pytest.approx(rate, rel=0.01)
    assert products.now_ns < 0.5e9


def test_the_widest_product_that_the_time_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    # At 10e9 a second 256 takes 3.4 ms, 512 27 ms and 1024 215 ms, which twice (the first warms up) is too long.
    _, products = ceiling(10e9, monkeypatch)
    assert max(products.widths) == 512
    _, products = ceiling(1e12, monkeypatch)
    assert max(products.widths) == 1024


def test_quick_products_are_timed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1024 takes 21 µs here; a clock read must not be a part of what is measured, so hundreds run in a row.
    _, products = ceiling(100e12, monkeypatch)
    assert products.widths.count(1024) > 200


def test_no_room_for_products_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceilings, "_NARROWEST", 2**28)
    assert ceilings.matmul_ceiling(torch.device("cpu"), "float32") is None


def test_a_product_that_does_not_fit_keeps_what_the_smaller_ones_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    products = Products(1e12)

    def tight(left: torch.Tensor, right: torch.Tensor, *, out: torch.Tensor) -> None:
        if left.shape[0] > 256:
            raise RuntimeError("out of memory")
        products.matmul(left, right, out=out)

    monkeypatch.setattr(torch, "matmul", tight)
    assert ceilings.matmul_ceiling(torch.device("cpu"), "float32", clock=products) == pytest.approx(1e12, rel=0.01)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_real_product_does_gigaflops(precision: str) -> None:
    found = ceilings.matmul_ceiling(torch.device("cpu"), precision)
    assert found is not None
    assert 1e8 < found < 1e15


def test_a_devices_operands_are_random_and_nobody_elses_numbers_change(monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no device here: its generator and its numbers are the host's.
    generator, randn = torch.Generator, torch.randn
    asked: list[torch.device] = []

    def on_the_host(*shape: int, device: torch.device, **named: Any) -> torch.Tensor:
        asked.append(device)
        return randn(*shape, **named)

    monkeypatch.setattr(torch, "Generator", lambda _device: generator())
    monkeypatch.setattr(torch, "randn", on_the_host)
    before = torch.get_rng_state()
    found = ceilings._operands(64, torch.bfloat16, torch.device("cuda:0"))
    assert found.shape == (2, 64, 64) and found.dtype == torch.bfloat16 and found.unique().numel() > 100
    assert asked == [torch.device("cuda:0")] and torch.equal(torch.get_rng_state(), before)
    assert torch.equal(ceilings._operands(4, torch.float32, torch.device("cpu")), torch.ones(2, 4, 4))
