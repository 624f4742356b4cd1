"""CMP040: linear algebra on diagonal matrices, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp040_diagonal_matrices import DiagonalMatrices
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = DiagonalMatrices()


def line(at: int = 10, part: float = 0.5, **more: Any) -> dict[str, Any]:
    told = {"file": "vae.py", "line": at, "function": "posterior", "text": "q = MultivariateNormal(m, c)", "calls": 3}
    told |= {"shape": [128, 48, 48], "operators": ["linalg_cholesky_ex", "_linalg_det"]}
    return told | {"forward": part, "backward": part, "whole": part} | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"diagonal_matrices": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_the_line_the_matrices_and_the_calls_are_told() -> None:
    finding = found(ask(line()))
    assert finding.severity is Severity.WARNING
    assert number(finding, "linear algebra on diagonal matrices").value == pytest.approx(40.0)
    assert number(finding, "calls on diagonal matrices").value == 3
    assert "(linalg_cholesky and linalg_det of 128×48×48 numbers, all zeros beside the diagonals)" in finding.summary
    assert "at vae.py:10 in posterior (`q = MultivariateNormal(m, c)`)" in finding.summary
    assert "Independent(Normal(mean, variance.sqrt()), 1)" in finding.remedies[0].says
    assert finding.recoverable is not None and finding.recoverable.low > 0


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(line(part=0.1))).severity is Severity.INFO  # 8 %
    assert "little of the step" in clear(ask(line(part=0.03))).summary
    assert "no diagonal matrix" in clear(ask()).summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(line(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
