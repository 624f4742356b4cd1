"""CMP037: terms of a loss that are multiplied by 0, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp037_terms_times_zero import TermsTimesZero
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = TermsTimesZero()


def term(line: int = 10, part: float = 0.5, **more: Any) -> dict[str, Any]:
    told = {"file": "train.py", "line": line, "function": "objective", "text": "loss += w * side(h)", "calls": 1}
    return told | {"forward": part, "backward": part, "whole": part} | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"zero_factors": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_a_term_is_told_with_its_line_and_what_may_be_won() -> None:
    finding = found(ask(term()))
    assert finding.severity is Severity.WARNING
    assert number(finding, "terms multiplied by 0").value == pytest.approx(40.0)
    assert "multiplied by 0 in the end at train.py:10 in objective (`loss += w * side(h)`): it" in finding.summary
    assert "only where its weight is not 0" in finding.remedies[0].says
    won = finding.recoverable
    # All of 0.4 goes; families realise 0.3 of a guess at least, and another step may have a third less. Beside the rest
    # of the step it may be twice as long.
    assert won is not None and won.low == pytest.approx(0.3 * 0.4 / 1.5) and won.high == pytest.approx(0.8 / 1.4)


def test_several_lines_count_together() -> None:
    finding = found(ask(term(part=0.1), term(12, part=0.15, calls=3)))
    assert number(finding, "terms multiplied by 0").value == pytest.approx(20.0)  # a quarter of 0.08 in 0.1 s
    assert "train.py:12" in finding.summary and "and at 1 more line" in finding.summary


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(term(part=0.1))).severity is Severity.INFO  # 8 %
    assert "little of the step" in clear(ask(term(part=0.05))).summary
    assert "no term" in clear(ask()).summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(term(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
