"""MEM007: checkpointing that buys nothing, and checkpointing that would pay."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.mem007_checkpointing import Checkpointing
from perf_diagnostics.records import Run
from perf_diagnostics.testing import run_of, sweep_of, trial_of
from tests.diagnose.answers import ask_group, changes, clear, found, missing

GB = 1e9


def memory(share: float) -> dict[str, float]:
    return {"host_memory_peak": share * 100 * GB, "host_memory_total": 100 * GB}


def trained(
    used: float | None,
    *,
    settings: dict[str, Any] | None = None,
    forward: float = 0.06,
    backward: float = 0.03,
    **facts: Any,
) -> Run:
    """By default 60 of 100 ms forward, 30 backward."""
    return run_of(
        trial_of(
            forward=forward,
            backward=backward,
            optimizer=0.01,
            noise=0.01,
            facts={"matmul_precision": "highest", **facts},
            quantities={} if used is None else memory(used),
            settings=settings or {},
        )
    )


def test_checkpointing_with_free_memory_buys_nothing() -> None:
    # A fifth of the operations of 90 % of the step: 18 % of it are computed again, with 20 % of the memory in use.
    finding = found(ask_group(Checkpointing(), trained(0.2, gradient_checkpointing=True, recomputed_flops_share=0.2)))
    assert finding.severity is Severity.WARNING
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.18, abs=0.01)
    assert changes(finding) == [{"gradient_checkpointing": False}]


@pytest.mark.parametrize(
    ("forward", "backward", "least", "most"),
    [
        (0.06, 0.03, 0.225, 0.30),  # a quarter of 90 %; no longer than the backward that it lies in
        (0.03, 0.06, 0.225, 0.30),  # or all of forward, where a backward takes as long as a forward
        (0.015, 0.075, 0.15, 0.15),  # what is done again takes no longer than it did before
    ],
)
def test_what_was_not_counted_lies_between_a_quarter_of_both_passes_and_all_of_forward(
    forward: float, backward: float, least: float, most: float
) -> None:
    settings = {"gradient_checkpointing": True}
    finding = found(ask_group(Checkpointing(), trained(0.2, settings=settings, forward=forward, backward=backward)))
    # The least that it can be is enough to warn of.
    assert finding.severity is Severity.WARNING and finding.recoverable is not None
    assert finding.recoverable.high == pytest.approx(most, abs=0.01)
    assert finding.evidence[0].low == pytest.approx(100 * least, abs=1)


def test_where_the_least_that_it_can_be_is_little_it_is_only_mentioned() -> None:
    # A quarter of both passes is 4.8 % of a step of 12.4 ms, and forward is 6.5 %.
    passes = {"forward": 0.0008, "backward": 0.0016}
    finding = found(ask_group(Checkpointing(), trained(0.2, settings={"gradient_checkpointing": True}, **passes)))
    assert finding.severity is Severity.INFO and finding.evidence[0].low < 5 < finding.evidence[0].value


def test_checkpointing_that_fills_the_memory_is_clear() -> None:
    assert "in use" in clear(ask_group(Checkpointing(), trained(0.8, gradient_checkpointing=True))).summary


def test_nothing_computed_again_with_room_is_clear_and_nobody_looked_is_not_measured() -> None:
    assert clear(ask_group(Checkpointing(), trained(0.2))).evidence[0].value == pytest.approx(20)
    assert clear(ask_group(Checkpointing(), trained(0.2, recomputed_flops_share=0.0)))
    assert missing(ask_group(Checkpointing(), trained(None))).signal == "memory"
    unknown = run_of(trial_of(quantities=memory(0.2)))
    assert missing(ask_group(Checkpointing(), unknown)).signal == "gradient_checkpointing"
    unseen = missing(ask_group(Checkpointing(), trained(0.2, gradient_checkpointing=None)))
    assert unseen.signal == "gradient_checkpointing" and "compiled" in unseen.why


def full(fixed_s: float, *, used: float = 0.95) -> Run:
    return sweep_of(
        a_s=fixed_s,
        b_s=0.001,
        batch_sizes=(1, 2, 4, 8, 16),
        facts={"matmul_precision": "highest"},
        quantities=memory(used),
    )


def test_with_a_large_fixed_cost_twice_the_batch_pays_for_it() -> None:
    # 40 + 16 ms for 16 samples; 40 + 32 for 32: 56 / 72 x 2 = 1.556 times, less 22 % is 1.213.
    finding = found(ask_group(Checkpointing(), full(0.04)))
    assert finding.severity is Severity.INFO and "21 % higher" in finding.summary
    assert changes(finding) == [{"gradient_checkpointing": True, "batch_size": 32}]
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(1 - 1 / 1.2133, abs=0.001)


def test_with_a_small_fixed_cost_it_does_not() -> None:
    # 2 + 16 ms and 2 + 32: 18 / 34 x 2 = 1.059 times, less than the 22 % it costs.
    assert "twice the batch would win 5.9 %" in clear(ask_group(Checkpointing(), full(0.002))).summary
    assert clear(ask_group(Checkpointing(), full(0.04, used=0.5)))


def test_one_batch_size_says_nothing_about_a_larger_one() -> None:
    assert missing(ask_group(Checkpointing(), trained(0.95))).signal == "batch_size_fit"
