"""What first workers make of a wait: at best the rest of the step with the hand-over, at worst the most it cost."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.loaders.hand_over import (
    HAND_OVER_MOST_S,
    HAND_OVER_ROOMY_S,
    HAND_OVER_S,
    FirstWorkers,
    costs,
    most_s,
)
from perf_diagnostics.diagnose.wording import duration


def test_at_best_the_loop_waits_for_the_hand_over_or_for_its_workers() -> None:
    few = FirstWorkers(work_s=0.060, rest_s=0.040, batches=1, free_cores=1)
    assert few.at_best(1) == pytest.approx(0.060)  # one worker makes a batch in 60 ms, longer than the rest
    assert few.at_best(2) == pytest.approx(0.040 + HAND_OVER_S)
    assert FirstWorkers(0.060, 0.040, batches=4, free_cores=1).at_best(2) == pytest.approx(0.040 + 4 * HAND_OVER_S)


def test_at_worst_each_batch_costs_the_most_that_was_measured() -> None:
    few = FirstWorkers(work_s=0.060, rest_s=0.040, batches=4, free_cores=1)
    assert few.at_worst(1) == pytest.approx(0.060 + 4 * HAND_OVER_MOST_S)
    assert few.at_worst(3) == pytest.approx(0.040 + 4 * HAND_OVER_MOST_S)


@pytest.mark.parametrize(
    ("batches", "of_most", "wins"), [(1, 0.9, False), (1, 1.1, True), (3, 2.9, False), (3, 3.1, True)]
)
def test_they_surely_win_only_where_the_wait_is_longer_than_that(batches: int, of_most: float, wins: bool) -> None:
    assert FirstWorkers(of_most * HAND_OVER_MOST_S, 0.1, batches, 1).surely_win(1) is wins


def test_workers_that_take_as_long_as_the_step_win_nothing() -> None:
    # The step is all loading: one worker takes as long as the loop, two halve it.
    assert not FirstWorkers(0.1, 0.0, 1, 1).surely_win(1)
    assert FirstWorkers(0.1, 0.0, 1, 1).surely_win(2)


@pytest.mark.parametrize(
    ("free", "most"), [(None, HAND_OVER_MOST_S), (0, HAND_OVER_MOST_S), (1, HAND_OVER_MOST_S), (2, HAND_OVER_ROOMY_S)]
)
def test_it_costs_less_where_cores_are_free(free: float | None, most: float) -> None:
    assert most_s(free) == most
    assert costs(free).split(" to ") == [duration(HAND_OVER_S), duration(most)]
    assert FirstWorkers(0.060, 0.040, 1, free).at_worst(3) == pytest.approx(0.040 + most)
