"""SWP002: the recommended batch."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.swp002_throughput_knee import ThroughputKnee
from perf_diagnostics.records import Outcome
from perf_diagnostics.testing import run_of, sweep_of, throughput_sweep, trial_of
from tests.diagnose.answers import ask_group, changes, found, missing, number

RULE = ThroughputKnee()

#: milabench, config/scaling/H100.yaml, bert in float16 (MIT): samples/s by batch size.
H100_BERT_FP16 = {1: 27.83, 16: 359.67, 24: 442.6, 40: 512.36, 48: 527.14, 64: 551.29, 104: 578.97, 136: 591.05}


def test_the_smallest_size_near_the_best_is_recommended():
    finding = found(ask_group(RULE, throughput_sweep({8: 50, 16: 90, 32: 97, 64: 100})))
    assert finding.severity is Severity.INFO
    assert number(finding, "recommended batch").value == 32
    assert changes(finding) == [{"batch_size": 32}]
    assert "reaches 97 % of the best throughput" in finding.summary
    assert all("learning rate" in remedy.says for remedy in finding.remedies)


def test_throughput_that_rises_to_the_end_puts_the_knee_at_or_beyond_it():
    finding = found(ask_group(RULE, throughput_sweep({8: 50, 16: 80, 32: 120})))
    assert number(finding, "recommended batch").value == 32
    assert "lies at or beyond it" in finding.summary
    assert {"batch_size": 64} in changes(finding)


def test_no_larger_size_is_proposed_where_memory_ended():
    run = sweep_of(a_s=1.0, b_s=0.001, batch_sizes=(8, 16, 32), failures={32: Outcome.OUT_OF_MEMORY_DEVICE})
    assert changes(found(ask_group(RULE, run))) == [{"batch_size": 16}]


def test_a_published_sweep():
    finding = found(ask_group(RULE, throughput_sweep(H100_BERT_FP16)))
    assert number(finding, "recommended batch").value == 104  # 98 % of 591 samples/s; batch 64 reaches 93 %
    assert "may lie beyond" in finding.summary


def test_noise_that_hides_the_difference_is_said():
    finding = found(ask_group(RULE, throughput_sweep({8: 50, 16: 95.2, 32: 100}, noise=0.2)))
    assert "The measurements are too noisy to tell it from its neighbours." in finding.summary


def test_small_batches_that_pay_fixed_costs_are_seen_without_a_model():
    """At batch 16 the published step has 16 times the samples and takes 44.5 ms instead of 35.9 ms."""
    assert (
        "takes 1.24 times as long: small batches mostly pay fixed costs"
        in found(ask_group(RULE, throughput_sweep(H100_BERT_FP16))).summary
    )
    # Twice the samples in 1.6 times the time: less than half of the step is fixed.
    assert "fixed costs" not in found(ask_group(RULE, throughput_sweep({8: 80, 16: 100, 32: 101}))).summary


@pytest.mark.parametrize("run", [run_of(trial_of()), throughput_sweep({8: 50})])
def test_one_size_has_no_knee(run):
    assert missing(ask_group(RULE, run)).signal == "batch_sizes"
