"""OPT005: operations that are done twice, and whether memory asks for it."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.opt005_recomputation import Recomputation
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number


def ask(again, *, used=0.3, facts=None, **trial):
    known = {} if again is None else {"recomputed_flops_share": again}
    memory = {} if used is None else {"host_memory_peak": used, "host_memory_total": 1.0}
    return ask_trial(
        Recomputation(), forward=0.3, backward=0.6, other=0.1, facts=known | (facts or {}), quantities=memory, **trial
    )


def test_with_room_it_is_a_price_for_nothing():
    finding = found(ask(0.25))
    assert finding.severity is Severity.INFO
    assert changes(finding) == [{"gradient_checkpointing": False}]
    assert finding.recoverable.high == pytest.approx(0.9 * 0.25, rel=0.02)


@pytest.mark.parametrize("used", [0.8, None])
def test_without_room_it_is_only_told(used):
    finding = found(ask(0.25, used=used))
    assert not finding.remedies and finding.recoverable is None


def test_nothing_twice_is_a_measured_zero():
    assert number(clear(ask(0.0)), "operations done again").value == 0


def test_uncounted_is_not_zero_unless_the_model_says_so():
    assert missing(ask(None)).signal == "recomputed_flops_share"
    assert number(found(ask(None, facts={"gradient_checkpointing": True})), "operations done again").value == 25
