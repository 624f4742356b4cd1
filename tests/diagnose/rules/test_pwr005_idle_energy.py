"""PWR005: energy that is drawn while waiting."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr005_idle_energy import IdleEnergy
from tests.diagnose.answers import ask_trial, clear, found, missing, number
from tests.diagnose.rules.boards import BEGAN_S, STEPS, sampled

RULE = IdleEnergy()


def ask(*, idle_w=80.0, joules=10_000.0, series=(), without=(), **trial):
    quantities = {
        "device_idle_power": idle_w,
        "energy_device": joules,
        "energy_device_window_s": 70.0,
        "steps_began_s": BEGAN_S,
    }
    return ask_trial(
        RULE,
        device="cuda:0",
        columns=STEPS,
        series=series,
        quantities={name: value for name, value in quantities.items() if name not in without},
        **trial,
    )


def test_idle_power_times_the_exposed_wait_over_all_energy():
    # half of 70 s at 80 W are 2,800 of 10,000 J
    finding = found(ask(data_wait=0.35, forward=0.35))
    assert finding.severity is Severity.INFO
    assert number(finding, "energy while idle").value == pytest.approx(28)
    assert finding.remedies == ()
    assert "INP001" in finding.symptom_of


def test_the_driver_may_see_more_idle_time_than_the_phases():
    finding = found(ask(series=(sampled("gpu_utilization", 40.0),)))  # 60 % without a kernel: 3,360 J
    assert number(finding, "energy while idle").value == pytest.approx(33.6)


def test_a_busy_device_is_a_measured_zero():
    assert number(clear(ask(series=(sampled("gpu_utilization", 100.0),))), "energy while idle").value == 0
    clear(ask(data_wait=0.14, forward=0.56))  # 1,120 of 10,000 J


def test_a_baseline_or_an_energy_nobody_measured():
    assert missing(ask(without=["device_idle_power"])).signal == "device_idle_power"
    why = "a rest of 6.2 s is more than 15% of the 30 s the trial has left"
    assert missing(ask(without=["device_idle_power"], gaps={"device_idle_power": why})).why == why
    assert missing(ask(without=["energy_device"])).signal == "energy_device"
    assert "is 0.0 J" in missing(ask(joules=0.0)).why
    assert missing(ask_trial(RULE)).why == "the trial ran on the CPU"
