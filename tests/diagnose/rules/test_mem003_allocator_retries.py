"""MEM003: allocations that failed at first."""

from __future__ import annotations

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem003_allocator_retries import AllocatorRetries
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = AllocatorRetries()


def test_retries_are_found_and_less_memory_is_proposed():
    finding = found(ask_trial(RULE, device="cuda:0", batch_size=32, quantities={"alloc_retries": 4}))
    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith("4 allocations in 100 steps failed at first")
    assert {"batch_size": 16, "accumulation_steps": 2} in changes(finding)
    assert finding.recoverable is None  # what a retry costs is not known


def test_allocations_that_failed_for_good_are_critical():
    finding = found(ask_trial(RULE, device="cuda:0", batch_size=32, quantities={"alloc_retries": 2, "alloc_ooms": 3}))
    assert finding.severity is Severity.CRITICAL
    assert finding.summary.startswith("3 allocations in 100 steps found no memory even after")
    assert (number(finding, "retried allocations").value, number(finding, "failed allocations").value) == (2, 3)
    # A failure that no retry went before (the pool is capped) counts as well.
    assert found(ask_trial(RULE, device="cuda:0", quantities={"alloc_retries": 0, "alloc_ooms": 1})).severity is (
        Severity.CRITICAL
    )
    none = clear(ask_trial(RULE, device="cuda:0", quantities={"alloc_retries": 0, "alloc_ooms": 0}))
    assert number(none, "failed allocations").value == 0
    old = clear(ask_trial(RULE, device="cuda:0", quantities={"alloc_retries": 0}))  # a record that does not know
    assert [item.metric for item in old.evidence] == ["retried allocations"]


def test_waits_of_the_allocator_stand_beside_and_find_nothing_by_themselves():
    finding = found(ask_trial(RULE, device="cuda:0", quantities={"alloc_retries": 2, "alloc_syncs": 9}))
    assert number(finding, "waits of the allocator").value == 9
    # empty_cache() in the loop: it waits, and nothing failed.
    assert (
        number(
            clear(ask_trial(RULE, device="cuda:0", quantities={"alloc_retries": 0, "alloc_syncs": 9})),
            "waits of the allocator",
        ).value
        == 9
    )


def test_none_is_a_measured_zero_and_not_counted_is_neither():
    clear(ask_trial(RULE, device="cuda:0", quantities={"alloc_retries": 0}))
    assert missing(ask_trial(RULE, device="cuda:0")).signal == "alloc_retries"
    assert missing(ask_trial(RULE)).why == "the trial ran on the CPU"
