"""MEM010: how full /dev/shm got, and by whom."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem010_shared_memory_full import SharedMemoryFull
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = SharedMemoryFull()
MB64 = 64e6


def ask(used, *, before=0.0, total=MB64, facts=None, **trial):
    """Of ``total`` these parts were in use at most, and before the training."""
    numbers = {
        "shared_memory_total": total,
        "shared_memory_free_before": total * (1 - before),
        "shared_memory_free_least": total * (1 - used),
    }
    given = {"num_workers": 4, "prefetch_factor": 2} | (facts or {})
    return ask_trial(RULE, quantities=numbers, facts=given, **trial)


def test_above_80_percent_is_a_warning_with_a_larger_one_as_remedy():
    finding = found(ask(0.9))
    assert finding.severity is Severity.WARNING and finding.recoverable is None
    assert finding.summary == (
        "90 % of the 64.0 MB of /dev/shm were in use, where 4 loader workers lay their batches: a worker that finds no "
        "room fails, and the training with it."
    )
    shown = number(finding, "shared memory in use")
    assert (shown.value, shown.limit) == pytest.approx((90.0, 80.0))
    assert "--shm-size" in finding.remedies[0].says
    assert changes(finding) == [{"prefetch_factor": 1}]


@pytest.mark.parametrize("used", [0.0, 0.5, 0.79])
def test_below_it_is_clear_with_what_was_seen(used):
    assert number(clear(ask(used)), "shared memory in use").value == pytest.approx(used * 100)


def test_what_others_had_put_there_is_not_laid_to_the_loader():
    finding = found(ask(0.9, before=0.7))
    assert "; 70 % were in use before the training" in finding.summary
    assert "files that ended programs left there" in finding.remedies[0].says and changes(finding) == []
    # Of 90 % it filled 45 itself.
    assert "before the training" not in found(ask(0.9, before=0.45)).summary


def test_workers_that_fetch_nothing_ahead_are_halved_and_one_stays():
    assert changes(found(ask(0.9, facts={"prefetch_factor": 1}))) == [{"num_workers": 2}]
    alone = found(ask(0.9, facts={"prefetch_factor": 1, "num_workers": 1}))
    assert changes(alone) == [] and "1 loader worker lays its batches" in alone.summary


def test_without_workers_the_question_does_not_arise():
    assert isinstance(missing(ask(0.9, facts={"num_workers": 0})), NotApplicable)


def test_without_a_reading_the_gap_says_why():
    reply = missing(
        ask_trial(RULE, facts={"num_workers": 2}, gaps={"shared_memory_total": "/dev/shm cannot be read: no such"})
    )
    assert (reply.signal, reply.why) == ("shared_memory_total", "/dev/shm cannot be read: no such")
    assert missing(ask_trial(RULE)).signal == "num_workers"
