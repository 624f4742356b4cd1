"""What first workers make of a wait: at best the rest of the step with the hand-over, at worst the most it cost."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.loaders.hand_over import (
    HAND_OVER_MOST_S,
    HAND_OVER_ROOMY_S,
    HAND_OVER_S,
    SMALL,
    FirstWorkers,
    HandedOver,
)
from perf_diagnostics.diagnose.wording import duration
from perf_diagnostics.testing import trial_of


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
    assert SMALL.most_s(free) == most
    assert SMALL.costs(free).split(" to ") == [duration(HAND_OVER_S), duration(most)]
    assert FirstWorkers(0.060, 0.040, 1, free).at_worst(3) == pytest.approx(0.040 + most)


def test_many_small_tensors_cost_more_than_they_weigh() -> None:
    """512 tensors of 400 bytes took the loop 54 ms of CPU time, two of them 0.7 ms."""
    many = HandedOver(tensors=512, bytes=512 * 400)
    assert many.least_s == pytest.approx(HAND_OVER_S + 510 * 0.1e-3 + 512 * 400 * 0.35e-9)
    assert many.calls_s == pytest.approx(HAND_OVER_S + 510 * 0.1e-3)
    assert many.most_s(1) == pytest.approx(HAND_OVER_MOST_S + 504 * 0.3e-3 + 512 * 400 * 3.5e-9)
    # 30 ms of making them in the loop is less than workers could save, however many cores there are.
    assert not FirstWorkers(0.030, 0.040, 1, 12, many).surely_win(4)
    assert FirstWorkers(0.030, 0.040, 1, 12).surely_win(4)


def test_bytes_of_a_batch_cost_in_proportion() -> None:
    images = HandedOver(tensors=2, bytes=38.5e6)  # 64 of 3 x 224 x 224 in single precision
    assert images.least_s == pytest.approx(0.3e-3 + 38.5e6 * 0.35e-9)
    assert (images.most_s(12), images.most_s(0)) == pytest.approx((2e-3 + 38.5e-3, 5e-3 + 134.75e-3))
    # In memory they are stacked in 20 ms, and decoded in 400 ms: only what takes long is worth a hand-over.
    assert not FirstWorkers(0.020, 0.200, 1, 12, images).surely_win(2)
    assert FirstWorkers(0.400, 0.200, 1, 12, images).surely_win(2)


def test_what_nobody_looked_at_is_taken_for_two_small_tensors() -> None:
    assert HandedOver.of(TrialFacts.of(trial_of(data_wait=0.3, forward=0.7))) == SMALL
    looked = trial_of(data_wait=0.3, forward=0.7, facts={"batch_tensors": 3.5, "batch_bytes": 1e6})
    assert HandedOver.of(TrialFacts.of(looked)) == HandedOver(3.5, 1e6)
    # Half of it says nothing of a batch; a batch without tensors is one.
    assert HandedOver.of(TrialFacts.of(trial_of(data_wait=0.3, facts={"batch_bytes": 1e6}))) == SMALL
    strings = HandedOver.of(TrialFacts.of(trial_of(data_wait=0.3, facts={"batch_tensors": 0, "batch_bytes": 0})))
    assert strings.least_s == HAND_OVER_S
