"""CMP048: alternatives that are computed for rows which do not take them, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp048_chosen_afterwards import ChosenAfterwards
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = ChosenAfterwards()


def choice(**more: Any) -> dict[str, Any]:
    told = {"file": "ddpm.py", "line": 10, "function": "loss", "text": "eps = torch.where(drop, a, b)", "calls": 1}
    told |= {"shape": [32], "part": 0.9, "forward": 0.5, "backward": 0.25, "whole": 0.375}
    return told | more


def ask(*lines: dict[str, Any]) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"chosen_afterwards": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_the_line_is_told_with_the_rows_and_what_choosing_first_saves() -> None:
    finding = found(ask(choice(), choice(line=20, forward=0.1, backward=0.0, whole=0.05)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "computing rows that take another alternative").value == pytest.approx(34)
    says = "torch.where does not take at ddpm.py:10 in loss (`eps = torch.where(drop, a, b)`): all 32 are computed, and"
    assert f"{says} 90 % of an alternative's are left out, and at 1 more line." in finding.summary
    assert finding.claims == {"forward": pytest.approx(0.24), "backward": pytest.approx(0.1)}


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(choice(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(choice(forward=0.05, backward=0.05))).summary
    assert "no alternatives are computed" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "chosen_afterwards"
