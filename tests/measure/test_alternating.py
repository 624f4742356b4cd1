"""Blocks that take turns: what is added, with the arithmetic of its interval."""

from __future__ import annotations

import pytest

from perf_diagnostics.measure.alternating import Added, alternate, block_of, trimmed_interval


def test_few_values_have_students_interval() -> None:
    # Mean 2, standard deviation 1, three values: 4.3027 / sqrt(3) = 2.4841 to either side.
    assert trimmed_interval([1.0, 2.0, 3.0]) == pytest.approx((2.0, -0.4841, 4.4841), abs=1e-4)


def test_a_block_that_was_stopped_for_long_moves_nothing() -> None:
    # Of five values one is trimmed at either end: 1, 2, 3 are kept. Winsorised 1, 1, 2, 3, 3 have the standard
    # deviation 1; over 3/5 * sqrt(5), times Student's 4.3027 at 2 degrees of freedom, that is 3.2071.
    mean, low, high = trimmed_interval([2.0, 0.0, 1.0, 900.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, -1.2071, 5.2071), abs=1e-4)


def test_the_order_is_abba_and_a_drift_cancels() -> None:
    order: list[str] = []
    now = [0.0]

    def block(name: str, added: float):
        def run(steps: int) -> float:
            order.append(name)
            now[0] += 1.0  # each block takes 1 s longer than the one before it
            return now[0] + added

        return run

    added = alternate(block("A", 0.25), block("B", 0.0), pairs=4, steps=3)
    assert "".join(order) == "ABBAABBA"
    # The differences are 0.25 -1, +1, -1, +1.
    assert added.mean_s == pytest.approx(0.25)
    assert (added.pairs, added.steps) == (4, 3)
    assert added.plain_s == pytest.approx(4.5)  # plain blocks were the 2nd, 3rd, 6th and 7th


def test_it_ends_after_an_even_number_of_pairs_when_it_is_late_but_not_before_four() -> None:
    done: list[int] = []
    added = alternate(lambda _: done.append(1) or 0.0, lambda _: 0.0, pairs=40, steps=1, late=lambda: len(done) >= 5)
    assert added.pairs == 6
    assert alternate(lambda _: 0.0, lambda _: 0.0, pairs=40, steps=1, late=lambda: True).pairs == 4


def test_a_block_is_timed_between_two_waits() -> None:
    now = [0]

    def spend(ns: int) -> None:
        now[0] += ns

    block = block_of(lambda: spend(1_000_000), lambda: now[0], lambda: spend(500_000))
    assert block(5) == pytest.approx(0.0011)  # 5 ms of steps and the second wait; the first one lies before


def test_the_source_says_on_what_it_was_measured() -> None:
    added = Added(2e-6, 1e-6, 3e-6, 0.001, pairs=8, steps=1)
    mean, low, high = added.quantities("probe_overhead", "the trial's own steps")
    assert (mean.name, low.name, high.name) == ("probe_overhead_s", "probe_overhead_low_s", "probe_overhead_high_s")
    assert (mean.value, low.value, high.value, mean.unit) == (2e-6, 1e-6, 3e-6, "s")
    assert mean.source == "the trial's own steps; 8 pairs of alternating blocks of 1 step"
