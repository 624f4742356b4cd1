"""How experiments are laid out: order within pairs, lengths, ids that never meet."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.rule_parts.experiments import Candidate, same_question
from perf_diagnostics.records import Length, Settings, Trial
from perf_diagnostics.trials.confirm.pairs import (
    LEAST_STEPS,
    MOST_STEPS,
    experiment_of,
    length_for,
    orders,
    trial_cost_s,
)

BASE = Trial(workload="mlp", settings=Settings(batch_size=8), repeat=3, length=Length())


def candidate(**change: int) -> Candidate:
    return Candidate(about=(), says="", change=change, base=BASE, step_s=0.5, start_s=4.0)


@pytest.mark.parametrize(
    ("step_s", "steps"),
    [(0.1, 50), (0.001, MOST_STEPS), (60.0, LEAST_STEPS), (0.0, MOST_STEPS)],  # 5 s over 0.1 s; bounded; unknown
)
def test_about_five_seconds_of_steps(step_s: float, steps: int) -> None:
    length = length_for(step_s)
    assert (length.min_steps, length.max_steps, length.half_width) == (steps, steps, 0.0)


def test_whole_rounds_of_the_workers_are_measured() -> None:
    assert length_for(60.0, workers=4).max_steps == 12  # 10 would be two rounds and a half
    assert length_for(60.0, workers=5).max_steps == LEAST_STEPS


def test_steps_that_are_asked_for_are_taken() -> None:
    assert length_for(0.1, steps=7, workers=4).max_steps == 7


def test_what_a_trial_costs() -> None:
    # 1 s around it, 4 s to the first step, 3 + 10 steps of 0.5 s.
    assert trial_cost_s(candidate(threads=1), length_for(0.5, steps=10)) == pytest.approx(1 + 4 + 6.5)


def test_the_arms_differ_in_the_change_alone_and_train_on_the_same_data() -> None:
    one = experiment_of(candidate(threads=2), number=1, pairs=5, length=Length.exactly(10))
    base, new = one.pair(4)
    assert (base.repeat, new.repeat) == (1004, 1004)
    assert base.seed == new.seed and base.length == new.length == Length.exactly(10)
    assert new.settings == base.settings.replace(threads=2)


def test_no_two_trials_of_a_run_share_an_id() -> None:
    made = [experiment_of(candidate(threads=n), number=n, pairs=3, length=Length.exactly(10)) for n in (1, 2, 3)]
    ids = [trial.id for one in made for i in range(3) for trial in one.pair(i)]
    assert len(set(ids)) == 18


@pytest.mark.parametrize("seed", range(8))
def test_of_every_two_pairs_one_begins_with_the_base(seed: int) -> None:
    one = experiment_of(candidate(threads=1), number=0, pairs=7, length=Length.exactly(10))
    order = orders(one, seed)
    assert len(order) == 7
    assert [sum(order[i : i + 2]) for i in (0, 2, 4)] == [1, 1, 1]
    assert order == orders(one, seed)


def test_the_order_is_drawn() -> None:
    one = experiment_of(candidate(threads=1), number=0, pairs=6, length=Length.exactly(10))
    assert len({orders(one, seed) for seed in range(30)}) > 4


def test_more_pairs_leave_the_order_of_the_first_as_it_was() -> None:
    few, many = (experiment_of(candidate(threads=1), number=0, pairs=n, length=Length.exactly(10)) for n in (3, 9))
    assert orders(many, 1)[:3] == orders(few, 1)


def test_the_same_question_has_the_same_name_whatever_length_and_repeat() -> None:
    other = Trial(workload="mlp", settings=Settings(batch_size=8), repeat=0, length=Length.exactly(5))
    assert same_question(BASE, {"threads": 1}) == same_question(other, {"threads": 1})
    assert same_question(BASE, {"threads": 1}) != same_question(BASE, {"threads": 2})
