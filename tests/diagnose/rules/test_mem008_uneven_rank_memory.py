"""MEM008: the fullest rank decides for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Cleared, Finding, Severity
from perf_diagnostics.diagnose.rules.mem008_uneven_rank_memory import UnevenRankMemory
from perf_diagnostics.testing import trial_of
from tests.diagnose.rules.rank_trials import STEPS, of_ranks

GB = 1e9


def seen_now_and_then(gigabytes: float | None) -> dict[str, Any]:
    if gigabytes is None:
        return {}
    return {"reserved_bytes": np.where(np.arange(STEPS) % 20 == 0, gigabytes * GB, np.nan)}


def check(*gigabytes: float | None, total: float | None = 80.0) -> Finding | Cleared:
    quantities = {} if total is None else {"device_memory_total": total * GB}
    result = of_ranks(*(seen_now_and_then(each) for each in gigabytes), device="cuda:0", quantities=quantities)
    answer = UnevenRankMemory().check(TrialFacts.of(result))
    assert isinstance(answer, Finding | Cleared)
    return answer


def test_a_rank_with_half_the_memory_of_another() -> None:
    # (60 - 30) / 60 = 50 % apart, and 60 of 80 GB are 75 % of what there is.
    finding = check(30, 60, 40)
    assert isinstance(finding, Finding) and finding.severity is Severity.CRITICAL
    assert finding.summary.startswith("Rank 1 holds 60 GB and rank 0 30 GB, 50 % less")
    assert [item.value for item in finding.evidence[:2]] == pytest.approx([50, 75])


def test_a_quarter_apart_under_little_pressure_warns() -> None:
    finding = check(30, 40)  # 25 % apart, 50 % of what there is: critical only from 30 % apart
    assert isinstance(finding, Finding) and finding.severity is Severity.WARNING


def test_even_ranks_and_free_memory_are_clear() -> None:
    assert isinstance(check(60, 58), Cleared)
    assert isinstance(check(5, 20), Cleared)  # 75 % apart, but 25 % of what there is


def test_what_is_missing_is_named() -> None:
    with pytest.raises(NotMeasured, match="rank 1 did not record"):
        check(30, None)
    with pytest.raises(NotMeasured, match="device_memory_total"):
        check(30, 60, total=None)
    with pytest.raises(NotApplicable, match="one rank"):
        UnevenRankMemory().check(TrialFacts.of(trial_of()))
