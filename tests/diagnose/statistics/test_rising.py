"""What rises all along and what only looks so: simulated series, with how often each is taken for a rise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from perf_diagnostics.diagnose.statistics.rising import rising
from perf_diagnostics.records import Float64

Draw = Callable[[np.random.Generator, int], Float64]


def scatter(rng: np.random.Generator, n: int) -> Float64:
    return 1 + 0.05 * rng.standard_normal(n)


def correlated(rng: np.random.Generator, n: int, rho: float) -> Float64:
    """AR(1) around 1 with a standard deviation of 0.1."""
    found = np.empty(n)
    found[0] = rng.standard_normal()
    for at, fresh in enumerate(rng.standard_normal(n - 1) * np.sqrt(1 - rho**2)):
        found[at + 1] = rho * found[at] + fresh
    return 1 + 0.1 * found


def bursts(rng: np.random.Generator, n: int) -> Float64:
    """Steps 40 % longer for 25 in a row, about every 80 steps."""
    times, at = scatter(rng, n), 0
    while at < n:
        at += int(rng.exponential(80))
        length = int(rng.exponential(25)) + 1
        times[at : at + length] *= 1.4
        at += length
    return times


STEADY: dict[str, Draw] = {
    "independent": scatter,
    "AR(1) with 0.5": lambda rng, n: correlated(rng, n, 0.5),
    "AR(1) with 0.9": lambda rng, n: correlated(rng, n, 0.9),
    "bursts": bursts,
    "every seventh step": lambda rng, n: scatter(rng, n) * (1 + 0.5 * (np.arange(n) % 7 == 0)),
    "heavy tails": lambda rng, n: 1 + 0.05 * np.abs(rng.standard_t(1.5, n)),
    "a new level": lambda rng, n: scatter(rng, n) * np.where(np.arange(n) < rng.uniform(0.2, 0.8) * n, 1.0, 1.4),
    "fills up": lambda rng, n: scatter(rng, n) + 0.5 * (1 - np.exp(-5 * np.arange(n) / n)),
}
RISES: dict[str, tuple[Draw, float]] = {
    "a fifth": (lambda rng, n: scatter(rng, n) * np.linspace(1, 1.2, n), 0.9),
    "to twice": (lambda rng, n: scatter(rng, n) * np.linspace(1, 2, n), 0.95),
    "a fifth, with stalls": (lambda rng, n: scatter(rng, n) * np.linspace(1, 1.2, n) + 3 * (rng.random(n) < 0.01), 0.9),
    "to twice, in bursts": (lambda rng, n: bursts(rng, n) * np.linspace(1, 2, n), 0.5),
    "faster and faster": (lambda rng, n: scatter(rng, n) * (1 + np.linspace(0, 1, n) ** 2), 0.8),
}


def share(draw: Draw, *, n: int, runs: int = 40) -> float:
    rng = np.random.default_rng(7)
    return float(np.mean([rising(draw(rng, n)) is not None for _ in range(runs)]))


@pytest.mark.parametrize("n", [120, 600])
@pytest.mark.parametrize("what", STEADY)
def test_what_does_not_rise_all_along_is_hardly_ever_taken_for_a_rise(what: str, n: int) -> None:
    assert share(STEADY[what], n=n) <= 0.025  # one of 40


@pytest.mark.parametrize("what", RISES)
def test_what_rises_is_found(what: str) -> None:
    draw, least = RISES[what]
    assert share(draw, n=300) >= least


def test_how_far_a_rise_lies_above_its_beginning() -> None:
    """From 2 to 6 in a straight line: 2 above the first value on average; squared: 4 / 3."""
    rng, line = np.random.default_rng(3), np.linspace(0, 1, 400)
    for course, above in ((line, 2.0), (line**2, 4 / 3)):
        found = rising((2 + 4 * course) * scatter(rng, 400))
        assert found is not None
        assert (found.first, found.last) == pytest.approx((2, 6), rel=0.1)
        assert found.per_value == pytest.approx(4 / 399, rel=0.1)
        assert found.above.low is not None and found.above.high is not None
        assert found.above.low < above < found.above.high
        assert found.above.high - found.above.low < 0.5


def test_a_block_that_was_disturbed_throughout_hides_no_rise() -> None:
    times = np.linspace(1, 2, 400) * scatter(np.random.default_rng(5), 400)
    times[200:240] *= 3
    found = rising(times)
    assert found is not None and found.last == pytest.approx(2, rel=0.05)


def test_few_values_and_falling_ones_do_not_rise() -> None:
    assert rising(np.linspace(1, 5, 59)) is None
    assert rising(np.linspace(1, 5, 60)) is not None
    assert rising(np.linspace(5, 1, 200)) is None
    assert rising(np.ones(200)) is None
