"""XFR001: copies on the computing stream."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.xfr001_transfer_bound import TransferBound
from perf_diagnostics.records import ALL_PHASES, Phase
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = TransferBound()


def ask(copies, **trial):
    """A step of 1 s on a device, of which ``copies`` s are copies."""
    return ask_trial(RULE, device="cuda:0", transfer=copies, forward=1 - copies, noise=0.02, **trial)


@pytest.mark.parametrize("copies", [0.0, 0.025])
def test_small_copies_are_clear(copies):
    assert number(clear(ask(copies)), "copies to the device").value == pytest.approx(100 * copies, rel=0.05)


@pytest.mark.parametrize(("copies", "severity"), [(0.10, Severity.WARNING), (0.20, Severity.CRITICAL)])
def test_copies_are_graded(copies, severity):
    finding = found(ask(copies))
    assert finding.severity is severity
    assert finding.recoverable.high == pytest.approx(copies, rel=0.05)
    assert finding.recoverable.low == pytest.approx(0.3 * copies, rel=0.05)


def test_pageable_memory_alone_is_only_mentioned():
    """A published trace copied every batch from pageable memory, for 1 to 2 % of the step."""
    clear(ask(0.015, facts={"pin_memory": False}))
    assert found(ask(0.03, facts={"pin_memory": False})).severity is Severity.INFO
    clear(ask(0.03, facts={"pin_memory": True}))


def test_pinning_is_proposed_only_where_it_is_missing():
    assert {"pin_memory": True} in changes(found(ask(0.2, facts={"pin_memory": False})))
    assert changes(found(ask(0.2, facts={"pin_memory": True}))) == []


def test_on_the_cpu_there_is_nothing_to_copy():
    assert isinstance(missing(ask_trial(RULE, transfer=0.5)), NotApplicable)


def test_without_events_copies_are_not_measured():
    missing(ask(0.2, without=[f"device_{phase}_ns" for phase in ALL_PHASES]))


def test_where_the_host_sets_the_pace_the_copies_may_be_its_queueing():
    """A small model at batch 1: each phase takes the device as long as queueing it takes the host, copies included."""
    paced = {"columns": {"starved": 1.0, "borders_idle": 6}}
    finding = found(ask(0.10, **paced))
    assert finding.severity is Severity.INFO and "or the host takes so long" in finding.summary
    # Copies that take the device much longer than queueing them takes the host are copies.
    host = {Phase.TRANSFER: 0.01, Phase.FORWARD: 0.9}
    assert found(ask(0.10, host=host, **paced)).severity is Severity.WARNING
    # Blocking copies from pageable memory hold the host up, but the queue is full after them.
    assert found(ask(0.10, columns={"starved": 1.0, "borders_idle": 3})).severity is Severity.WARNING
