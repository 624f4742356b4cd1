"""XFR002: what pinning could win, where the rate of copies from pinned memory was measured."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.xfr001_transfer_bound import TransferBound
from perf_diagnostics.diagnose.rules.xfr002_pageable_copies import PageableCopies
from perf_diagnostics.diagnose.wording import percent
from tests.diagnose.answers import ask_trial, clear, found, missing, number


def ask(rate=None, *, pinned=False, copies=0.1):
    """A step of 1 s of which this part is copies, at this part of the 20 GB/s from pinned memory."""
    quantities = {"host_to_device_bandwidth": 20e9}
    if rate is not None:
        quantities["copies_in_transfer_bytes"] = rate * 20e9 * copies
    trial = {"transfer": copies, "forward": 1 - copies, "facts": {"pin_memory": pinned}}
    return ask_trial(PageableCopies(), device="cuda:0", quantities=quantities, **trial)


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.59])
def test_pinning_wins_what_the_copies_are_slower(rate):
    finding = found(ask(rate))
    assert finding.severity is Severity.INFO
    shown = number(finding, "rate of copies, of that from pinned memory")
    assert (shown.value, shown.limit) == pytest.approx((100 * rate, 60.0))
    assert finding.recoverable.high == pytest.approx(0.1 * (1 - rate))
    assert f"at {percent(rate)} of the rate from pinned memory" in finding.summary


@pytest.mark.parametrize("rate", [0.61, 0.8, 1.0, 1.3])
def test_copies_that_are_nearly_as_fast_as_from_pinned_memory_are_clear(rate):
    reply = clear(ask(rate))
    assert number(reply, "rate of copies, of that from pinned memory").value == pytest.approx(100 * min(rate, 1.0))
    assert "of the rate from pinned memory" in reply.summary


def test_without_the_rate_from_pinned_memory_the_copies_time_decides():
    trial = {"transfer": 0.1, "forward": 0.9, "facts": {"pin_memory": False}}
    bytes_only = {"copies_in_transfer_bytes": 2e9}
    finding = found(ask_trial(PageableCopies(), device="cuda:0", quantities=bytes_only, **trial))
    assert "rate" not in finding.summary and finding.recoverable is None


def test_slow_copies_that_take_no_time_are_clear():
    assert "take 0.4 % of a step" in clear(ask(0.25, copies=0.004)).summary


def test_the_rate_stands_beside_copies_that_hold_the_device_up():
    quantities = {"host_to_device_bandwidth": 20e9, "copies_in_transfer_bytes": 0.3 * 20e9 * 0.4}
    trial = {"transfer": 0.4, "forward": 0.6, "facts": {"pin_memory": False}}
    finding = found(ask_trial(TransferBound(), device="cuda:0", quantities=quantities, **trial))
    assert number(finding, "rate of copies, of that from pinned memory").value == pytest.approx(30)


def test_without_the_bytes_no_gain_is_claimed():
    finding = found(ask())
    assert finding.recoverable is None and finding.confidence == pytest.approx(0.30)


def test_pinned_batches_are_clear_at_any_rate():
    clear(ask(0.25, pinned=True))


@pytest.mark.parametrize(("pinned", "said"), [(0.4, True), (0.4, None), (0.6, False)])
def test_what_the_copies_come_from_counts_and_not_what_the_loader_says(pinned, said):
    quantities = {"copies_in_large_bytes": 100e6, "copies_in_pinned_bytes": pinned * 100e6}
    facts = {} if said is None else {"pin_memory": said}
    answer = ask_trial(PageableCopies(), device="cuda:0", quantities=quantities, facts=facts, transfer=0.1, forward=0.9)
    if pinned > 0.5:
        clear(answer)
    else:
        (remedy,) = found(answer).remedies
        assert not remedy.change and "pin_memory()" in remedy.says


def test_without_large_copies_and_a_loader_nothing_is_known():
    nothing = {"copies_in_large_bytes": 0.0, "copies_in_pinned_bytes": 0.0}
    for quantities in ({}, nothing):
        missing(ask_trial(PageableCopies(), device="cuda:0", quantities=quantities, transfer=0.1, forward=0.9))
