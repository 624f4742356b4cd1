"""PWR001: clocks that heat or the supply holds down."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr001_thermal_throttling import ThermalThrottling
from tests.diagnose.answers import ask_trial, clear, found, missing, number
from tests.diagnose.rules.boards import BEGAN_S, INSIDE, STEPS, bits, sampled, total

RULE = ThermalThrottling()
HEAT_HW, HEAT_SW, SLOWDOWN, BRAKE, CAP, IDLE = 0x40, 0x20, 0x8, 0x80, 0x4, 0x1


def ask(reasons, *more, quantities=None):
    return ask_trial(
        RULE,
        device="cuda:0",
        columns=STEPS,
        series=(sampled("gpu_throttle_reasons", reasons), *more),
        quantities={"steps_began_s": BEGAN_S} if quantities is None else quantities,
    )


@pytest.mark.parametrize(
    ("bit", "severity"),
    [
        (HEAT_HW, Severity.CRITICAL),
        (SLOWDOWN, Severity.CRITICAL),
        (BRAKE, Severity.CRITICAL),
        (HEAT_SW, Severity.WARNING),
    ],
)
def test_thirty_percent_of_the_samples_are_found(bit, severity):
    finding = found(ask(bits((bit, 0.3))))
    assert finding.severity is severity
    assert number(finding, "samples with lowered clocks").value == pytest.approx(30, abs=0.5)


def test_a_low_clock_says_what_it_may_cost():
    # 1200 of 1500 MHz in the steps: a fifth; all of the step is computing
    finding = found(ask(bits((HEAT_HW, 0.3)), sampled("gpu_sm_clock", 1200, outside=1500)))
    assert number(finding, "clock below the highest seen").value == pytest.approx(20)
    assert finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx(0.2)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.2)  # the family's prior


@pytest.mark.parametrize("reasons", [bits(), bits((HEAT_HW, 0.03)), bits((CAP, 0.9)), bits((IDLE, 0.5))])
def test_load_and_idleness_are_no_heat(reasons):
    clear(ask(reasons))


def test_only_busy_samples_of_the_steps_count():
    # A tenth of the samples is hot, but the board was idle in exactly those; before the steps it is hot throughout.
    hot = bits((HEAT_HW, 0.1))
    used = np.where(hot > 0, 0.0, 90.0)
    clear(ask(hot, sampled("gpu_utilization", used)))
    clear(
        ask_trial(
            RULE,
            device="cuda:0",
            columns=STEPS,
            series=(sampled("gpu_throttle_reasons", 0, outside=HEAT_HW),),
            quantities={"steps_began_s": BEGAN_S},
        )
    )
    assert INSIDE.sum() > 300


def test_what_nobody_sampled_is_not_cool():
    assert missing(ask_trial(RULE)).why == "the trial ran on the CPU"
    gone = ask_trial(RULE, device="cuda:0", gaps={"gpu_throttle_reasons": "no NVIDIA driver library"})
    assert missing(gone).why == "no NVIDIA driver library"
    assert missing(ask(bits((HEAT_HW, 0.3)), quantities={})).signal == "steps_began_s"
    assert "samples in the steady steps" in missing(ask(bits(), quantities={"steps_began_s": 89.0})).why


# -- the driver's total


HEAT = "gpu_thermal_violation"


def test_the_drivers_total_counts_spells_that_no_sample_met():
    # 70 s of steps, 14 s of them held down; five looks a second met none of it.
    finding = found(ask(bits(), total(HEAT, 14.0)))
    assert finding.summary == "Heat lowered the GPU's clock in 20 % of the busy time."
    shown = number(finding, "time for which heat lowered the clock")
    assert (shown.value, shown.limit) == pytest.approx((20.0, 5.0), rel=0.01)
    assert number(finding, "samples with lowered clocks").value == 0.0
    assert finding.severity is Severity.WARNING  # who lowered it nobody saw


def test_the_total_stands_in_place_of_samples_that_met_more_by_chance():
    # 7 % of the samples are hot (4.7 to 10.2 %), but only 4.9 % of the time was.
    reply = clear(ask(bits((HEAT_SW, 0.07)), total(HEAT, 0.049 * 70)))
    assert number(reply, "time for which heat lowered the clock").value == pytest.approx(4.9, rel=0.01)


def test_a_total_that_stands_still_is_a_measured_zero_unless_samples_say_otherwise():
    assert number(clear(ask(bits(), total(HEAT, 0.0))), "time for which heat lowered the clock").value == 0.0
    finding = found(ask(bits((HEAT_HW, 0.3)), total(HEAT, 0.0)))
    assert "30 % of the busy samples" in finding.summary and finding.severity is Severity.CRITICAL


def test_the_samples_tell_who_lowered_the_clock_for_the_time_that_was_counted():
    finding = found(ask(bits((HEAT_HW, 0.25)), total(HEAT, 21.0)))
    assert finding.summary.startswith("Its hardware lowered the GPU's clock in 30 % of the busy time")
    assert finding.severity is Severity.CRITICAL


def test_a_power_brake_is_in_no_total_of_heat():
    finding = found(ask(bits((BRAKE, 0.3)), total(HEAT, 7.0)))
    assert "in 40 % of the busy time" in finding.summary  # 10 % heat, 30 % brake


def test_the_total_is_held_against_the_time_in_which_the_board_was_busy():
    used = np.zeros(int(INSIDE.sum()))
    used[: used.size // 2] = 80.0
    finding = found(ask(bits(), total(HEAT, 7.0), sampled("gpu_utilization", used)))
    assert number(finding, "time for which heat lowered the clock").value == pytest.approx(20.0, rel=0.02)


@pytest.mark.parametrize("case", ["backwards", "faster than time", "two readings close by"])
def test_a_total_that_cannot_be_right_is_left_aside(case):
    series = total(HEAT, 7.0)
    if case == "backwards":
        values = np.where(np.arange(series.values.size) < 50, series.values + 100, series.values)
        series = dataclasses.replace(series, values=values)
    elif case == "faster than time":
        series = total(HEAT, 80.0)
    else:
        inside = (series.times_ns >= 10e9) & (series.times_ns <= 11e9)
        series = dataclasses.replace(series, times_ns=series.times_ns[inside], values=series.values[inside])
    reply = clear(ask(bits(), series))
    assert [item.metric for item in reply.evidence] == ["samples with lowered clocks"]


def test_the_total_is_enough_where_nobody_sampled_reasons():
    trial = {"device": "cuda:0", "columns": STEPS, "quantities": {"steps_began_s": BEGAN_S}}
    finding = found(ask_trial(RULE, series=(total(HEAT, 14.0),), **trial))
    assert finding.summary == "Heat lowered the GPU's clock in 20 % of the busy time."
    refused = {HEAT: "GPU-1: this board does not report it", "gpu_throttle_reasons": "GPU-1: no permission to read it"}
    assert missing(ask_trial(RULE, gaps=refused, **trial)).why == "GPU-1: no permission to read it"
