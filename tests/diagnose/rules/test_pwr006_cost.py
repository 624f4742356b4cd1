"""PWR006: a price for an hour over the samples of an hour."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.cli.rule_flags import thresholds
from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.pwr006_cost import Cost
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of
from tests.diagnose.answers import ask_group, found, missing, number


def test_the_price_of_a_million_samples():
    # 1000 samples/s: a million in 1000 s, at 3.60 an hour for 0.001 a second
    finding = found(ask_group(Cost(price_per_hour=3.6), throughput_sweep({8: 500.0, 16: 1000.0})))
    assert finding.severity is Severity.INFO
    assert number(finding, "a million samples at batch 16").value == pytest.approx(1.0)
    assert number(finding, "a million samples at batch 8").value == pytest.approx(2.0)
    assert finding.batch_sizes == (16,)


def test_the_ends_of_the_throughputs_interval_change_places():
    evidence = found(
        ask_group(Cost(price_per_hour=3.6), run_of(trial_of(forward=0.01, batch_size=10, noise=0.05)))
    ).evidence[0]
    assert evidence.low < evidence.value < evidence.high


def test_every_ranks_device_is_paid():
    one = trial_of(forward=0.01, batch_size=10)  # 1000 samples/s
    two = dataclasses.replace(one, steps=one.steps * 2)  # 2000 samples/s of two devices
    for result in (one, two):
        finding = found(ask_group(Cost(price_per_hour=3.6), run_of(result)))
        assert number(finding, "a million samples at batch 10").value == pytest.approx(1.0)


def test_without_a_price_it_is_not_measured_and_says_how_to_give_one():
    why = missing(ask_group(Cost(), run_of(trial_of()))).why
    flag, value = why.split()[-2:]
    assert flag == "--threshold"
    run = throughput_sweep({8: 500.0})
    codes = [finding.code for finding in diagnose(run, thresholds=thresholds([value])).findings]
    assert "PWR006" in codes
    assert "PWR006" in [rule.code for rule in diagnose(run).not_checked]
