"""Warm-up and stopping statistics on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.measure.steps.steady import mser5, relative_half_width


def ar1(rng: np.random.Generator, series: int, steps: int, rho: float, spread: float) -> np.ndarray:
    """Autocorrelated step times around 1.0 with standard deviation ``spread``, shape (series, steps)."""
    noise = rng.normal(0, spread * np.sqrt(1 - rho**2), (series, steps))
    values = np.empty_like(noise)
    values[:, 0] = rng.normal(0, spread, series)
    for step in range(1, steps):
        values[:, step] = rho * values[:, step - 1] + noise[:, step]
    return 1.0 + values


@pytest.mark.parametrize(("rho", "seen"), [(0.0, 0.952), (0.6, 0.950), (0.9, 0.927)])
def test_the_interval_covers_the_truth(rho: float, seen: float) -> None:
    """Share of 600 series of 400 steps whose interval holds 1.0, within three standard errors: neither less nor more.

    Treating steps as independent gives 0.66 at rho 0.6 and 0.33 at 0.9.
    """
    rng = np.random.default_rng(7)
    covered = 0
    for times in ar1(rng, 600, 400, rho, 0.1):
        width = relative_half_width(times)
        assert width is not None
        covered += abs(times.mean() - 1.0) <= width * times.mean()
    assert covered / 600 == pytest.approx(seen, abs=3 * np.sqrt(seen * (1 - seen) / 600))


def test_too_few_steps_have_no_interval_and_equal_ones_have_a_width_of_zero() -> None:
    assert relative_half_width([1.0] * 5) is None
    assert relative_half_width([1.0] * 6) == 0.0
    assert relative_half_width([]) is None


def test_a_transient_is_cut_and_a_steady_series_hardly() -> None:
    rng = np.random.default_rng(3)
    steady = rng.normal(1.0, 0.02, 200)
    slow_start = steady.copy()
    slow_start[:30] += np.linspace(1.0, 0.05, 30)
    cut = mser5(slow_start)
    assert cut.steady and 25 <= cut.steps <= 60
    assert np.median([mser5(rng.normal(1.0, 0.02, 200)).steps for _ in range(40)]) <= 20


def test_one_stall_is_no_transient() -> None:
    times = np.ones(200) + np.random.default_rng(0).normal(0, 0.01, 200)
    times[90] = 50.0
    assert mser5(times).steps < 50


def test_steps_that_never_settle_are_said_to_be_unsteady() -> None:
    growing = np.linspace(1.0, 3.0, 200)
    cut = mser5(growing)
    assert not cut.steady
    assert cut.steps == 100  # capped at half


def test_a_short_series_is_left_alone() -> None:
    assert mser5([3.0] + [1.0] * 30) == mser5([1.0] * 31)
    assert mser5([]).steps == 0
