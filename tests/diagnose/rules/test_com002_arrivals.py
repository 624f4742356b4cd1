"""COM002 and its neighbours by when ranks arrive: jobs whose waits are worked out from what each rank does itself."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.ranks.arrivals import median_interval
from perf_diagnostics.diagnose.ranks.lateness import noise_ns, often_last
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.rules.com004_rank_imbalance import RankImbalance
from perf_diagnostics.records import Float64, StepTable, TrialResult
from tests.diagnose.rules.rank_trials import STEPS, of_ranks

AT = np.arange(STEPS)

#: What each rank does in a step without a fault, in ms: 59 in all, and 1 of exchange.
OWN = {"data_wait": 5.0, "forward": 10.0, "backward": 40.0, "optimizer": 4.0}
EXCHANGE = 1.0


def job(
    ranks: int, late: dict[tuple[int, str], Any], *, noise: float = 0.3, seed: int = 0, **facts: Any
) -> TrialResult:
    """A training in which ``late[rank, phase]`` ms come on top of a rank's own time, one number or one a step.

    All ranks leave an exchange together, when the last one has arrived. DDP times those of the steps 1 to 9, and they
    are written beside the steps 3 to 11.
    """
    rng = np.random.default_rng(seed)
    own = {phase: np.tile(ms, (ranks, STEPS)) for phase, ms in OWN.items()}
    own["forward"] = own["forward"] + noise * rng.standard_normal((ranks, STEPS))
    for (rank, phase), ms in late.items():
        own[phase][rank] += ms
    # A slow optimizer of the step before delays the arrival in this one.
    earlier = np.concatenate([np.zeros((ranks, 1)), own["optimizer"][:, :-1]], axis=1)
    arrival = earlier + own["data_wait"] + own["forward"] + own["backward"]
    exposed = arrival.max(axis=0) - arrival + EXCHANGE
    written = np.full((ranks, STEPS), np.nan)
    written[:, 3:12] = exposed[:, 1:10]
    tables = []
    for rank in range(ranks):
        phases = {f"host_{phase}_ns": times[rank] * 1e6 for phase, times in own.items()}
        phases["host_backward_ns"] = phases["host_backward_ns"] + exposed[rank] * 1e6
        exchange = {"exchange_ns": written[rank] * 1e6, "exchange_hidden_ns": 0 * written[rank]}
        tables.append({**phases, **exchange, "wall_ns": sum(phases.values())})
    return of_ranks(*tables, facts=facts)


def check(rule: Any, result: TrialResult) -> Finding | Cleared:
    answer = rule.check(TrialFacts.of(result))
    assert isinstance(answer, Finding | Cleared)
    return answer


def told(answer: Finding | Cleared, metric: str) -> float:
    return next(evidence.value for evidence in answer.evidence if evidence.metric == metric)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("phase", ["data_wait", "forward", "backward", "optimizer"])
def test_whatever_phase_makes_a_rank_late_it_is_named_with_that_phase(ranks: int, phase: str) -> None:
    # 40 ms in steps of 60 + 40.
    found = check(Straggler(), job(ranks, {(1, phase): 40.0}))
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    name = phase.replace("_", " ")
    assert found.summary == (
        f"Rank 1 of {ranks} is last in 100 % of the steps, by 40 % of a step, mostly in {name}; the others wait for it."
    )
    parts = {
        evidence.metric.removeprefix("of it in "): evidence.value
        for evidence in found.evidence
        if evidence.metric.startswith("of it in ")
    }
    assert parts.pop(name) == pytest.approx(40, abs=0.5)
    assert all(abs(part) < 0.5 for part in parts.values())


@pytest.mark.parametrize(("late_ms", "named"), [(3.0, False), (5.5, False), (8.0, True), (15.0, True)])
def test_a_rank_slow_in_backward_is_named_from_a_tenth_of_a_step_on(late_ms: float, named: bool) -> None:
    # Of 60 + late: 4.8 %, 8.4 %, 11.8 % and 20 %.
    for ranks in (2, 4, 8):
        answer = check(Straggler(), job(ranks, {(1, "backward"): late_ms}))
        assert isinstance(answer, Finding if named else Cleared)
        assert told(answer, "excess over the other ranks' median") == pytest.approx(
            100 * late_ms / (60 + late_ms), abs=1
        )


def test_lateness_in_backward_is_as_sure_as_the_timed_exchanges_agree() -> None:
    # The middle is 10 ms of 70 in both; in the second the middle of nine may as well be 2 ms.
    scattered = np.full(STEPS, 10.0)
    scattered[1:10] = 2, 2, 2, 10, 10, 10, 10, 18, 18
    assert isinstance(check(Straggler(), job(2, {(1, "backward"): 10.0})), Finding)
    unsure = check(Straggler(), job(2, {(1, "backward"): scattered}))
    assert isinstance(unsure, Cleared)
    assert told(unsure, "excess over the other ranks' median") == pytest.approx(14.3, abs=0.5)


def test_communication_is_cleared_with_the_numbers_of_all_ranks() -> None:
    result = job(2, {(1, "backward"): 40.0})
    answer = check(CommunicationBound(), result)
    assert isinstance(answer, Cleared)
    assert answer.summary.startswith("exposed communication takes 1.0 % of a step; the other ranks wait another 40 % ")
    assert answer.summary.endswith(" of a step there for the last one, mostly rank 1")
    assert told(answer, "wait of the other ranks for the last one") == pytest.approx(40, abs=0.5)
    imbalance = check(RankImbalance(), result)
    assert isinstance(imbalance, Cleared)
    assert imbalance.summary == "the ranks wait 20 % of a step for each other, mostly for the same one (COM002)"
    even = check(CommunicationBound(), job(2, {}))
    assert isinstance(even, Cleared) and "the others" not in even.summary


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_who_is_late_in_turn_is_nobody(ranks: int, phase: str) -> None:
    result = job(ranks, {(rank, phase): np.where(AT % ranks == rank, 40.0, 0.0) for rank in range(ranks)})
    assert isinstance(check(Straggler(), result), Cleared)
    imbalance = check(RankImbalance(), result)
    # One of so many is waited for in each step, by all others.
    assert isinstance(imbalance, Finding) and "it is not always the same" in imbalance.summary
    assert told(imbalance, "mean wait for the last rank") == pytest.approx(40 * (1 - 1 / ranks), abs=2)


@pytest.mark.parametrize("step", [5, 30])
def test_one_uneven_step_names_nobody(step: int) -> None:
    for ranks in (2, 4, 8):
        for phase in ("backward", "forward"):
            result = job(ranks, {(1, phase): np.where(step == AT, 500.0, 0.0)})
            assert isinstance(check(Straggler(), result), Cleared)
            assert isinstance(check(RankImbalance(), result), Cleared)


def test_an_arrival_belongs_to_the_step_of_its_exchange() -> None:
    # Late in turn before backward, which explains every arrival: nothing is left beyond it.
    result = job(2, {(rank, "forward"): 40.0 * (rank == AT % 2) for rank in range(2)}, noise=0.0)
    arrivals = RankFacts.of(result).arrivals
    assert arrivals is not None and arrivals.count == 9
    assert np.abs(arrivals.beyond_ns).max() < 1.0  # ns
    assert np.ptp(arrivals.exposed_ns[0]) == pytest.approx(40e6)


def test_one_uneven_step_among_the_timed_hides_nobody() -> None:
    result = job(2, {(1, "backward"): 40.0, (0, "backward"): np.where(AT == 5, 500.0, 0.0)})
    found = check(Straggler(), result)
    assert isinstance(found, Finding) and "Rank 1 of 2" in found.summary and "mostly in backward" in found.summary


def test_what_one_loses_before_backward_another_may_lose_in_it() -> None:
    result = job(2, {(1, "data_wait"): 40.0, (0, "backward"): 40.0})
    assert isinstance(check(Straggler(), result), Cleared)
    assert RankFacts.of(result).waited.value < 0.01


def test_exchanges_of_the_warm_up_count() -> None:
    result = job(2, {(1, "backward"): 40.0})
    warm = tuple(StepTable({**table.columns, "warmup": AT < 14}) for table in result.steps)
    found = check(Straggler(), dataclasses.replace(result, steps=warm))
    assert isinstance(found, Finding) and told(found, "exchanges timed on all ranks") == 9


def test_where_arrivals_are_not_known_the_answer_says_what_was_not_seen() -> None:
    late = {(1, "backward"): 40.0}
    several = job(2, late, exchanges_per_step_least=2.0, exchanges_per_step_most=2.0)
    few = job(2, late)
    for name in ("exchange_ns", "exchange_hidden_ns"):
        few.steps[0].columns[name][3:7] = np.nan  # five of nine are left
    for result in (several, few):
        answer = check(Straggler(), result)
        assert isinstance(answer, Cleared)
        assert answer.summary.endswith("by 10 % of a step before backward; what each does in backward was not timed")
    assert not check(Straggler(), job(2, {})).summary.endswith("was not timed")


@pytest.mark.parametrize("noise", [0.5, 5.0])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_a_tie_is_no_lateness(ranks: int, noise: float) -> None:
    for seed in range(10):
        for late_in_ten, always in ((5, False), (7, True)):
            late = 40.0 * np.isin(AT % 10, range(late_in_ten))
            result = job(ranks, {(1, "data_wait"): late}, noise=noise, seed=seed)
            answer = check(Straggler(), result)
            # Late in half of the steps it is late now and then, if at all: six occasions are few.
            assert (f"Rank 1 of {ranks} is last in" in answer.summary) is always, (seed, late_in_ten)
            often = 100 * RankFacts.of(result).often_last(1)
            # The standard deviation of ties is a rough one, of thirty of them or eighteen.
            assert 10 * late_in_ten - 2 <= often <= 10 * late_in_ten + 7


def test_noise_is_what_a_rank_is_ahead_by() -> None:
    rng = np.random.default_rng(3)
    ties = rng.standard_normal(4000)
    late = np.where(np.arange(4000) % 2, 40.0, ties)
    assert noise_ns(late, 100.0) == pytest.approx(3.0, abs=0.25)  # three standard deviations of 1
    assert noise_ns(0.1 * late, 100.0) == 1.0  # a hundredth of a step
    # Three times of sixty rank 0 is 20 to 60 ms late itself, which is no noise of a rank that is late by 30.
    odd = np.full(60, 30.0)
    odd[[5, 25, 45]] = -20.0, -40.0, -60.0
    assert noise_ns(odd, 100.0) == 15.0
    assert often_last(np.array([np.zeros(60), odd]), 1, 100.0) == 0.95
    # Another one that is as late in every third step is no noise either.
    other = np.where(AT % 10 < 3, -40.0, 40.0)
    assert noise_ns(other, 100.0) == 1.0
    assert often_last(np.array([np.zeros(60), other]), 1, 100.0) == 0.7


def test_a_rank_that_scatters_and_is_late_on_average_is_named() -> None:
    # Steps of 60 ms; rank 1 is 20 ms late with a standard deviation of 12, and ahead in one step of twenty.
    scatter: Float64 = 12.0 * np.random.default_rng(1).standard_normal(STEPS)
    found = check(Straggler(), job(2, {(1, "forward"): 20.0 + scatter}))
    assert isinstance(found, Finding)
    assert told(found, "steps in which rank 1 is last") >= 80


def test_the_middle_of_few_lies_between_two_of_them() -> None:
    nine = median_interval([9, 1, 8, 2, 7, 3, 6, 4, 5])
    # P(Binomial(9, 1/2) <= 1) is 2.0 %: the smallest and the largest lie outside.
    assert (nine.value, nine.low, nine.high, nine.n) == (5, 2, 8, 9)
    six = median_interval([1, 2, 3, 4, 5, 60])
    assert (six.low, six.high) == (1, 60)
    assert median_interval([1, 2, 3, 4, 5]).low is None
