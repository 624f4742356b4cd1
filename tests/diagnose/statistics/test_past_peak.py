"""How often a sweep that is flat at its end is called slower there, and what true losses are still found."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from perf_diagnostics.diagnose.rules.swp003_past_the_peak import PastThePeak
from perf_diagnostics.diagnose.statistics.intervals import Interval
from perf_diagnostics.diagnose.statistics.past_peak import (
    FALLING,
    Scatter,
    falls_throughout,
    last_of_best,
    last_over_best,
    scatter_around_a_line,
    scatter_of_repeats,
)

RULE = PastThePeak()

#: What the rule warns from.
WARNS = 1 - RULE.warn_loss

#: Of sweeps that lose nothing at most so many warn.
MOST = {1: 0.05, 2: 0.01, 3: 0.01}


def warned(
    true: Sequence[float], scatter: float, *, processes: int = 1, sweeps: int = 500, steps_known_to: float = 0.004
) -> float:
    """The share of sweeps that warn: throughput ``true``, processes that differ by ``scatter``, sizes 8, 16, 32 …"""
    rng = np.random.default_rng((len(true), processes, round(1000 * scatter), round(1000 * sum(true))))
    drawn = np.asarray(true)[None, :, None] * np.exp(scatter * rng.standard_normal((sweeps, len(true), processes)))
    batches = [8.0 * 2**index for index in range(len(true))]
    means = drawn.mean(axis=2)
    lost = means[:, -1] < WARNS * means[:, :-1].max(axis=1)  # no other can be surely below it
    hits = 0
    for rates, mean in zip(drawn[lost].tolist(), means[lost].tolist(), strict=True):
        sizes = [
            [Interval(rate, rate * (1 - steps_known_to), rate * (1 + steps_known_to), 40) for rate in size]
            for size in rates
        ]
        seconds = [batch / rate for batch, rate in zip(batches, mean, strict=True)]
        hits += last_over_best(sizes, batches, seconds, single=RULE.processes, unknown=RULE.unknown).surely_below(WARNS)
    return hits / sweeps


def rising(sizes: int, flat: int) -> list[float]:
    """Throughput that nearly doubles with each size up to the last ``flat`` ones, which are equal."""
    return [1000.0 * 1.9 ** min(0, index - (sizes - flat)) for index in range(sizes)]


def saturating(sizes: int, half: float = 16.0) -> list[float]:
    """A fixed cost of so many samples and a cost a sample: what most healthy sweeps are."""
    return [1000.0 * 8 * 2**index / (8 * 2**index + half) for index in range(sizes)]


@pytest.mark.parametrize(("sizes", "processes"), [(3, 1), (5, 1), (8, 1), (3, 2), (8, 3)])
def test_flat_sweeps_seldom_warn(sizes, processes):
    """At 5 % of scatter and three sizes 18 % did, when only 1 % and what the sweep showed of it were allowed for."""
    for scatter in (0.05, 0.10):
        assert warned([1000.0] * sizes, scatter, processes=processes) <= MOST[processes]


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2, 3])
@pytest.mark.parametrize("sizes", [3, 4, 5, 6, 7, 8])
def test_sweeps_that_lose_nothing_seldom_warn(sizes, processes):
    """Flat, flat from any size on (where nothing before shows the scatter), and saturating as a fixed cost makes it."""
    shapes = [rising(sizes, flat) for flat in range(2, sizes + 1)] + [saturating(sizes)]
    for scatter in (0.02, 0.05, 0.10):
        rates = [warned(true, scatter, processes=processes, sweeps=1000) for true in shapes]
        assert max(rates) <= MOST[processes] + 0.007, (scatter, rates)  # 1,000 draws know 5 % to 0.7 of a per cent


@pytest.mark.parametrize(
    ("sizes", "processes", "scatter", "loss", "least"),
    [
        # Of 200 sweeps each; what the rule's docstring says.
        (3, 1, 0.02, 0.35, 0.95),  # 1.00
        (6, 1, 0.01, 0.20, 0.95),  # 0.99
        (5, 1, 0.01, 0.20, 0.70),  # 0.83
        (3, 2, 0.01, 0.20, 0.95),  # 1.00
        (3, 3, 0.01, 0.10, 0.95),  # 0.99
        (5, 3, 0.02, 0.10, 0.55),  # 0.67
        (5, 3, 0.05, 0.20, 0.75),  # 0.84
    ],
)
def test_true_losses_are_found(sizes, processes, scatter, loss, least):
    true = saturating(sizes - 1)
    assert warned([*true, true[-1] * (1 - loss)], scatter, processes=processes, sweeps=200) >= least


def test_a_fifth_lost_at_the_last_of_three_sizes_that_ran_once_is_no_warning():
    """What three numbers cannot tell from processes that differ by 10 %."""
    assert warned([500.0, 1000.0, 800.0], 0.01, sweeps=100) == 0.0


def test_what_repeats_differ_by_is_pooled_over_the_sizes():
    # Logarithms 0.1 apart and 0.2 apart: squares about the means 0.005 and 0.02, over two degrees.
    found = scatter_of_repeats([[1.0, math.exp(0.1)], [5.0, 5.0 * math.exp(0.2)], [7.0]])
    assert found is not None and found.degrees == 2
    assert found.value == pytest.approx(math.sqrt(0.025 / 2))
    assert scatter_of_repeats([[1.0, 1.1], [2.0], [3.0]]) is None  # one degree says nearly nothing


def test_the_reach_is_students_for_each_of_the_comparisons():
    # t with 6 degrees at 97.5 % is 2.447, and at 98.75 %, for two comparisons, 2.969.
    assert Scatter(0.01, 6).reach(1) == pytest.approx(2.447, abs=1e-3)
    assert Scatter(0.01, 6).reach(2) == pytest.approx(2.969, abs=1e-3)


def test_step_times_on_a_line_have_no_scatter_and_others_have():
    batches = np.array([8.0, 16.0, 32.0, 64.0])
    assert scatter_around_a_line(batches, 0.01 + 0.001 * batches).value == pytest.approx(0.0, abs=1e-12)
    off = 0.01 + 0.001 * batches
    off[2] *= 1.1
    assert 0.03 < scatter_around_a_line(batches, off).value < 0.10
    assert scatter_around_a_line(batches[:3], 0.001 * batches[:3]) is None


def one_each(rates: Sequence[float]) -> Interval:
    sizes = [[Interval(rate, rate, rate, 40)] for rate in rates]
    batches = [8.0 * 2**index for index in range(len(rates))]
    seconds = [batch / rate for batch, rate in zip(batches, rates, strict=True)]
    return last_over_best(sizes, batches, seconds, single=0.01, unknown=0.085)


def test_of_single_processes_nothing_is_known_but_what_is_assumed():
    # 2.241 (97.5 % for two comparisons) times 8.5 % times the root of two: exp(0.2694).
    ratio = one_each([80.0, 100.0, 70.0])
    assert (ratio.value, ratio.high) == pytest.approx((0.7, 0.7 * math.exp(2.2414 * 0.085 * math.sqrt(2))), rel=1e-4)


def test_five_sizes_that_fall_one_after_the_other_are_no_chance():
    assert falls_throughout([100.0, 99.0, 98.0, 97.0, 90.0]) == FALLING
    assert falls_throughout([98.0, 99.0, 98.0, 97.0, 90.0]) == 4
    assert falls_throughout([1.0, 2.0]) == 1
    falling = one_each([100.0, 96.0, 90.0, 84.0, 78.0])
    exact = [Interval(rate, rate, rate, 40) for rate in (100.0, 96.0, 90.0, 84.0, 78.0)]
    assert falling == last_of_best(exact, [1] * 5, single=0.01)
    assert falling.surely_below(WARNS)
    assert not one_each([96.0, 100.0, 90.0, 84.0, 78.0]).surely_below(WARNS)


def test_the_best_at_the_end_is_no_loss():
    assert one_each([80.0, 100.0, 101.0]) == Interval(1.0, 1.0, 1.0, 40)
