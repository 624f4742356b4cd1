"""CMP001: accelerator against CPU at equal batch."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp001_poor_speedup import PoorSpeedup
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_run, changes, clear, found, missing, number

RULE = PoorSpeedup()


def ask(speedup, **gpu):
    """A CPU step of 1 s, and the same work ``speedup`` times as fast on a device."""
    shares = {"forward": 1.0} | gpu
    seconds = {phase: share / speedup for phase, share in shares.items()}
    return ask_run(RULE, run_of(trial_of(forward=1.0, noise=0.02), trial_of(device="cuda:0", noise=0.02, **seconds)))


@pytest.mark.parametrize("speedup", [28.0, 6.0])
def test_a_fast_device_is_clear(speedup):
    assert number(clear(ask(speedup)), "speed-up at batch 8").value == pytest.approx(speedup, rel=0.02)


@pytest.mark.parametrize(("speedup", "severity"), [(2.0, Severity.WARNING), (0.5, Severity.CRITICAL)])
def test_a_slow_device_is_graded(speedup, severity):
    finding = found(ask(speedup))
    assert finding.severity is severity
    assert number(finding, "speed-up at batch 8").value == pytest.approx(speedup, rel=0.02)


def test_slower_than_the_cpu_is_a_measured_loss():
    finding = found(ask(0.5))
    assert finding.recoverable.value == pytest.approx(0.5, abs=0.01)
    assert {"device": "cpu"} in changes(finding)
    assert found(ask(2.0)).recoverable is None


def test_what_the_devices_step_goes_to_is_named():
    finding = found(ask(2.0, data_wait=0.6, transfer=0.15, forward=0.25))
    assert "Of its step exposed data wait takes 60 % and copying to the device takes 15 %" in finding.summary
    assert number(finding, "exposed data wait").value == pytest.approx(60, rel=0.02)
    assert "small or slow" in found(ask(2.0)).summary


def test_it_is_judged_at_the_largest_common_batch():
    run = run_of(
        *(trial_of(batch_size=b, forward=0.1 * b) for b in (1, 8, 64)),
        *(trial_of(batch_size=b, forward=0.2 + 0.01 * b, device="cuda:0") for b in (1, 8, 64)),
    )
    # 0.1/0.21 at batch 1, 0.8/0.28 at batch 8, 6.4/0.84 at batch 64.
    assert number(clear(ask_run(RULE, run)), "speed-up at batch 1").value == pytest.approx(0.476, abs=0.001)


def test_a_speedup_that_rises_points_to_fixed_costs():
    run = run_of(
        *(trial_of(batch_size=b, forward=0.1 * b) for b in (1, 2, 4, 8)),
        *(trial_of(batch_size=b, forward=0.4 + 0.01 * b, device="cuda:0") for b in (1, 2, 4, 8)),
    )
    finding = found(ask_run(RULE, run))  # 0.8 / 0.48 at batch 8, 0.1 / 0.41 at batch 1
    assert "At batch 1 it is 0.24 times as fast: fixed costs hold it back" in finding.summary
    assert number(finding, "fixed cost of a step").value == pytest.approx(100 * 0.4 / 0.48, abs=1)


def test_the_threads_of_the_cpu_are_said():
    run = run_of(trial_of(forward=1.0, facts={"threads": 2}), trial_of(forward=0.9, device="cuda:0"))
    assert number(found(ask_run(RULE, run)), "threads on the CPU").value == 2


def test_noise_around_the_limit_does_not_fire():
    # 2.9 times, with steps that vary by 40 %: the interval reaches above 3.
    run = run_of(
        trial_of(forward=2.9, noise=0.4, steps=20), trial_of(forward=1.0, noise=0.4, steps=20, device="cuda:0")
    )
    clear(ask_run(RULE, run))


@pytest.mark.parametrize(
    "run",
    [
        run_of(trial_of()),
        run_of(trial_of(device="cuda:0")),
        run_of(trial_of(batch_size=8), trial_of(batch_size=16, device="cuda:0")),
    ],
)
def test_without_a_pair_there_is_no_speedup(run):
    assert missing(ask_run(RULE, run)).signal == "device_pair"


def test_with_measured_ceilings_the_speedup_is_held_against_them():
    # 20 times the products and 10 times the copies: 10 times is to be expected, and 3 the least.
    def run(speedup):
        slow = trial_of(forward=1.0, noise=0.02, quantities={"matmul_ceiling": 1e12, "memory_bandwidth": 1e11})
        fast = {"matmul_ceiling": 20e12, "memory_bandwidth": 10e11}
        return run_of(slow, trial_of(forward=1 / speedup, device="cuda:0", noise=0.02, quantities=fast))

    finding = found(ask_run(RULE, run(2.0)))
    assert "; products and memory would allow 10 times." in finding.summary
    assert number(finding, "speed-up at batch 8").limit == pytest.approx(3.0)
    clear(ask_run(RULE, run(4.0)))
