"""EXP008: what the sentinels say about the machine."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp008_machine_drift import Change, MachineDrift, _trend
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_run, clear, found, missing, number

RULE = MachineDrift()


def sentinel(step_s, block, *, device="cpu", noise=0.01, outcome=Outcome.COMPLETED):
    result = trial_of(forward=step_s, repeat=block, device=device, noise=noise, steps=40, outcome=outcome)
    return dataclasses.replace(result, trial=dataclasses.replace(result.trial, role="sentinel"))


def run_with(*step_s, **more):
    """A sweep of one ordinary trial whose sentinels took these times a step, in s."""
    return run_of(trial_of(forward=9.0), *(sentinel(s, block, **more) for block, s in enumerate(step_s)))


@pytest.mark.parametrize("last", [1.0, 1.015, 0.985])
def test_up_to_half_the_limit_is_clear(last):
    clear(ask_run(RULE, run_with(1.0, last)))


@pytest.mark.parametrize(
    ("last", "severity"), [(1.06, Severity.INFO), (1.25, Severity.WARNING), (0.8, Severity.WARNING)]
)
def test_two_sentinels_warn_only_of_what_two_processes_would_not_show_by_themselves(last, severity):
    finding = found(ask_run(RULE, run_with(1.0, last)))
    assert finding.severity is severity
    shown = number(finding, "change of the sentinel's step time, cpu")
    assert shown.value == pytest.approx(100 * (last - 1), abs=1.0)
    assert ("more time" if last > 1 else "less time") in finding.summary


def test_a_change_that_noise_could_be_is_clear():
    clear(ask_run(RULE, run_with(1.0, 1.04, noise=0.1)))


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_scatter_in_which_a_large_change_could_hide_clears_nothing(device):
    reply = missing(ask_run(RULE, run_with(1.0, 1.06, noise=0.5, device=device)))
    assert reply.signal == "sentinel"
    assert f"on {device}" in reply.why and "by 12 % or more" in reply.why


def test_a_steady_device_does_not_clear_one_that_scatters():
    run = run_of(
        trial_of(forward=9.0),
        *(sentinel(1.0, block, noise=0.5) for block in (0, 1)),
        *(sentinel(0.1, block, device="cuda:0") for block in (0, 1)),
    )
    assert "on cpu" in missing(ask_run(RULE, run)).why


def test_from_four_sentinels_on_a_trend_is_told_from_scatter():
    assert found(ask_run(RULE, run_with(1.0, 1.021, 1.039, 1.06, 1.081))).severity is Severity.WARNING
    # The same last over first, but up and down between: processes differ, the machine does not drift.
    clear(ask_run(RULE, run_with(1.0, 1.04, 0.995, 1.035, 1.0, 1.04)))
    # With twice the scatter a drift of 12 % could hide in it.
    missing(ask_run(RULE, run_with(1.0, 1.08, 0.99, 1.07, 1.0, 1.08)))


def test_200_sweeps_of_six_equal_sentinels_with_3_percent_scatter_warn_in_at_most_4_percent():
    """Seen with this seed: 1.5 %. Less than the nominal 5 %, as the interval also has to clear 3 %."""
    rng = np.random.default_rng(4)
    trends = [_trend(np.exp(0.03 * rng.standard_normal(6))) for _ in range(200)]
    assert sum(Change("cpu", trend, 6).beyond(RULE.change) for trend in trends) <= 8


def test_200_sweeps_that_drift_by_20_percent_with_3_percent_scatter_are_found_in_at_least_80_percent():
    rng = np.random.default_rng(4)
    drift = np.linspace(0, np.log(1.2), 6)
    trends = [_trend(np.exp(drift + 0.03 * rng.standard_normal(6))) for _ in range(200)]
    assert sum(Change("cpu", trend, 6).beyond(RULE.change) for trend in trends) >= 160


def test_order_is_that_of_the_blocks_not_of_the_files():
    run = run_with(1.0, 1.25)
    backwards = dataclasses.replace(run, results=run.results[::-1])
    assert "more time at the end" in found(ask_run(RULE, backwards)).summary


def test_each_device_is_looked_at_alone():
    run = run_of(
        trial_of(forward=9.0),
        *(sentinel(1.0, block) for block in (0, 1)),
        *(sentinel(s, block, device="cuda:0") for block, s in enumerate((0.1, 0.2))),
    )
    finding = found(ask_run(RULE, run))
    assert "cuda:0" in finding.summary and "On cpu" not in finding.summary


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (run_of(trial_of()), "no sentinel trials were run"),
        (run_with(1.0), "only 1 sentinel trial of 1"),
        (run_of(trial_of(), sentinel(1.0, 0), sentinel(1.0, 1, outcome=Outcome.CRASHED)), "only 1 sentinel trial of 2"),
    ],
)
def test_without_two_sentinels_nobody_looked(run, why):
    reply = missing(ask_run(RULE, run))
    assert reply.signal == "sentinel" and why in reply.why
