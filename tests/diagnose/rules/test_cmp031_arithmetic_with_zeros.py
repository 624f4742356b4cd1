"""CMP031: numbers that are computed only to be multiplied by zeros, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp031_arithmetic_with_zeros import ArithmeticWithZeros
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = ArithmeticWithZeros()


def zeros(line: int = 17, **more: Any) -> dict[str, Any]:
    told = {
        "file": "loss.py",
        "line": line,
        "function": "Focal.forward",
        "text": "focal = -onehot * (1 - p)",
        "calls": 1,
    }
    told |= {"shape": [8, 21, 96, 96], "zeros": 0.95, "forward": 0.5, "backward": 0.25, "whole": 0.4}
    return told | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"zero_arithmetic": list(lines)}
    for phase in ("forward", "backward"):
        # On a device a few operators of the host's have a time.
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_what_is_multiplied_by_zeros_is_told_with_its_line_and_what_may_be_won() -> None:
    finding = found(ask(zeros()))
    share = number(finding, "what zeros are multiplied with, and its sums")
    assert share.value == pytest.approx(30.0)  # half of 0.4 and a quarter of 0.4
    assert finding.severity is Severity.WARNING
    assert "multiplied by 8×21×96×96 numbers of which 95 % are zeros" in finding.summary
    assert "at loss.py:17 in Focal.forward (`focal = -onehot * (1 - p)`)." in finding.summary
    won = finding.recoverable
    # 0.285 of the step, or twice as much beside the other 0.715.
    assert won is not None and won.high == pytest.approx(0.57 / (0.57 + 0.715))
    assert any("gather(1" in remedy.says for remedy in finding.remedies)
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.1)}


def test_fewer_zeros_or_little_time_are_cleared() -> None:
    assert "nothing is multiplied" in clear(ask(zeros(zeros=0.89))).summary
    assert "nothing is multiplied" in clear(ask()).summary
    assert "little of the step" in clear(ask(zeros(forward=0.05, backward=0.05, whole=0.05))).summary
    assert found(ask(zeros(zeros=0.9, forward=0.1, backward=0.1, whole=0.1))).severity is Severity.INFO


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(zeros(), zeros(19, whole=0.1), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert number(finding, "bytes of these operators, of all").value == pytest.approx(50.0)
    assert "and at 1 more line" in finding.summary
    assert "few of the step's bytes" in clear(ask(zeros(whole=0.04), timed=False)).summary


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
