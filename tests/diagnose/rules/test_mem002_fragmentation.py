"""MEM002: what the allocator holds and cannot use."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem002_fragmentation import Fragmentation
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = Fragmentation()


def ask(used, held, *, split=None, retries=0, total=16e9, **trial):
    numbers = {
        "device_memory_peak_allocated": used,
        "device_memory_peak_reserved": held,
        "device_memory_total": total,
        "alloc_retries": retries,
        **({} if split is None else {"device_memory_inactive_split": split}),
    }
    return ask_trial(RULE, device="cuda:0", quantities=numbers, **trial)


def test_an_allocator_that_holds_twice_what_is_used_of_a_full_device_is_found():
    finding = found(ask(7.5e9, 15e9))  # 15 of 16 GB held, 94 %
    assert finding.severity is Severity.WARNING
    assert number(finding, "held over used memory").value == pytest.approx(2.0)


def test_while_there_is_room_it_is_only_mentioned_unless_allocations_were_retried():
    assert found(ask(5e9, 10e9)).severity is Severity.INFO
    assert found(ask(5e9, 10e9, retries=3)).severity is Severity.WARNING


@pytest.mark.parametrize(
    ("used", "held", "split"),
    [(9e9, 10e9, None), (1e9, 3e9, None), (9e9, 10e9, 0.0), (9e9, 10e9, 1e9), (1e9, 3e9, 2e9)],
)
def test_a_close_fit_or_a_small_part_of_the_device_is_clear(used, held, split):
    clear(ask(used, held, split=split))


def test_split_blocks_alone_are_enough():
    # 3 of 10 GB lie in the free parts of split blocks
    assert number(found(ask(8e9, 10e9, split=3e9)), "held in split blocks").value == pytest.approx(30)


def test_buckets_are_proposed_where_lengths_vary():
    varied = {"tokens": [100, 200] * 50}
    assert {"length_bucketing": True} in changes(found(ask(5e9, 10e9, columns=varied)))
    assert changes(found(ask(5e9, 10e9))) == []


def test_what_nobody_measured_is_not_whole():
    assert missing(ask_trial(RULE)).why == "the trial ran on the CPU"
    assert missing(ask_trial(RULE, device="cuda:0")).signal == "device_memory_peak_reserved"
