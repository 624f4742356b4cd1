"""PWR001: clocks that heat or the supply holds down."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr001_thermal_throttling import ThermalThrottling
from tests.diagnose.answers import ask_trial, clear, found, missing, number
from tests.diagnose.rules.boards import BEGAN_S, INSIDE, STEPS, bits, sampled

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
