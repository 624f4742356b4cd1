"""CMP055: labels that are written out for every class, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp055_smoothed_labels import SmoothedLabels
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = SmoothedLabels()


def labels(line: int = 17, **more: Any) -> dict[str, Any]:
    told = {
        "file": "loss.py",
        "line": line,
        "function": "Smoothed.forward",
        "text": "return self.criterion(x, true_dist)",
        "calls": 1,
    }
    told |= {"shape": [2240, 7000], "forward": 0.5, "backward": 0.0, "whole": 0.25}
    return told | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"smoothed_labels": list(lines)}
    for phase in ("forward", "backward"):
        # On a device a few operators of the host's have a time.
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_labels_for_every_class_are_told_with_their_line_and_what_may_be_won() -> None:
    finding = found(ask(labels()))
    assert number(finding, "labels for every class, and products with them").value == pytest.approx(20.0)
    assert finding.severity is Severity.WARNING
    assert finding.summary.endswith(
        "of each step goes into labels that are made for every class, 2240×7000 numbers, multiplied and added up at "
        "loss.py:17 in Smoothed.forward (`return self.criterion(x, true_dist)`)."
    )
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": 0.0}
    assert finding.recoverable is not None and finding.recoverable.low > 0
    assert "gather(-1" in finding.remedies[0].says and "label_smoothing" in finding.remedies[1].says


def test_little_time_is_cleared_and_some_is_mentioned() -> None:
    assert "no labels" in clear(ask()).summary
    assert "little of the step" in clear(ask(labels(forward=0.1, whole=0.05))).summary
    assert found(ask(labels(forward=0.2, whole=0.1))).severity is Severity.INFO


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(labels(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
