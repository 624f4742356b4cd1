"""SWP003: a largest batch that is slower, with the cause in the records."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Finding, Severity
from perf_diagnostics.diagnose.rules.swp003_past_the_peak import PastThePeak
from perf_diagnostics.testing import run_of, throughput_sweep, trial_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing, number

RULE = PastThePeak()

#: milabench, config/scaling (MIT): samples/s by batch size. The peak lies before the largest batch.
H100_REGNET = {32: 197.27, 64: 221.74, 80: 232.74, 128: 219.19, 136: 177.69, 184: 176.82}
L40S_LIGHTNING = {56: 615.41, 128: 561.19, 216: 521.48, 296: 501.13, 464: 456.38}


def ask_with_loss(loss, *, processes=3):
    """Best at batch 16, and ``loss`` of its throughput lost at batch 32."""
    rates = {8: 80, 16: 100, 32: 100 * (1 - loss)}
    sweeps = [throughput_sweep(rates, noise=0.01, repeat=repeat) for repeat in range(processes)]
    return ask_group(RULE, run_of(*(result for sweep in sweeps for result in sweep.results)))


def pair(best, last, **shared):
    """Two trials, batch 16 and the slower batch 64, from what differs between them."""
    return run_of(trial_of(batch_size=16, **shared, **best), trial_of(batch_size=64, **shared, **last))


@pytest.mark.parametrize("loss", [-0.2, 0.0, 0.01])
def test_up_to_half_the_limit_is_clear(loss):
    clear(ask_with_loss(loss))


@pytest.mark.parametrize(
    ("loss", "severity"), [(0.04, Severity.INFO), (0.10, Severity.WARNING), (0.30, Severity.CRITICAL)]
)
def test_a_loss_is_graded_and_its_gain_measured(loss, severity):
    finding = found(ask_with_loss(loss))
    assert finding.severity is severity
    assert finding.recoverable.value == pytest.approx(loss, abs=0.01)
    assert finding.recoverable.low <= loss <= finding.recoverable.high
    assert changes(finding)[:2] == [{"batch_size": 16}, {"batch_size": 16, "accumulation_steps": 2}]


@pytest.mark.parametrize(("loss", "severity"), [(0.10, Severity.INFO), (0.25, Severity.INFO), (0.30, Severity.WARNING)])
def test_a_single_process_a_size_warns_only_beyond_what_processes_differ_by(loss, severity):
    # Two processes may differ by 8.5 % each, and the best was chosen of two: 0.27 of the logarithm, and 5 % beside it.
    alone = found(ask_with_loss(loss, processes=1))
    assert alone.severity is severity
    assert ("repeats would tell" in alone.summary) is (alone.severity is not found(ask_with_loss(loss)).severity)
    assert any("--repeats 3" in remedy.says for remedy in alone.remedies)


def test_what_shows_beside_the_loss_proves_it_in_single_processes():
    # 20 % lost: for single processes that is no proof, and retried allocations are.
    slow = {"forward": 0.80}
    assert found(ask_group(RULE, pair({"forward": 0.16}, slow, device="cuda:0"))).severity is Severity.INFO
    retried = pair({"forward": 0.16, "quantities": {"alloc_retries": 0}},
                   slow | {"quantities": {"alloc_retries": 12}}, device="cuda:0")  # fmt: skip
    assert found(ask_group(RULE, retried)).severity is Severity.WARNING


def test_of_flat_sweeps_hardly_any_is_past_its_peak():
    # Seven sizes of one process each, which differ by 1 %: at 95 % a comparison one in three was called slower.
    slower = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        factors = 1 + 0.01 * rng.standard_normal(7)
        rates = {size: 1000.0 * factor for size, factor in zip((1, 2, 4, 8, 16, 32, 64), factors, strict=True)}
        slower += isinstance(ask_group(RULE, throughput_sweep(rates, noise=0.05, steps=40, seed=seed)), Finding)
    assert slower <= 4


def test_a_sweep_that_goes_up_and_down_needs_a_larger_loss_to_be_mentioned():
    # 5 % lost at 64. Rising and falling once, that is mentioned; the same after ups and downs of 6 % may be chance.
    once = {4: 80, 8: 90, 16: 95, 32: 100, 64: 95}
    again = {4: 100, 8: 94, 16: 99, 32: 93, 64: 95}
    smooth = found(ask_group(RULE, throughput_sweep(once, noise=0.01)))
    assert not [e for e in smooth.evidence if "scatter" in e.metric]
    clear(ask_group(RULE, throughput_sweep(again, noise=0.01)))
    # 8 lies 5.2 % below 16 (of the logarithms): 0.051 / sqrt(3) = 3.0 %.
    uneven = found(ask_group(RULE, throughput_sweep(again | {64: 86}, noise=0.01)))
    assert uneven.severity is Severity.INFO
    assert number(uneven, "scatter of the sizes around a rise and fall").value == pytest.approx(3.0, abs=0.3)


def test_a_loss_within_the_noise_is_clear():
    # 3 % less, with steps that vary by a third.
    clear(ask_group(RULE, throughput_sweep({16: 100, 32: 97}, noise=0.33, steps=20)))


@pytest.mark.parametrize(
    ("published", "best", "reaches", "severity"),
    [
        (H100_REGNET, 80, 0.76, Severity.INFO),  # two drops in single processes
        (L40S_LIGHTNING, 56, 0.742, Severity.CRITICAL),  # five sizes, each slower than the one before
    ],
)
def test_published_sweeps_past_their_peak(published, best, reaches, severity):
    finding = found(ask_group(RULE, throughput_sweep(published)))
    assert finding.severity is severity
    assert number(finding, "throughput at the largest batch, of the best").value == pytest.approx(
        100 * reaches, abs=0.5
    )
    assert changes(finding)[0] == {"batch_size": best}


def test_retried_allocations_are_named():
    run = pair(
        {"forward": 0.16, "quantities": {"alloc_retries": 0}},
        {"forward": 0.80, "quantities": {"alloc_retries": 12}},
        device="cuda:0",
    )
    finding = found(ask_group(RULE, run))
    assert "retried 12 times" in finding.summary
    assert {"gradient_checkpointing": True} in changes(finding)


def test_retries_that_are_as_many_at_the_best_batch_explain_nothing():
    run = pair({"forward": 0.16}, {"forward": 0.80}, device="cuda:0", quantities={"alloc_retries": 3})
    assert "retried" not in found(ask_group(RULE, run)).summary


def test_paging_is_named():
    run = pair(
        {"forward": 0.16, "quantities": {"major_faults": 2}}, {"forward": 0.80, "quantities": {"major_faults": 9000}}
    )
    assert "9000 pages of memory were read back from disk" in found(ask_group(RULE, run)).summary
    calm = pair(
        {"forward": 0.16, "quantities": {"major_faults": 2}}, {"forward": 0.80, "quantities": {"major_faults": 9}}
    )
    assert "pages" not in found(ask_group(RULE, calm)).summary


def test_full_memory_is_named():
    total = {"host_memory_total": 10e9}
    run = pair(
        {"forward": 0.16, "quantities": total | {"host_memory_peak": 4e9}},
        {"forward": 0.80, "quantities": total | {"host_memory_peak": 9.6e9}},
    )
    assert "the host's memory is 96 % full" in found(ask_group(RULE, run)).summary


def test_longer_samples_are_no_loss_of_speed():
    # 16 samples of 100 tokens in 0.16 s, 64 samples of 150 tokens in 0.96 s: 10,000 tokens/s both.
    run = pair({"forward": 0.16, "columns": {"tokens": 1600}}, {"forward": 0.96, "columns": {"tokens": 9600}})
    finding = found(ask_group(RULE, run))
    assert finding.severity is Severity.INFO
    assert "tokens/s did not decline" in finding.summary
    assert finding.recoverable is None
    assert changes(finding) == []


def test_longer_samples_that_explain_half_are_named_with_the_loss():
    # A sample costs twice as much, and has 60 % more tokens.
    run = pair({"forward": 0.16, "columns": {"tokens": 1600}}, {"forward": 1.28, "columns": {"tokens": 10240}})
    finding = found(ask_group(RULE, run))
    assert finding.severity is Severity.CRITICAL
    assert "a sample has 60 % more tokens" in finding.summary


def test_the_phase_that_grew_is_named():
    # A sample costs 10 ms more in backward and 1 ms more in forward.
    run = pair({"forward": 0.16, "backward": 0.16}, {"forward": 0.704, "backward": 1.28})
    finding = found(ask_group(RULE, run))
    assert "91 % of what a sample costs more lies in backward" in finding.summary
    assert number(finding, "growth of the time a sample, in backward").value == pytest.approx(10.0)


def test_without_any_cause_in_the_records_that_is_said():
    run = pair(
        {"forward": 0.16},
        {"forward": 1.28},
        without=[f"host_{p}_ns" for p in ("forward", "data_wait", "transfer", "backward", "optimizer")],
    )
    finding = found(ask_group(RULE, run))
    assert "do not show why" in finding.summary
    assert finding.confidence == 0.7


def test_one_size_cannot_be_past_anything():
    missing(ask_group(RULE, run_of(trial_of())))


def test_a_flat_sweep_is_seldom_past_its_peak():
    """Equal throughput at five sizes, processes that differ by 1 %: a warning would be a false alarm."""
    alarms = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        run = throughput_sweep(
            {2**k: 100 * (1 + 0.01 * rng.standard_normal()) for k in range(5)}, noise=0.03, seed=seed
        )
        reply = ask_group(RULE, run)
        alarms += getattr(reply, "severity", Severity.INFO) is not Severity.INFO
    assert alarms == 0
