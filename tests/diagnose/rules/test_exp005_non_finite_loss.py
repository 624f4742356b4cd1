"""EXP005: NaN and infinity."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp005_non_finite_loss import NonFiniteLoss
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_run, clear, found, missing, number

RULE = NonFiniteLoss()


def test_finite_losses_are_clear():
    assert "1 trial" in clear(ask_run(RULE, run_of(trial_of(columns={"loss": 0.7})))).summary


def test_an_infinite_loss_is_found():
    loss = np.ones(100)
    loss[-1] = np.inf
    finding = found(
        ask_run(RULE, run_of(trial_of(columns={"loss": 1.0}), trial_of(batch_size=16, columns={"loss": loss})))
    )
    assert finding.severity is Severity.CRITICAL
    assert finding.scope == "synthetic cpu batch 16"
    assert number(finding, "completed trials with an infinite loss").value == 1


def test_a_trial_that_ended_by_nan_is_found():
    finding = found(ask_run(RULE, run_of(trial_of(outcome=Outcome.NAN_LOSS, reason="NaN at step 7"))))
    assert number(finding, "trials ended by a non-finite loss").value == 1


def test_losses_that_nobody_read_are_not_finite():
    reply = missing(ask_run(RULE, run_of(trial_of(gaps={"loss": "the loop returns no loss"}))))
    assert (reply.signal, reply.why) == ("loss", "the loop returns no loss")


def test_without_a_completed_trial_there_is_no_loss():
    assert missing(ask_run(RULE, run_of(trial_of(steps=19, outcome=Outcome.CRASHED)))).why == "no trial completed"
