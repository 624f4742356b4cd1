"""MEM006: pages read back from disk."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem006_swapping import Swapping
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = Swapping()


def ask(faults, swapped=None, **trial):
    numbers = {"major_faults": faults, **({} if swapped is None else {"swapped_bytes": swapped})}
    return ask_trial(RULE, quantities=numbers, **trial)


def test_faults_with_memory_in_swap_are_a_warning():
    finding = found(ask(500, 200e6))  # 100 steps
    assert finding.severity is Severity.WARNING
    assert number(finding, "pages read from disk a step").value == pytest.approx(5.0)
    assert "200 MB of the trial's memory lie in swap" in finding.summary


def test_faults_without_swap_may_be_a_mapped_file_and_are_only_mentioned():
    assert found(ask(500, 0.0)).severity is Severity.INFO
    assert found(ask(500)).severity is Severity.INFO


def test_what_nobody_saw_in_swap_is_not_said_to_come_back_from_it():
    mapped, unseen = found(ask(500, 0.0)), found(ask(500))
    assert "nothing of the trial lies in swap: files that are mapped" in mapped.summary
    assert "whether out of swap or of files that are mapped into memory was not looked at" in unseen.summary
    for finding in (mapped, unseen):
        assert "read back" not in finding.summary
        assert finding.recoverable is None
        assert not any("more memory" in remedy.says for remedy in finding.remedies)
    assert any("more memory" in remedy.says for remedy in found(ask(500, 200e6)).remedies)


@pytest.mark.parametrize(("faults", "steps"), [(0, 100), (4, 100), (19, 100), (40, 1000)])
def test_few_faults_are_clear_even_with_cold_memory_in_swap(faults, steps):
    clear(ask(faults, 1e9, steps=steps))


def test_half_the_workers_are_proposed_where_there_are_some():
    assert changes(found(ask(500, 1e6, facts={"num_workers": 4}))) == [{"num_workers": 2}]
    assert changes(found(ask(500, 1e6))) == []


def test_faults_nobody_counted():
    assert missing(ask_trial(RULE)).signal == "major_faults"
