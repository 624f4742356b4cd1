"""MEM001: how full memory was, and whether that hurt."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem001_memory_pressure import MemoryPressure
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = MemoryPressure()


def ask_host(share, **trial):
    return ask_trial(RULE, quantities={"host_memory_peak": share * 8e9, "host_memory_total": 8e9}, **trial)


def ask_device(share, retries, **trial):
    numbers = {"device_memory_peak_reserved": share * 16e9, "device_memory_total": 16e9}
    more = {} if retries is None else {"alloc_retries": retries}
    return ask_trial(RULE, device="cuda:0", quantities=numbers | more, **trial)


@pytest.mark.parametrize("share", [0.0, 0.45, 0.89])
def test_room_is_clear(share):
    assert number(clear(ask_host(share)), "host memory at peak").value == pytest.approx(100 * share)


@pytest.mark.parametrize(("share", "severity"), [(0.92, Severity.WARNING), (0.98, Severity.CRITICAL)])
def test_a_full_host_is_found(share, severity):
    assert found(ask_host(share)).severity is severity


@pytest.mark.parametrize(
    ("share", "retries", "severity"),
    [
        (0.95, 4, Severity.WARNING),
        (0.98, 4, Severity.CRITICAL),
        (0.95, 0, Severity.INFO),  # the allocator keeps what it once had
        (0.98, 0, Severity.WARNING),
    ],
)
def test_a_full_device_hurts_where_allocations_are_retried(share, retries, severity):
    finding = found(ask_device(share, retries))
    assert finding.severity is severity
    assert number(finding, "retried allocations").value == retries


def test_retries_that_nobody_counted_are_not_named():
    finding = found(ask_device(0.95, None))
    assert "retr" not in finding.summary
    assert finding.severity is Severity.INFO


def test_half_the_batch_is_proposed():
    finding = found(ask_host(0.95, batch_size=32))
    assert {"batch_size": 16, "accumulation_steps": 2} in changes(finding)
    assert all("batch_size" not in change for change in changes(found(ask_host(0.95, batch_size=1))))


def test_memory_that_nobody_measured_is_not_empty():
    assert missing(ask_trial(RULE)).signal == "host_memory_peak"
    reply = missing(ask_trial(RULE, device="cuda:0", gaps={"device_memory_peak_reserved": "no allocator statistics"}))
    assert reply.why == "no allocator statistics"
