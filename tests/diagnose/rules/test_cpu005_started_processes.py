"""CPU005: what processes that the training has started take of its cores, as the scheduler counts it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cpu005_started_processes import StartedProcesses
from tests.diagnose.answers import Reply, ask_trial, clear, facts_of, found, missing, number

RULE = StartedProcesses()

WAITED = "computing thread without a core for the training's own processes"


def ask(*, cores: float = 0.4, waited: float = 0.3, turns: float = 18_000, **facts: Any) -> Reply:
    """Two threads on two cores for 10 s, and processes that use so many cores and make the loop wait so long."""
    quantities = {"measured_wall_s": 10.0, "process_cpu_s": 14.0, "workers_cpu_s": 10 * cores, "other_cpu_s": 0.0}
    quantities |= {"involuntary_switches": 10 * turns, "loop_cpu_share": 0.65, "loop_run_delay_share": waited}
    quantities |= {"process_run_delay_share": waited / 2, "cpu_periods": 0.0, "cpu_throttled_periods": 0.0}
    told = {"threads": 2, "cpu_count": 2, **facts}
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=told, quantities=quantities)


def test_processes_that_poll_are_told_by_the_turns_that_they_take() -> None:
    finding = found(ask())
    assert finding.severity is Severity.WARNING and number(finding, WAITED).value == pytest.approx(30)
    assert "use 0.400 of 2 cores while it trains: for 30 % of the time" in finding.summary
    assert finding.summary.endswith(
        "lost their core 18,000 times a second, as beside processes that ask for work "
        "again and again rather than wait for it."
    )
    assert "recv()" in finding.remedies[0].says
    assert sum(finding.claims.values()) == pytest.approx(0.3)


def test_processes_that_work_may_be_meant_to_and_nothing_of_the_gain_is_sure() -> None:
    finding = found(ask(turns=300))
    assert "again and again" not in finding.summary and "fewer of them" in finding.remedies[0].says
    assert finding.recoverable is not None and finding.recoverable.low == 0.0
    polling = found(ask())
    assert polling.recoverable is not None and polling.recoverable.low > 0
    assert polling.confidence > finding.confidence


def test_processes_that_wait_or_leave_the_loop_its_cores_are_cleared() -> None:
    assert "no process that the training has started computes" in clear(ask(cores=0.1)).summary
    assert "leave it its cores" in clear(ask(waited=0.1)).summary


def test_what_other_threads_of_the_training_take_is_not_theirs() -> None:
    finding = found(ask(cores=0.25, waited=0.5))
    assert number(finding, WAITED).value == pytest.approx(25) and sum(finding.claims.values()) == pytest.approx(0.25)


def test_more_threads_than_cores_are_another_rules() -> None:
    assert "CPU001" in clear(ask(threads=4)).summary


def test_workers_of_a_loader_and_ranks_are_not_told_from_others() -> None:
    assert "loader's workers" in str(missing(ask(num_workers=2)))
    assert missing(ask_trial(RULE, forward=0.04)).signal == "workers_cpu_s"
    alone = facts_of(forward=0.04).result
    two = TrialFacts.of(dataclasses.replace(alone, steps=alone.steps * 2))
    with pytest.raises(NotApplicable, match="several ranks"):
        RULE.check(two)
