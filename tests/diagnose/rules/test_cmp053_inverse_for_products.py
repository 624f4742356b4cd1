"""CMP053: inverses that are only multiplied, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp053_inverse_for_products import InverseForProducts
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = InverseForProducts()


def inverses(**more: Any) -> dict[str, Any]:
    told = {"file": "gp.py", "line": 9, "function": "evidence", "text": "fit = y @ torch.inverse(k) @ y", "calls": 1}
    told |= {"shape": [480, 480], "columns": 1, "forward": 0.5, "backward": 0.25}
    return {**told, "whole": 0.375, **more}


def ask(*lines: dict[str, Any], **more: Any) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"inverted_matrices": list(lines), "inverted_matrices_untried": 0.0, **more}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_what_is_inverted_is_told_with_what_solves() -> None:
    finding = found(ask(inverses()))
    assert finding.severity is Severity.WARNING
    assert number(finding, "inverting beyond solving").value == pytest.approx(30)
    assert (
        "goes into inverting a matrix of 480×480 at gp.py:9 in evidence (`fit = y @ torch.inverse(k) @ y`), which is "
        "multiplied by 1 column and read by nothing else, beyond what torch.linalg.solve takes." in finding.summary
    )
    assert "torch.linalg.solve(A, b)" in finding.remedies[0].says
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.1)}
    assert "64×32×32" in found(ask(inverses(shape=[64, 32, 32]))).summary


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(inverses(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(inverses(forward=0.05, backward=0.05))).summary
    assert "no matrix is seen to be inverted" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "inverted_matrices"


def test_what_could_not_be_tried_is_not_cleared() -> None:
    gap = missing(ask(inverted_matrices_untried=0.3))
    assert gap.signal == "inverted_matrices" and "30 % of operators' time" in gap.why
    found(ask(inverses(), inverted_matrices_untried=0.3))
