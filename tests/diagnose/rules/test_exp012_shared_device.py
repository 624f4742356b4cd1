"""EXP012: others hold memory of the device, and perhaps compute on it."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp012_shared_device import SharedDevice
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, clear, found, missing, number
from tests.diagnose.rules.boards import BEGAN_S, STEPS, sampled

RULE = SharedDevice()


def ask(foreign_gb, *, utilisation=None, **trial):
    series = () if utilisation is None else (sampled("gpu_utilization", utilisation),)
    return ask_trial(
        RULE,
        device="cuda:0",
        quantities={"device_memory_foreign": foreign_gb * 1e9, "steps_began_s": BEGAN_S},
        columns=STEPS,
        series=series,
        **trial,
    )


@pytest.mark.parametrize("foreign_gb", [0.0, 0.5, 0.99])
def test_what_contexts_and_the_driver_hold_is_clear(foreign_gb):
    clear(ask(foreign_gb))


def test_a_program_on_the_same_device_is_told():
    finding = found(ask(8.0))
    assert finding.severity is Severity.WARNING
    assert "8.00 GB" in finding.summary
    assert "if they computed" in finding.summary


def test_kernels_beyond_the_trials_own_work_are_somebody_elses():
    # The stream waits for data 0.3 s of 1.0 s, and the driver saw kernels all the time: 30 % are not ours.
    finding = found(ask(8.0, data_wait=0.3, forward=0.7, utilisation=100.0))
    assert "kernels ran for 30 % of the time more" in finding.summary
    assert number(finding, "utilisation beyond the trial's own").value == pytest.approx(30.0, rel=0.02)
    assert finding.confidence > found(ask(8.0)).confidence


def test_a_device_that_works_all_the_time_says_nothing_about_others():
    assert "if they computed" in found(ask(8.0, data_wait=0.1, forward=0.9, utilisation=100.0)).summary


def test_unmeasured_is_no_zero():
    asked = ask_trial(RULE, device="cuda:0", gaps={"gpu_memory_process": "a container hides process ids"})
    assert missing(asked).why == "a container hides process ids"
    assert isinstance(missing(ask_trial(RULE)), NotApplicable)


def test_findings_of_such_a_trial_are_worth_less():
    def confidence(**quantities):
        trial = trial_of(device="cuda:0", data_wait=0.4, forward=0.6, quantities=quantities)
        return next(f for f in diagnose(run_of(trial)).findings if f.code == "INP001").confidence

    assert confidence(device_memory_foreign=8e9) == pytest.approx(0.6 * confidence(device_memory_foreign=0.0))
