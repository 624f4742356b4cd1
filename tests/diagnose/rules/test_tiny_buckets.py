"""COM001 and COM003 where gradients leave in many tiny buckets: larger ones are advised, and never smaller ones."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Finding
from perf_diagnostics.diagnose.rules.com001_communication_bound import CommunicationBound
from perf_diagnostics.diagnose.rules.com003_little_overlap import LittleOverlap
from tests.diagnose.rules.rank_trials import of_ranks, timed

#: 30 of 100 ms are exposed, and backward computes for 40 ms more.
RANK = timed(0.03, 0.0)


def advice(rule: Any, **facts: Any) -> list[str]:
    answer = rule.check(TrialFacts.of(of_ranks(RANK, RANK, facts=facts)))
    assert isinstance(answer, Finding)
    return [remedy.says for remedy in answer.remedies]


@pytest.mark.parametrize("rule", [CommunicationBound(), LittleOverlap()])
def test_many_tiny_buckets_are_to_be_made_larger(rule: Any) -> None:
    says = advice(rule, ddp_buckets=60, ddp_largest_bucket_bytes=71_208)
    assert says[0].startswith("Make the buckets larger") and "in 60 of at most 71.2 kB" in says[0]
    assert not any("smaller" in one for one in says)


@pytest.mark.parametrize(("count", "size"), [(60, 2**20), (4, 71_208), (60, None)])
def test_large_few_or_unknown_buckets_are_not(count: int, size: int | None) -> None:
    assert not any("larger" in one for one in advice(LittleOverlap(), ddp_buckets=count, ddp_largest_bucket_bytes=size))
