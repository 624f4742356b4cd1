"""MEM005: free memory matters only where a larger batch pays."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem005_memory_headroom import MemoryHeadroom
from perf_diagnostics.testing import sweep_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing, number

RULE = MemoryHeadroom()


def sweep(*, a_s, used, **more):
    numbers = {} if used is None else {"host_memory_peak": used * 8e9, "host_memory_total": 8e9}
    return sweep_of(a_s=a_s, b_s=0.001, batch_sizes=(1, 2, 4, 8, 16), quantities=numbers, noise=0.001, **more)


def test_free_memory_and_a_large_fixed_cost_are_found():
    # at batch 16: 16 of 32 ms are fixed; 30 % of the memory is used
    finding = found(ask_group(RULE, sweep(a_s=0.016, used=0.3)))
    assert finding.severity is Severity.INFO
    assert number(finding, "fixed cost of the largest batch's step").value == pytest.approx(50, rel=0.05)
    assert changes(finding) == [{"batch_size": 32}]
    assert "SWP001" in finding.symptom_of


@pytest.mark.parametrize(("a_s", "used"), [(0.016, 0.8), (0.001, 0.3), (0.016, 0.61)])
def test_full_memory_or_no_fixed_cost_is_clear(a_s, used):
    clear(ask_group(RULE, sweep(a_s=a_s, used=used)))


def test_memory_nobody_measured_is_not_free_and_a_measured_zero_is():
    assert missing(ask_group(RULE, sweep(a_s=0.016, used=None))).signal == "memory"
    found(ask_group(RULE, sweep(a_s=0.016, used=0.0)))
