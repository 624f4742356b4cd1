"""How often a step calls what it trains: means, usual steps, shares of time, and what was not counted."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.call_facts import calls_a_step, share_of_calls, usually
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured
from tests.diagnose.answers import facts_of


def test_counts_are_means_over_the_steady_steps():
    facts = facts_of(forward=1.0, columns={"backwards": [1, 3] * 50})
    assert calls_a_step(facts, "backwards").value == pytest.approx(2.0)


@pytest.mark.parametrize(("every", "usual"), [(1, True), (2, True), (3, False)])
def test_what_is_in_half_of_the_steps_is_usual(every: int, usual: bool):
    counts = [1 if step % every == 0 else 0 for step in range(100)]
    assert usually(facts_of(forward=1.0, columns={"forwards_again": counts}), "forwards_again") is usual


def test_times_are_shares_of_the_step_and_of_a_device_not_known():
    columns = {"forwards_again_ns": 300_000_000}
    assert share_of_calls(facts_of(forward=1.0, columns=columns), "forwards_again_ns").value == pytest.approx(0.3)
    with pytest.raises(NotApplicable, match="queueing"):
        share_of_calls(facts_of(forward=1.0, columns=columns, device="cuda:0"), "forwards_again_ns")


def test_what_nobody_counted_is_not_none():
    with pytest.raises(NotMeasured, match="older records do not"):
        calls_a_step(facts_of(forward=1.0), "backwards")
