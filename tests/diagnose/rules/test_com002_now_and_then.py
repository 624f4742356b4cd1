"""COM002 and COM004: a rank that is late in few steps, another one in each step, always the same one, and all alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.ranks.rank_facts import RankFacts
from perf_diagnostics.diagnose.ranks.waited_for import WaitedFor
from perf_diagnostics.diagnose.rules.com002_straggler import Straggler
from perf_diagnostics.diagnose.rules.com004_rank_imbalance import RankImbalance
from perf_diagnostics.records import Float64, TrialResult
from tests.diagnose.rules.rank_trials import of_ranks
from tests.diagnose.rules.test_com002_arrivals import check, told

#: What each rank does in a step without a fault, in ms: 100 in all, with 1 of exchange.
DATA_WAIT, FORWARD, BACKWARD, OPTIMIZER, EXCHANGE = 5.0, 30.0, 60.0, 4.0, 1.0


def job(late: Float64, *, phase: str = "forward", noise: float = 0.5, seed: int = 0, **columns: Float64) -> TrialResult:
    """Ranks that take ``late`` ms more in a phase, shape ``(ranks, steps)``, and wait for the last one in backward.

    DDP times the steps 1 to 9 and each hundredth, and writes them two steps later. ``columns`` are as ``late`` is.
    """
    late = np.asarray(late, dtype=np.float64)
    ranks, steps = late.shape
    rng = np.random.default_rng(seed)
    own = {
        name: np.full(late.shape, ms) + (late if name == phase else 0.0)
        for name, ms in (("data_wait", DATA_WAIT), ("forward", FORWARD), ("backward", BACKWARD), ("other", 0.0))
    }
    own["forward"] = own["forward"] + noise * rng.standard_normal(late.shape)
    arrival = sum(own.values())
    exposed = arrival.max(axis=0) - arrival + EXCHANGE
    number = np.arange(steps)
    timed = ((number >= 1) & (number < 10)) | ((number % 100 == 0) & (number > 0))
    written = np.full(late.shape, np.nan)
    written[:, 2:] = np.where(timed, exposed, np.nan)[:, :-2]
    tables: list[dict[str, Any]] = []
    for rank in range(ranks):
        phases = {f"host_{name}_ns": times[rank] * 1e6 for name, times in own.items() if name != "other"}
        phases["host_backward_ns"] = phases["host_backward_ns"] + exposed[rank] * 1e6
        phases["host_optimizer_ns"] = np.full(steps, OPTIMIZER * 1e6)
        wall = sum(phases.values()) + own["other"][rank] * 1e6
        exchange = {"exchange_ns": written[rank] * 1e6, "exchange_hidden_ns": 0 * written[rank]}
        extra = {name: values[rank] for name, values in columns.items()}
        tables.append({**phases, **exchange, **extra, "wall_ns": wall})
    return of_ranks(*tables, steps=steps)


def every(period: int, ms: float, *, rank: int = 1, ranks: int = 2, steps: int = 240) -> Float64:
    late = np.zeros((ranks, steps))
    late[rank, period - 1 :: period] = ms
    return late


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("phase", ["data_wait", "forward", "other"])
def test_a_rank_that_is_late_in_every_tenth_step_is_named_with_what_that_costs(ranks: int, phase: str) -> None:
    # 200 ms in every tenth step of 100: 200 of 1200 ms are lost.
    found = check(Straggler(), job(every(10, 200.0, ranks=ranks), phase=phase))
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    assert found.summary.startswith(f"Rank 1 of {ranks} is late in 10 % of the steps, every 10 steps, by ")
    place = "outside of all phases" if phase == "other" else f"in {phase.replace('_', ' ')}"
    assert f"mostly {place}: the others wait for it for " in found.summary
    assert told(found, "time lost to rank 1 in the steps it is late in") == pytest.approx(100 / 6, abs=0.3)
    assert told(found, "steps in which rank 1 is waited for") == 24
    assert told(found, f"of it in {phase.replace('_', ' ')}") == pytest.approx(100 / 6, abs=0.3)
    assert found.recoverable is not None and found.recoverable.high == pytest.approx(1 / 6, abs=0.02)
    look = {"data_wait": "its input", "forward": "its device", "other": "what only this rank does between the phases"}
    assert f"what it does every 10 steps: {look[phase]}" in found.remedies[0].says
    assert isinstance(check(RankImbalance(), job(every(10, 200.0, ranks=ranks), phase=phase)), Cleared)


def test_its_rhythm_goes_on_where_steps_between_do_not_count() -> None:
    """As where torch compiled anew in mid-run: warm-up again. By their places the beats would be 9 and 10 apart."""
    late = every(10, 200.0)
    again = np.isin(np.arange(late.shape[1]), [33, 74, 121, 185])
    result = job(late)
    for table in result.steps:
        table.columns["warmup"][again] = True
    found = check(Straggler(), result)
    assert isinstance(found, Finding)
    assert found.summary.startswith("Rank 1 of 2 is late in 10 % of the steps, every 10 steps, by ")


def test_a_rank_that_is_late_now_and_then_without_a_rhythm_is_named_too() -> None:
    late = np.zeros((2, 600))
    late[1, np.random.default_rng(7).random(600) < 0.08] = 300.0
    found = check(Straggler(), job(late))
    assert isinstance(found, Finding) and "of the steps, by " in found.summary
    assert told(found, "part of all waits that is for rank 1") > 95


@pytest.mark.parametrize("ms", [3.0, 60.0])
def test_what_costs_less_than_a_tenth_is_not(ms: float) -> None:
    # 60 ms in every tenth step: 60 of 1060.
    assert isinstance(check(Straggler(), job(every(10, ms))), Cleared)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_in_each_step_another_rank_is_not_one_rank(ranks: int) -> None:
    rng = np.random.default_rng(ranks)
    lengths = rng.integers(100, 400, (ranks, 240)).astype(np.float64)
    result = job(0.5 * (lengths - 100), tokens=lengths)
    assert isinstance(check(Straggler(), result), Cleared)
    found = check(RankImbalance(), result)
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    assert "in 100 % of the steps with a wait it is for the rank with the most" in found.summary
    assert "Group samples of similar length" in found.remedies[0].says


def test_uneven_loads_that_do_not_make_the_late_rank_late_are_not_blamed() -> None:
    rng = np.random.default_rng(3)
    lengths, late = rng.integers(100, 400, (4, 240)).astype(np.float64), np.zeros((4, 240))
    late[rng.integers(0, 4, 240), np.arange(240)] = 60.0
    found = check(RankImbalance(), job(late, phase="data_wait", tokens=lengths))
    assert isinstance(found, Finding) and found.severity is Severity.INFO and found.recoverable is None
    fits = next(one for one in found.evidence if one.metric.startswith("steps in which the rank with the most tokens"))
    assert fits.value == pytest.approx(25, abs=8)
    assert "loaders run ahead" in found.remedies[0].says
    assert told(found, "time lost to late ranks in data wait") == pytest.approx(100 * 60 / 160, abs=1)


def test_ranks_that_are_alike_wait_for_nobody() -> None:
    for noise in (0.5, 3.0):
        result = job(np.zeros((4, 240)), noise=noise)
        assert isinstance(check(Straggler(), result), Cleared)
        assert isinstance(check(RankImbalance(), result), Cleared)


def test_always_the_same_rank_is_told_as_before() -> None:
    found = check(Straggler(), job(every(1, 40.0)))
    assert isinstance(found, Finding) and "is last in 100 % of the steps, by 29 % of a step" in found.summary


def test_one_long_stretch_says_nothing_about_the_next() -> None:
    late = np.zeros((2, 240))
    late[1, 100:140] = 300.0
    assert isinstance(check(Straggler(), job(late)), Cleared)


def test_two_ranks_that_are_late_now_and_then_are_no_one_rank() -> None:
    late = every(10, 200.0) + np.roll(every(10, 200.0, rank=0), 5, axis=1)
    assert isinstance(check(Straggler(), job(late)), Cleared)


def test_a_rank_with_more_to_do_where_it_is_late_is_told_to_share() -> None:
    late = every(10, 200.0)
    found = check(Straggler(), job(late, tokens=np.where(late > 0, 3000.0, 1000.0)))
    assert isinstance(found, Finding)
    assert told(found, "ratio of rank 1's tokens to the others' where it is late") == pytest.approx(3.0)
    assert "it has 200 % more tokens than the others" in found.remedies[0].says
    even = check(Straggler(), job(late, tokens=np.full(late.shape, 1000.0)))
    assert isinstance(even, Finding) and "tokens" not in even.remedies[0].says


def test_what_falls_on_each_hundredth_step_is_no_habit() -> None:
    # Backward is slow in every tenth step; of the 28 timed exchanges 20 are such ones, of the first nine none is.
    late = np.zeros((2, 2000))
    late[1, ::10] = 50.0
    result = job(late, phase="backward")
    arrivals = RankFacts.of(result).arrivals
    assert arrivals is not None and arrivals.count == 28 and not arrivals.habits
    assert isinstance(check(Straggler(), result), Cleared)
    always = RankFacts.of(job(every(1, 50.0, steps=2000), phase="backward")).arrivals
    assert always is not None and [str(phase) for phase in always.habits] == ["backward"]


def test_steps_that_scatter_widely_name_nobody() -> None:
    named = 0
    for seed in range(40):
        rng = np.random.default_rng((seed, 11))
        stalls = np.where(rng.random((4, 200)) < 0.05, 300.0 * rng.random((4, 200)), 0.0)
        named += isinstance(check(Straggler(), job(stalls, noise=5.0, seed=seed)), Finding)
    assert named == 0


def test_what_is_lost_is_what_the_last_one_arrives_after_the_next() -> None:
    own = np.array([[10.0, 50.0, 10.0, 10.0], [10.0, 30.0, 10.0, 90.0], [10.0, 10.0, 10.0, 80.0]])
    waits = WaitedFor.of(own, np.full(4, 100.0), np.arange(4))
    assert waits.lost_ns.tolist() == [[0, 20, 0, 0], [0, 0, 0, 10], [0, 0, 0, 0]]
    assert waits.most == 0 and waits.typical_ns(0) == 20 and waits.typical_ns(2) == 0
    assert waits.part(0).value == pytest.approx(2 / 3) and waits.part(2).value == 0
    alike = WaitedFor.of(np.ones((2, 4)), np.full(4, 100.0), np.arange(4))
    assert (alike.part(0).value, alike.part(0).n, alike.share(0).value) == (0.0, 0, 0.0)
