"""INP010: workers keep up, and take cores for it."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.inp010_busy_workers import BusyWorkers
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, TrialResult
from perf_diagnostics.testing import run_of, trial_of

SLOW, PLAIN = "return rng.choice(n, size=k, p=self.weights)", "return self.augmented(i)"


def busy(
    lacked: float = 0.2, *, cpu_s: float = 60.0, wait: float = 0.01, text: str = SLOW, slow: int = 100, **trial: Any
) -> TrialResult:
    """100 steps of 1 s on two cores: a worker computes for 60 s, and for a fifth of the time the loop lacks a core."""
    facts = {"num_workers": 1, "cpu_count": 2, "threads": 1}
    ran = {"loop_run_delay_share": lacked, "loop_cpu_share": 1 - lacked, "process_cpu_s": 100 * (1 - lacked)}
    used = {"workers_cpu_s": cpu_s, "other_cpu_s": 0.0, "measured_wall_s": 100.0}
    places = (
        CodePlace(file="data.py", line=7, function="Data.__getitem__", text=text),
        CodePlace(file="data.py", line=9, function="Data.other", text=PLAIN),
    )
    paths = (
        CodePath(phase="loading", places=(0,), looks=slow),
        CodePath(phase="loading", places=(1,), looks=100 - slow),
    )
    seen = CodeSamples(places=places, paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    given = {"data_wait": wait, "forward": 1 - wait, "facts": facts, "quantities": ran | used} | trial
    return dataclasses.replace(trial_of(**given), worker_code=seen)


def check(result: TrialResult) -> Finding | Cleared:
    answer = BusyWorkers().check(TrialFacts.of(result))
    assert isinstance(answer, Finding | Cleared)
    return answer


def test_a_line_that_is_known_to_be_slow_is_warned_of_and_named() -> None:
    found = check(busy())
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    assert "1 loader worker computes 600 ms a step, and for 20 % of it" in found.summary
    assert found.lines[0].place.line == 7 and found.lines[0].share.value == pytest.approx(0.2)
    assert found.recoverable is not None and found.recoverable.low == 0.0
    assert found.recoverable.high == pytest.approx(0.3)  # of both cores the worker has 30 %
    told = diagnose(run_of(busy()))
    assert told.verdict is not None and told.verdict.code == "INP010"


@pytest.mark.parametrize(("text", "code"), [(SLOW, "INP010"), (PLAIN, "CPU001")])
def test_a_line_known_to_be_slow_is_the_cause_of_too_many_threads_at_work(text: str, code: str) -> None:
    """Fewer workers would make fewer batches; the line makes as many with less."""
    counted = {"loop_run_delay_share": 0.3, "loop_cpu_share": 0.7, "process_cpu_s": 70.0, "workers_cpu_s": 60.0}
    counted |= {"other_cpu_s": 0.0, "measured_wall_s": 100.0, "involuntary_switches": 100_000.0}
    counted |= {"process_run_delay_share": 0.3}
    result = busy(text=text, facts={"num_workers": 1, "cpu_count": 2, "threads": 2}, quantities=counted)
    told = diagnose(run_of(result))
    assert told.verdict is not None and told.verdict.code == code
    assert {"INP010", "CPU001"} <= {one.code for one in told.findings}


def test_work_that_has_to_be_done_is_only_mentioned() -> None:
    for result in (busy(text=PLAIN), busy(slow=40), dataclasses.replace(busy(), worker_code=None)):
        found = check(result)
        assert isinstance(found, Finding) and found.severity is Severity.INFO
    slightly = check(busy(lacked=0.07))
    assert isinstance(slightly, Finding) and slightly.severity is Severity.INFO


def test_it_costs_no_more_than_the_workers_compute() -> None:
    found = check(busy(lacked=0.4, cpu_s=24.0))
    assert isinstance(found, Finding)
    assert found.evidence[0].value == pytest.approx(12.0) and found.recoverable is not None
    assert found.recoverable.high == pytest.approx(0.12)
    assert isinstance(check(busy(lacked=0.4, cpu_s=8.0)), Cleared)


def test_where_the_loop_waits_for_them_another_rule_speaks() -> None:
    answer = check(busy(wait=0.3))
    assert isinstance(answer, Cleared) and "INP001" in answer.summary
    assert isinstance(check(busy(lacked=0.03)), Cleared)


def test_without_workers_on_a_device_or_without_the_schedulers_count_it_does_not_speak() -> None:
    alone = busy(facts={"num_workers": 0, "cpu_count": 2, "threads": 1})
    for result in (alone, busy(device="cuda:0")):
        with pytest.raises(NotApplicable):
            check(result)
    with pytest.raises(NotMeasured, match="loop_cpu_share"):
        check(busy(quantities={"workers_cpu_s": 60.0, "measured_wall_s": 100.0}))
