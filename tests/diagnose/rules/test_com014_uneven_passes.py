"""COM014: ranks that have different numbers of batches in a pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.com014_uneven_passes import UnevenPassesOfRanks
from perf_diagnostics.records import TrialResult
from perf_diagnostics.testing import trial_of
from tests.diagnose.rules.rank_trials import cut, of_ranks


def job(*a_pass: int, steps: int = 120, **trial: Any) -> TrialResult:
    """Steps of 0.1 s of ranks with so many batches a pass, each recorded for as many passes as the first one."""
    result = of_ranks(*({"epoch": np.arange(steps) // each} for each in a_pass), steps=steps, **trial)
    for rank, each in enumerate(a_pass):
        result = cut(result, rank, min(steps, steps // a_pass[0] * each))
    return result


def check(result: TrialResult) -> Finding | Cleared:
    answer = UnevenPassesOfRanks().check(TrialFacts.of(result))
    assert isinstance(answer, Finding | Cleared)
    return answer


def test_a_rank_with_fewer_batches_is_idle_at_the_end_of_each_pass() -> None:
    found = check(job(30, 20))
    assert isinstance(found, Finding) and found.severity is Severity.WARNING
    # Of 30 steps one of two ranks has none for 10 of them.
    (idle,) = (each.value for each in found.evidence if each.metric == "ranks without a batch left")
    assert idle == pytest.approx(100 * 10 / 30 / 2, rel=1e-3)
    assert found.summary.startswith("Rank 1 has 20 steps in a pass over its data, and rank 0 has 30: 17 %")
    assert "DistributedSampler" in found.remedies[0].says and "model.join()" in found.remedies[1].says


def test_steps_that_are_cheap_while_others_are_idle_lose_less() -> None:
    wall = np.where(np.arange(120) % 30 < 20, 1e8, 0.25e8)
    quick = of_ranks({"epoch": np.arange(120) // 30, "wall_ns": wall}, {"epoch": np.arange(120) // 20}, steps=120)
    found = check(quick)
    assert isinstance(found, Finding)
    # 10 steps of 0.025 s of 20 x 0.1 + 0.25 s, of one of two ranks.
    assert found.evidence[0].value == pytest.approx(100 * 0.25 / 2.25 / 2)


@pytest.mark.parametrize("a_pass", [(30, 30), (30, 28), (30, 30, 30, 25)])
def test_as_many_batches_or_a_few_less_are_no_fault(a_pass: tuple[int, ...]) -> None:
    assert isinstance(check(job(*a_pass)), Cleared)


def test_whole_passes_of_all_ranks_are_needed() -> None:
    with pytest.raises(NotApplicable):
        check(trial_of())
    with pytest.raises(NotMeasured, match="fewer than two passes"):
        check(job(60, 40))  # the second pass of the first rank may go on
    with pytest.raises(NotMeasured, match="2 were recorded"):
        check(job(30, 20, facts={"ranks": 4}))


def test_an_evaluation_on_one_rank_does_not_make_its_passes_shorter() -> None:
    """It reads a loader of its own, which counts as a pass of one step in between."""
    evaluates = np.repeat(np.arange(8), [29, 1] * 4)
    with pytest.raises(NotMeasured, match="passes of rank 0 have 1 to 29 steps"):
        check(of_ranks({"epoch": evaluates}, {"epoch": np.arange(120) // 30}, steps=120))
