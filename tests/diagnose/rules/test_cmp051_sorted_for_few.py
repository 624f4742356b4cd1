"""CMP051: sorts of which a few numbers are read, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp051_sorted_for_few import SortedForFew
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = SortedForFew()


def sorts(**more: Any) -> dict[str, Any]:
    told = {"file": "knn.py", "line": 9, "function": "near", "text": "i = d.argsort(1)[:, :10]", "calls": 2}
    told |= {"shape": [64, 4096], "size": 4096, "count": 10, "instead": "topk", "forward": 0.5, "backward": 0.25}
    return {**told, "whole": 0.375, **more}


def ask(*lines: dict[str, Any], **more: Any) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"sorted_for_few": list(lines), "sorted_for_few_untried": 0.0, **more}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


@pytest.mark.parametrize(
    ("instead", "count", "read", "call"),
    [
        ("topk", 10, "the first or last 10 are read", "x.topk("),
        ("kthvalue", 1, "1 in the midst is read", "x.kthvalue("),
        ("kthvalue", 2, "2 in the midst are read", "x.kthvalue("),
        ("amax", 1, "the first or last one is read", "x.max("),
    ],
)
def test_what_is_read_is_told_with_what_finds_it_alone(instead: str, count: int, read: str, call: str) -> None:
    finding = found(ask(sorts(instead=instead, count=count)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "sorting beyond those that are read").value == pytest.approx(30)
    assert number(finding, "numbers among them that are read").value == count
    assert "goes into sorting 4,096 numbers at knn.py:9 in near (`i = d.argsort(1)[:, :10]`), of which" in (
        finding.summary
    )
    assert f"{read}, beyond what {instead} takes." in finding.summary and call in finding.remedies[0].says
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.1)}


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(sorts(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(sorts(forward=0.05, backward=0.05))).summary
    assert "nothing is seen to be sorted" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "sorted_for_few"


def test_what_could_not_be_tried_is_not_cleared() -> None:
    gap = missing(ask(sorted_for_few_untried=0.3))
    assert gap.signal == "sorted_for_few" and "30 % of operators' time" in gap.why
    found(ask(sorts(), sorted_for_few_untried=0.3))
    clear(ask(sorted_for_few_untried=0.01))
