"""COM013: ranks that take turns on the cores of their machine."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.com013_more_ranks_than_cores import MoreRanksThanCores
from perf_diagnostics.records import TrialResult
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.rules.rank_trials import of_ranks, timed


def job(delayed: float | None = 0.4, *, device: str = "cpu", exchange_s: float = 0.0, **facts: Any) -> TrialResult:
    """Two of four ranks of one thread each on two cores; the first one has work and no core for so much."""
    known = {"local_ranks": 4, "threads": 1, "cpu_count": 2} | facts
    quantities = {} if delayed is None else {"process_run_delay_share": delayed}
    exchange = timed(exchange_s, 0.0) if exchange_s else {}
    return of_ranks(exchange, exchange, facts=known, quantities=quantities, device=device)


def check(result: TrialResult) -> Finding | Cleared:
    answer = MoreRanksThanCores().check(TrialFacts.of(result))
    assert isinstance(answer, Finding | Cleared)
    return answer


def test_four_ranks_on_two_cores_take_turns() -> None:
    found = check(job())
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    assert found.summary.startswith("4 ranks of 1 thread on 2 cores take turns")
    assert found.summary.endswith("for 40 % of the time in which rank 0 had work to do, it had no core.")
    assert [remedy.says.partition(" on")[0] for remedy in found.remedies] == ["Start 2 ranks"]
    assert found.recoverable is None  # each step takes less time, and holds fewer samples


@pytest.mark.parametrize(("ranks", "threads", "says"), [(4, 8, "OMP_NUM_THREADS=2"), (2, 8, "OMP_NUM_THREADS=4")])
def test_fewer_threads_come_first_where_each_rank_can_have_a_core(ranks: int, threads: int, says: str) -> None:
    found = check(job(local_ranks=ranks, threads=threads, cpu_count=8))
    assert isinstance(found, Finding) and found.remedies[0].says.startswith(says)


@pytest.mark.parametrize("quiet", [{"cpu_count": 4}, {"delayed": 0.15}, {"local_ranks": 1}])
def test_enough_cores_turns_that_cost_nothing_or_another_machine_are_no_fault(quiet: dict[str, Any]) -> None:
    assert isinstance(check(job(**quiet)), Cleared)


def test_on_a_device_a_rank_needs_the_one_thread_that_feeds_it() -> None:
    assert isinstance(check(job(device="cuda:0", threads=8, cpu_count=4)), Cleared)
    assert isinstance(check(job(device="cuda:0", threads=8, cpu_count=2)), Finding)


def test_without_the_time_without_a_core_it_is_only_mentioned() -> None:
    found = check(job(None))
    assert isinstance(found, Finding) and found.severity is Severity.INFO


def test_where_the_launcher_says_nothing_or_there_is_one_rank_nothing_is_said() -> None:
    with pytest.raises(NotMeasured):
        check(job(local_ranks=None))
    with pytest.raises(NotApplicable):
        check(trial_of())


def test_turns_stand_before_the_long_exchange_that_they_make() -> None:
    codes = [finding.code for finding in diagnose(run_of(job(exchange_s=0.04))).findings]
    assert codes.index("COM013") < codes.index("COM001")
