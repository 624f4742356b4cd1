"""PWR004: the fastest batch and the thriftiest one."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr004_energy_optimum import EnergyOptimum
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing, number

RULE = EnergyOptimum()


def sweep(device="cuda:0", **by_batch):
    """``b8=(samples/s, W)``: each trial measures 100 steps."""
    trials = []
    for name, (rate, watts) in by_batch.items():
        size = int(name[1:])
        seconds = size / rate
        energy = {} if watts is None else {"energy_device": watts * 100 * seconds, "energy_device_steps": 100}
        trials.append(trial_of(batch_size=size, device=device, forward=seconds, quantities=energy))
    return run_of(*trials)


def test_a_batch_that_is_nearly_as_fast_for_much_less_energy_is_found():
    # batch 64: 1000/s at 400 W, 0.4 J a sample; batch 32: 970/s at 300 W, 0.309 J
    finding = found(ask_group(RULE, sweep(b32=(970, 300), b64=(1000, 400))))
    assert finding.severity is Severity.INFO
    assert number(finding, "energy a sample at batch 64").value == pytest.approx(0.4)
    assert number(finding, "energy a sample at batch 32").value == pytest.approx(300 / 970)
    assert number(finding, "energy saved").value == pytest.approx(100 * (1 - 300 / 970 / 0.4))
    assert changes(finding) == [{"batch_size": 32}]


@pytest.mark.parametrize(
    "points",
    [
        {"b32": (800, 250), "b64": (1000, 400)},  # a fifth slower
        {"b32": (970, 380), "b64": (1000, 400)},  # saves 2 %
        {"b32": (970, 420), "b64": (1000, 400)},  # needs more
    ],
)
def test_what_is_slower_or_saves_little_is_clear(points):
    clear(ask_group(RULE, sweep(**points)))


def test_energy_nobody_measured():
    assert missing(ask_group(RULE, sweep(b32=(970, None), b64=(1000, None)))).signal == "energy_device"
    assert "at 1 batch sizes" in missing(ask_group(RULE, sweep(b32=(970, None), b64=(1000, 300)))).why
    assert missing(ask_group(RULE, sweep(device="cpu", b32=(9, 3), b64=(9, 3)))).why == "the trial ran on the CPU"
