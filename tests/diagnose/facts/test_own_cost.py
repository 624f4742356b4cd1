"""What measuring cost, in words."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured
from perf_diagnostics.diagnose.facts.own_cost import own_cost_s, own_cost_words
from tests.diagnose.answers import facts_of


def words(value: float, low: float | None = None, high: float | None = None, step_s: float = 2.0) -> str:
    ends = {"probe_overhead_low_s": low, "probe_overhead_high_s": high}
    measured = {"probe_overhead_s": value, **{name: end for name, end in ends.items() if end is not None}}
    return own_cost_words(facts_of(forward=step_s, quantities=measured))


def test_the_cost_its_interval_its_share_and_what_it_was_measured_on() -> None:
    # 12 us of 2 s are 0.0006 %.
    assert words(12e-6, 9e-6, 15e-6) == (
        "measuring itself costs 12.0 µs a step (9.0 to 15.0 µs), 0.0006 % of a step; measured on synthetic"
    )
    assert words(12e-6, 2e-6, 22e-6, step_s=0.001) == (
        "measuring itself costs 12 µs a step (2 to 22 µs), 1.2 % of a step; measured on synthetic"
    )
    assert words(0.02, 0.019, 0.021, step_s=1.0).startswith(
        "measuring itself costs 20.0 ms a step (19.0 to 21.0 ms), 2.0 % of a step;"
    )


def test_a_cost_without_an_interval_has_none_made_up() -> None:
    assert words(12e-6) == "measuring itself costs 12 µs a step, 0.0006 % of a step; measured on synthetic"


def test_what_chance_could_be_is_not_called_a_cost() -> None:
    # The upper end, 12 us of 2 s.
    assert words(4e-6, -2e-6, 12e-6) == (
        "measuring itself costs at most 12 µs a step, 0.0006 % of a step, not to be told from nothing (-2 to 12 µs); "
        "measured on synthetic"
    )
    assert words(0.0, 0.0, 0.0).startswith(
        "measuring itself costs at most 0 µs a step, 0 % of a step, not to be told from nothing (0 to 0 µs);"
    )


def test_a_cost_below_nothing_is_something_else() -> None:
    assert words(-5e-6, -8e-6, -2e-6).startswith(
        "steps without measuring took longer (-8.0 to -2.0 µs a step), so something else made the difference"
    )


def test_nobody_measured_it() -> None:
    with pytest.raises(NotMeasured):
        own_cost_words(facts_of())
    with pytest.raises(NotMeasured):
        own_cost_s(facts_of())
