"""EXP002: what did not complete, and why."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp002_failed_trials import FailedTrials
from perf_diagnostics.records import Outcome
from perf_diagnostics.records.results import OWN_TRAINING
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


def test_why_trials_were_skipped_is_said_once_a_reason():
    def skipped(size, outcome, reason):
        return trial_of(batch_size=size, outcome=outcome, reason=reason, steps=0, warmup_steps=0)

    late = [skipped(size, Outcome.SKIPPED_OVER_TIME_BUDGET, "the time budget of 60 s was over") for size in (64, 32)]
    large = skipped(128, Outcome.SKIPPED_LARGER_THAN_OOM, "batch 16 ran out of memory")
    assert found(ask_run(RULE, run_of(trial_of(batch_size=8), *late, large))).summary == (
        "1 of 4 trials completed. synthetic on cpu: batch 32 and 64 skipped: the time budget of 60 s was over. "
        "synthetic on cpu: batch 128 skipped: batch 16 ran out of memory."
    )


def test_half_the_memory_is_advised_in_the_format_that_the_device_has():
    for name, half in (("Tesla T4", "float16"), ("NVIDIA L4", "bfloat16")):
        failed = trial_of(device="cuda:0", outcome=Outcome.OUT_OF_MEMORY_DEVICE, steps=0, facts={"device_name": name})
        assert {"precision": half} in changes(found(ask_run(RULE, run_of(failed))))


def test_a_crash_is_a_warning_with_its_reason():
    run = run_of(
        trial_of(), trial_of(batch_size=16, outcome=Outcome.CRASHED, reason="ValueError: no such token", steps=2)
    )
    finding = found(ask_run(RULE, run))
    assert finding.severity is Severity.WARNING
    assert "batch 16 crashed: ValueError: no such token." in finding.summary
    assert number(finding, "trials that crashed").value == 1


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


def test_a_sentinel_is_none_of_the_trials_that_somebody_asked_for():
    skipped = trial_of(outcome=Outcome.SKIPPED_OVER_TIME_BUDGET, reason="no time was left", steps=0, warmup_steps=0)
    skipped = dataclasses.replace(skipped, trial=dataclasses.replace(skipped.trial, role="sentinel"))
    answer = clear(ask_run(RULE, run_of(trial_of(), skipped)))
    assert number(answer, "completed trials").value == number(answer, "completed trials").n == 1
    assert answer.summary == (
        "1 trial completed; 1 of 1 sentinel skipped (sentinels watch the machine and enter no number)"
    )
    finding = found(ask_run(RULE, run_of(trial_of(), skipped, pending=[trial_of(batch_size=99).trial])))
    assert finding.summary.startswith("1 of 2 trials completed.")
    assert "Beside them, 1 of 1 sentinel skipped." in finding.summary
    only_pending = run_of(pending=[skipped.trial])
    assert missing(ask_run(RULE, only_pending)).signal == "trials"


def test_a_training_of_ones_own_is_no_trial():
    """Who runs a script has asked for no trial and no batch size; the steps until the crash are what there is."""
    crashed = run_of(trial_of(outcome=Outcome.CRASHED, reason="KeyError: 'O'", steps=20, warmup_steps=0))
    own = dataclasses.replace(crashed, notes=(OWN_TRAINING,))
    assert (
        found(ask_run(RULE, own)).summary == "The training crashed after 20 recorded steps. The reason: KeyError: 'O'."
    )
    at_once = run_of(trial_of(outcome=Outcome.TIMEOUT, reason="it hung (120 s).", steps=0, warmup_steps=0))
    summary = found(ask_run(RULE, dataclasses.replace(at_once, notes=(OWN_TRAINING,)))).summary
    assert summary == "The training ran out of time before a step was recorded. The reason: it hung (120 s)."
    lost = trial_of(outcome=Outcome.INTERRUPTED, reason="a file is missing", steps=0, warmup_steps=0)
    lost = run_of(dataclasses.replace(lost, stop_reason="steps_lost"))
    summary = found(ask_run(RULE, dataclasses.replace(lost, notes=(OWN_TRAINING,)))).summary
    assert summary == "The steps of this training cannot be read any more. The reason: a file is missing."


def test_what_the_time_did_not_reach_for_takes_more_time():
    finding = found(ask_run(RULE, sweep_with({32: Outcome.SKIPPED_OVER_TIME_BUDGET})))
    assert any("larger --time-budget" in remedy.says for remedy in finding.remedies)
