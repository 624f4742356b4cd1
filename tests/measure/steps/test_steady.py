"""Warm-up and stopping statistics on series whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.measure.steps.steady import Truncation, mser5, relative_half_width


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
    assert cut.steps == 0  # neither end is the right one


def test_a_slow_start_with_stalls_behind_it_is_cut_as_one_without() -> None:
    rng = np.random.default_rng(5)
    times = rng.normal(1.0, 0.03, 200)
    times[:30] += 2.0 * np.exp(-np.arange(30) / 8)
    times[20::40] += 40.0
    cut = mser5(times)
    assert cut.steady and 15 <= cut.steps <= 60


@pytest.mark.parametrize(("level", "part"), [(1.3, 0.35), (0.7, 0.35), (1.3, 0.5)])
def test_a_level_that_lasted_long_is_no_warm_up(level: float, part: float) -> None:
    times = np.random.default_rng(6).normal(1.0, 0.03, 200)
    times[: int(200 * part)] *= level
    assert mser5(times) == Truncation(0, steady=False)
    short = np.random.default_rng(6).normal(1.0, 0.03, 200)
    short[:30] *= level
    assert mser5(short) == Truncation(30, steady=True)


def test_a_short_series_is_left_alone() -> None:
    assert mser5([3.0] + [1.0] * 30) == mser5([1.0] * 31)
    assert mser5([]).steps == 0
