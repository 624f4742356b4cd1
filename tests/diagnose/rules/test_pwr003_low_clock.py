"""PWR003: a clock that fell because the device waited."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr003_low_clock import LowClock
from tests.diagnose.answers import ask_trial, clear, found, missing
from tests.diagnose.rules.boards import BEGAN_S, STEPS, bits, sampled

RULE = LowClock()


def ask(clock, idle, *, highest=1500.0):
    series = (
        sampled("gpu_sm_clock", clock, outside=highest),
        sampled("gpu_throttle_reasons", bits((0x1, idle))),
    )
    quantities = {"steps_began_s": BEGAN_S}
    return ask_trial(RULE, device="cuda:0", columns=STEPS, series=series, quantities=quantities)


def test_a_low_clock_with_idleness_as_its_reason_is_a_symptom_and_gives_no_advice():
    finding = found(ask(900, 0.4))
    assert finding.severity is Severity.INFO
    assert finding.remedies == () and finding.recoverable is None
    assert "INP001" in finding.symptom_of


def test_a_full_clock_or_another_reason_is_clear():
    clear(ask(1450, 0.4))
    clear(ask(900, 0.0))


def test_clocks_nobody_read():
    assert missing(ask_trial(RULE, device="cuda:0")).signal == "gpu_sm_clock"
    assert "0 MHz" in missing(ask(0.0, 0.4, highest=0.0)).why
