"""What one look at a step says may go, and what may go beside it."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import Interval
from perf_diagnostics.diagnose.rule_parts.one_step import with_what_goes_beside
from tests.diagnose.answers import facts_of

#: Forward and backward take 80 % of the step.
FACTS = facts_of(forward=0.03, backward=0.05, optimizer=0.02)


@pytest.mark.parametrize(
    ("share", "most"),
    [
        (0.0, 0.0),
        (0.2, 0.4 / 1.2),
        (0.5, 1 / 1.5),
        (0.7, 0.8),  # 1.4 / 1.7 is more than forward and backward
        (0.9, 0.9),
    ],
)
def test_at_most_it_is_twice_as_long_beside_the_rest(share: float, most: float) -> None:
    found = with_what_goes_beside(FACTS, Interval(share, share / 2, share, 1))
    assert found.high == pytest.approx(most)
    assert (found.value, found.low) == (share, share / 2)


def test_without_an_upper_end_the_value_stands_for_it() -> None:
    assert with_what_goes_beside(FACTS, Interval(0.2, None, None, 1)).high == pytest.approx(0.4 / 1.2)
