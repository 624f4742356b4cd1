"""CMP049: layers that are applied one by one, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp049_applied_one_by_one import AppliedOneByOne
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = AppliedOneByOne()


def layer(**more: Any) -> dict[str, Any]:
    told = {"file": "nmt.py", "line": 10, "function": "Decoder.forward", "text": "logits.append(self.out(h))"}
    told |= {"shape": [128, 8000], "calls": 24, "together": 24.0, "rows": 16, "weights": 1}
    return told | {"forward": 0.5, "backward": 0.25, "whole": 0.375} | more


def ask(*lines: dict[str, Any]) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"applied_one_by_one": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_the_line_is_told_with_the_calls_and_what_one_of_all_saves() -> None:
    finding = found(ask(layer(), layer(line=20, forward=0.1, backward=0.0, whole=0.05)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "layers applied one by one").value == pytest.approx(34)
    says = "applying the layer at nmt.py:10 in Decoder.forward (`logits.append(self.out(h))`) in 24 calls of 16 rows, "
    assert f"{says}beyond what one call for all of them takes (no call needs another one), and at 1 more line." in (
        finding.summary
    )
    assert finding.claims == {"forward": pytest.approx(0.24), "backward": pytest.approx(0.1)}


def test_several_layers_of_which_some_calls_need_others_are_told_as_such() -> None:
    finding = found(ask(layer(weights=3, together=8.0)))
    assert "applying the 3 layers at nmt.py:10" in finding.summary and "(8 at a time need no other)" in finding.summary
    assert number(finding, "calls that need nothing of each other").value == 8


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(layer(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(layer(forward=0.05, backward=0.05))).summary
    assert "no layer is applied one by one" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "applied_one_by_one"
