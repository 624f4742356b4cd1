"""CMP046: transforms of slow lengths, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp046_fft_length import FftLength
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = FftLength()


def transforms(**more: Any) -> dict[str, Any]:
    told = {"file": "conv.py", "line": 10, "function": "Conv.forward", "text": "y = rfft(u, n=n)", "calls": 2}
    told |= {"shape": [2879], "length": 2879, "instead": 2880, "forward": 0.5, "backward": 0.25, "whole": 0.375}
    return told | more


def ask(*lines: dict[str, Any]) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"fft_lengths": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_both_lengths_are_told_with_what_the_other_one_saves() -> None:
    finding = found(ask(transforms()))
    assert finding.severity is Severity.WARNING
    assert number(finding, "slow lengths of Fourier transforms").value == pytest.approx(30)
    says = (
        "goes into Fourier transforms of 2,879 numbers at conv.py:10 in Conv.forward (`y = rfft(u, n=n)`), beyond what"
    )
    assert f"{says} those of 2,880 take." in finding.summary
    assert "next_fast_len" in finding.remedies[0].says
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.1)}


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(transforms(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(transforms(forward=0.05, backward=0.05))).summary
    assert "no Fourier transform" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "fft_lengths"
