"""XFR002: what pinning could win, where the rate of copies from pinned memory was measured."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.xfr002_pageable_copies import PageableCopies
from tests.diagnose.answers import ask_trial, clear, found, number


def ask(rate=None, *, pinned=False, copies=0.1):
    """A step of 1 s of which this part is copies, at this part of the 20 GB/s from pinned memory."""
    quantities = {"host_to_device_bandwidth": 20e9}
    if rate is not None:
        quantities["copies_in_transfer_bytes"] = rate * 20e9 * copies
    trial = {"transfer": copies, "forward": 1 - copies, "facts": {"pin_memory": pinned}}
    return ask_trial(PageableCopies(), device="cuda:0", quantities=quantities, **trial)


@pytest.mark.parametrize("rate", [0.25, 0.6, 1.0])
def test_pinning_wins_what_the_copies_are_slower(rate):
    finding = found(ask(rate))
    assert finding.severity is Severity.INFO
    assert number(finding, "rate of copies, of that from pinned memory").value == pytest.approx(100 * rate)
    assert finding.recoverable.high == pytest.approx(0.1 * (1 - rate))


def test_without_the_bytes_no_gain_is_claimed():
    finding = found(ask())
    assert finding.recoverable is None and finding.confidence == pytest.approx(0.30)


def test_pinned_batches_are_clear_at_any_rate():
    clear(ask(0.25, pinned=True))
