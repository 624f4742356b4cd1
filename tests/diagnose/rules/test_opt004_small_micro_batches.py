"""OPT004: accumulated batches that each pay the fixed cost of a pass."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.opt004_small_micro_batches import SmallMicroBatches
from perf_diagnostics.records import Phase
from perf_diagnostics.testing import sweep_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing, number

RULE = SmallMicroBatches()


def ask(*, fixed=0.08, optimizer=0.0, steps=4, used=0.1, each=0.001, **sweep):
    """Batches 1 to 16: ``steps`` passes a step, whose fixed costs add up to ``fixed`` s, and ``each`` s a sample."""
    settings = {"accumulation_steps": steps} if steps else {}
    return ask_group(
        RULE,
        sweep_of(
            a_s={Phase.FORWARD: fixed, Phase.OPTIMIZER: optimizer},
            b_s=each,
            batch_sizes=(1, 2, 4, 8, 16),
            settings=settings,
            quantities={"host_memory_peak": used, "host_memory_total": 1.0},
            **sweep,
        ),
    )


def test_the_fixed_cost_is_saved_in_all_passes_but_one():
    finding = found(ask())
    # Recommended is batch 16: 0.08 s fixed of 0.08 + 16 x 4 x 0.001 ... whatever the fit says, three quarters of it go.
    assert finding.severity is Severity.WARNING
    assert changes(finding) == [{"batch_size": 64, "accumulation_steps": 1}]


def test_three_quarters_of_the_overhead_are_lost():
    # The load of a point is what a step really holds: 16 x 4 samples, 0.08 + 0.016 s (each is a second a batch sample).
    lost = number(found(ask()), "fixed cost paid again").value
    assert lost == pytest.approx(100 * 0.75 * 0.08 / (0.08 + 0.016), rel=0.02)


def test_memory_limits_how_far_batches_may_grow():
    # 0.4 in use: twice as much fits under 0.9, four times does not.
    finding = found(ask(used=0.4))
    assert changes(finding) == [{"batch_size": 32, "accumulation_steps": 2}]
    assert number(finding, "fixed cost paid again").value == pytest.approx(100 * 0.5 * 0.08 / 0.096, rel=0.02)
    assert "no room" in clear(ask(used=0.5)).summary


def test_the_optimizer_is_paid_once_anyway():
    # All of the fixed cost is the optimizer's.
    clear(ask(fixed=0.0, optimizer=0.08))


def test_little_overhead_is_clear():
    clear(ask(fixed=0.0005))


def test_without_accumulation_the_question_does_not_arise():
    missing(ask(steps=None))


def test_without_memory_nothing_is_proposed():
    assert missing(ask(without=["host_memory_peak"])).signal
