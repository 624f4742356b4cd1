"""MEM009: memory a sample, and what it says about the largest batch."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem009_memory_model import MemoryModel
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing, number

RULE = MemoryModel()


def sweep(peaks, *, rate=lambda size: 100.0 * size**0.5, total=16e9):
    """Trials by batch size with these peaks in GB; throughput rises with the root of the batch, or as told."""
    trials = [
        trial_of(
            batch_size=size,
            device="cuda:0",
            forward=size / rate(size),
            quantities={"device_memory_peak_reserved": peak * 1e9, "device_memory_total": total},
        )
        for size, peak in peaks.items()
    ]
    return run_of(*trials)


def test_the_line_and_the_batch_that_fills_the_memory():
    # 1 GB + 0.1 GB a sample: (0.92 x 16 - 1) / 0.1 = 137.2
    finding = found(ask_group(RULE, sweep({4: 1.4, 8: 1.8, 16: 2.6, 32: 4.2})))
    assert finding.severity is Severity.INFO
    assert number(finding, "memory a sample").value == pytest.approx(100)
    assert number(finding, "memory whatever the batch").value == pytest.approx(1000)
    assert number(finding, "batch that fills 92% of the memory").value == 137
    assert changes(finding) == [{"batch_size": 64}]
    assert "Nobody ran it" in finding.summary


def test_a_number_far_beyond_what_ran_is_not_given():
    finding = found(ask_group(RULE, sweep({1: 0.11, 2: 0.12, 4: 0.14})))  # 10 MB a sample: 1462 against 4
    assert "more than 64" in finding.summary
    assert "1462" not in finding.summary


def test_no_room_or_no_use_for_it_is_clear():
    clear(ask_group(RULE, sweep({32: 4.2, 64: 7.4, 100: 11.0})))  # 137 is less than twice 100
    clear(ask_group(RULE, sweep({4: 1.4, 8: 1.8, 16: 2.6}, rate=lambda size: 100.0)))


def test_a_bent_line_or_too_few_sizes_or_no_growth_is_refused():
    assert "no straight line" in missing(ask_group(RULE, sweep({4: 1.0, 8: 1.2, 16: 6.0}))).why
    assert "a line needs 3" in missing(ask_group(RULE, sweep({4: 1.4, 8: 1.8}))).why
    assert "does not grow" in missing(ask_group(RULE, sweep({4: 2.0, 8: 2.0, 16: 2.0}))).why


def test_peaks_nobody_measured():
    run = run_of(*(trial_of(batch_size=size, device="cuda:0") for size in (1, 2, 4)))
    assert missing(ask_group(RULE, run)).signal == "device_memory_peak_reserved"
