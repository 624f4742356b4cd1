"""CMP045: results of which little is read, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp045_mostly_unread import MostlyUnread
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = MostlyUnread()

SHARE = "computing what nobody reads"


def costs(line: int = 10, **more: Any) -> dict[str, Any]:
    told = {"file": "detr.py", "line": line, "function": "match", "text": "cost = boxes + classes", "calls": 1}
    return told | {"shape": [770_400], "part": 1 / 24, "forward": 0.5, "backward": 0.0, "whole": 0.25} | more


def ask(*lines: dict[str, Any]) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"unread_parts": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_what_nobody_reads_is_told_with_its_line_and_the_part_that_is_read() -> None:
    finding = found(ask(costs()))
    assert finding.severity is Severity.WARNING and number(finding, SHARE).value == pytest.approx(20)
    says = (
        "the part of 770,400 numbers that nobody reads at detr.py:10 in match (`cost = boxes + classes`), where 4.2 %"
    )
    assert says in finding.summary and finding.claims == {"forward": pytest.approx(0.2), "backward": 0.0}
    assert number(finding, "read of these numbers").value == pytest.approx(100 / 24)
    won = finding.recoverable
    assert won is not None and won.low == pytest.approx(0.3 * 0.2 / 1.5) and won.high == pytest.approx(0.4 / 1.2)
    assert "and at 1 more line" in found(ask(costs(), costs(20))).summary


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(costs(forward=0.2, whole=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(costs(forward=0.1, whole=0.05))).summary
    assert "more than half was read" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "unread_parts"
