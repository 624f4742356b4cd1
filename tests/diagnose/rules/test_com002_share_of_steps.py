"""COM002: a rank that is late in half of the steps is not always last; by few occasions it is not named either."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Cleared, Finding
from perf_diagnostics.diagnose.rules.com002_straggler import Straggler
from tests.diagnose.rules.test_com_ranks import STEPS, check, job


@pytest.mark.parametrize(("late_in_ten", "named"), [(5, False), (7, True), (10, True)])
def test_the_same_rank_has_to_be_last_in_60_percent_of_the_steps(late_in_ten: int, named: bool) -> None:
    at = np.arange(STEPS)
    late = at % 10 < late_in_ten
    # Rank 1 takes 40 ms more in these; in the others rank 0 and rank 2 take 2 ms more in turn, so that nobody is last
    # by chance.
    answer = check(
        Straggler(),
        job(
            {"own": np.where(~late & (at % 2 == 0), 0.002, 0.0)},
            {"own": np.where(late, 0.040, 0.0)},
            {"own": np.where(~late & (at % 2 == 1), 0.002, 0.0)},
        ),
    )
    assert isinstance(answer, Finding if named else Cleared)
    excess, often = answer.evidence[:2]
    assert "rank 1" in often.metric and often.value == pytest.approx(10 * late_in_ten, abs=0.1)
    # Of steps of 100 ms, against the median of the others, which is 1 ms where one of them takes 2.
    assert excess.value == pytest.approx(4 * late_in_ten - 0.1 * (10 - late_in_ten), abs=0.2)
    assert excess.low is not None and excess.low > 10
