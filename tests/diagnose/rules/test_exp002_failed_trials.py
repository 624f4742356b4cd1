"""EXP002: what did not complete, and why."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp002_failed_trials import FailedTrials
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of, sweep_of, trial_of
from tests.diagnose.answers import ask_run, changes, clear, found, missing, number

RULE = FailedTrials()
SIZES = (8, 16, 32)


def sweep_with(failures):
    return sweep_of(a_s=0.1, b_s=0.01, batch_sizes=SIZES, failures=failures)


def test_all_completed_is_clear():
    answer = clear(ask_run(RULE, sweep_with({})))
    assert number(answer, "completed trials").value == 3


def test_out_of_memory_is_the_expected_end_of_a_sweep():
    finding = found(ask_run(RULE, sweep_with({16: Outcome.OUT_OF_MEMORY_DEVICE, 32: Outcome.SKIPPED_LARGER_THAN_OOM})))
    assert finding.severity is Severity.INFO
    assert "the largest size that ran is 8" in finding.summary
    assert "batch 32 skipped" in finding.summary
    assert number(finding, "largest batch that ran, synthetic on cpu").value == 8
    assert {"batch_size": 8} in changes(finding)


def test_a_crash_is_a_warning_with_its_reason():
    run = run_of(
        trial_of(), trial_of(batch_size=16, outcome=Outcome.CRASHED, reason="ValueError: no such token", steps=2)
    )
    finding = found(ask_run(RULE, run))
    assert finding.severity is Severity.WARNING
    assert "batch 16 ended by crashed (ValueError: no such token)" in finding.summary
    assert number(finding, "trials ended by crashed").value == 1


def test_nothing_completed_is_critical():
    finding = found(ask_run(RULE, sweep_with(dict.fromkeys(SIZES, Outcome.OUT_OF_MEMORY_HOST))))
    assert finding.severity is Severity.CRITICAL
    assert "no size ran" in finding.summary
    assert {"gradient_checkpointing": True} in changes(finding)


def test_a_timeout_asks_for_a_larger_budget():
    finding = found(ask_run(RULE, sweep_with({32: Outcome.TIMEOUT})))
    assert any("budget" in remedy.says for remedy in finding.remedies)


def test_trials_that_wait_are_said():
    finding = found(ask_run(RULE, run_of(trial_of(), pending=[trial_of(batch_size=99).trial])))
    assert finding.severity is Severity.INFO
    assert "1 planned trial did not run" in finding.summary


def test_no_trial_at_all_is_not_measured():
    assert missing(ask_run(RULE, run_of())).signal == "trials"
