"""Which pair runs next: what the time can finish is finished."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.rule_parts.experiments import Candidate
from perf_diagnostics.records import Length, Settings, Trial
from perf_diagnostics.trials.confirm.confirm_order import Attempt, Foreseen, Standing, foreseen, next_one
from perf_diagnostics.trials.confirm.pairs import experiment_of

#: Five pairs of 10 s each, none of which has run.
NEW = Standing(done=0, planned=5, pair_s=10.0)


def begun(done: int, pair_s: float = 10.0) -> Standing:
    return Standing(done=done, planned=5, pair_s=pair_s, begun=True)


def priced(pair_s: float) -> Standing:
    return Standing(done=0, planned=5, pair_s=pair_s)


def all_of(standings: list[Standing], left_s: float) -> list[int]:
    """Pairs that run in this time, if each takes what it was thought to."""
    while (place := next_one(standings, left_s)) is not None:
        one = standings[place]
        standings[place] = dataclasses.replace(one, done=one.done + 1, begun=True)
        left_s -= one.pair_s
    return [one.done for one in standings]


@pytest.mark.parametrize(
    ("budget_s", "pairs"),
    [
        (29.0, [0, 0, 0]),  # three pairs take 30 s
        (30.0, [3, 0, 0]),
        (59.0, [5, 0, 0]),  # the second would need 60 s: the rest goes to the first
        (60.0, [3, 3, 0]),
        (95.0, [3, 3, 3]),
        (105.0, [4, 3, 3]),
        (140.0, [5, 5, 4]),
        (1000.0, [5, 5, 5]),
    ],
)
def test_as_many_changes_as_fit_get_the_pairs_of_a_verdict_before_one_gets_more(
    budget_s: float, pairs: list[int]
) -> None:
    assert all_of([NEW, NEW, NEW], budget_s) == pairs


def test_without_a_limit_everything_runs() -> None:
    assert next_one([begun(5), begun(4)], None) == 1
    assert next_one([begun(5), begun(5)], None) is None
    assert next_one([], None) is None


def test_what_was_begun_goes_on_before_anything_new_is_begun() -> None:
    assert next_one([NEW, begun(1)], 100.0) == 1
    assert next_one([NEW, begun(3)], 100.0) == 0  # the second one has what a verdict needs


def test_a_pair_that_turns_out_dear_does_not_lead_to_another_beginning() -> None:
    """A minute, two changes that were thought to take 7 s a pair and take 25 s: the first one gets what there is."""
    assert all_of([begun(1, 25.0), Standing(done=0, planned=5, pair_s=25.0)], 35.0) == [2, 0]


def test_one_that_can_be_finished_comes_before_one_that_cannot() -> None:
    # Two pairs of 25 s do not fit into 35 s, three of 10 s do; no pair of 25 s into the 5 s that are left.
    assert all_of([begun(1, 25.0), NEW], 35.0) == [1, 3]


def test_what_has_failed_is_passed_over() -> None:
    assert next_one([dataclasses.replace(begun(1), over=True), NEW], 100.0) == 1


def test_who_asks_for_fewer_pairs_than_a_verdict_needs_gets_them() -> None:
    assert all_of([Standing(done=0, planned=1, pair_s=10.0)], 10.0) == [1]


def test_what_runs_within_the_time_is_foreseen() -> None:
    # 3 x 10 + 3 x 6 s; 3 x 17 s do not fit beside them; of the 12 s left one more pair of the first.
    assert foreseen([NEW, priced(17.0), priced(6.0)], 60.0) == [4, 0, 3]
    assert foreseen([NEW, begun(4), dataclasses.replace(begun(1), over=True)], None) == [5, 1, 0]
    assert foreseen([], 60.0) == []


def test_what_is_foreseen_counts_what_has_run() -> None:
    one = Foreseen(begun(2), pairs=1)
    assert (one.missing, one.missing_s, one.decides) == (3, 30.0, True)  # with the third it has what a verdict needs
    assert not Foreseen(begun(2), pairs=0).decides
    failed = Foreseen(dataclasses.replace(begun(1), over=True), pairs=0)
    assert (failed.missing, failed.missing_s, failed.decides) == (0, 0.0, False)


def test_the_trials_to_come_are_those_without_a_result() -> None:
    base = Trial(workload="mlp", settings=Settings(batch_size=8), length=Length.exactly(10))
    candidate = Candidate(about=(), says="", change={"threads": 1}, base=base, step_s=0.1, start_s=1.0)
    attempt = Attempt.of(candidate, experiment_of(candidate, number=0, pairs=3, length=base.length))
    (first, second), _, _ = attempt.pairs
    assert attempt.lacking(set(), 3) == 6
    assert attempt.lacking({first}, 1) == 1  # the rest of the pair that a kill cut in two
    assert attempt.lacking({first}, 2) == 3
    assert attempt.lacking({first, second}, 5) == 4
