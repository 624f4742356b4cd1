"""CMP047: derivatives that are asked for one by one, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp047_derivatives_apart import DerivativesApart
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = DerivativesApart()


def passes(**more: Any) -> dict[str, Any]:
    told = {"file": "pinn.py", "line": 10, "function": "gradient", "text": "return grad(f, x, ones)[0]", "calls": 18}
    told |= {"results": 9, "inputs": 3, "forward": 0.5, "backward": 0.25, "whole": 0.375}
    return told | more


def ask(*lines: dict[str, Any]) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"derivatives_apart": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_passes_and_results_are_told_with_what_one_pass_each_saves() -> None:
    finding = found(ask(passes()))
    assert finding.severity is Severity.WARNING
    assert number(finding, "passes through the same graph").value == pytest.approx(30)
    says = "asked for one by one at pinn.py:10 in gradient (`return grad(f, x, ones)[0]`): 18 passes through the graphs"
    assert f"{says} of 9 results, where one for each does." in finding.summary
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.1)}


def test_forward_mode_is_advised_where_there_are_fewer_inputs_than_results() -> None:
    assert "jvp" in found(ask(passes())).remedies[-1].says
    assert not any("jvp" in one.says for one in found(ask(passes(results=2, inputs=3))).remedies)


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(passes(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(passes(forward=0.05, backward=0.05))).summary
    assert "no derivatives of the same results" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "derivatives_apart"
