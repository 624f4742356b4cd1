"""CMP041: drawing dropout's masks, by the time of one step's operators and of the other way that was tried."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp041_dropout_masks import DropoutMasks
from tests.diagnose.answers import Reply, ask_trial, changes, clear, found, missing, number

RULE = DropoutMasks()


def line(part: float = 0.5, left: float | None = 0.4, **more: Any) -> dict[str, Any]:
    told = {"file": "t5.py", "line": 9, "function": "run", "text": "out = model(x)", "calls": 24, "numbers": 2_000_000}
    return told | {"forward": part, "backward": 0.0, "whole": part / 2, "left": left} | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.06 and backward 0.03 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"drawn_masks": list(lines)}
    for phase, seconds in (("forward", 0.06), ("backward", 0.03)):
        facts[f"operator_seconds_{phase}"] = seconds if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.06, backward=0.03, optimizer=0.01, facts=facts)


def test_what_drawing_from_words_saves_is_mentioned_and_can_be_tried() -> None:
    finding = found(ask(line()))
    assert finding.severity is Severity.INFO  # dropout is no fault, whatever it takes
    # Half of forward's 60 %, of which 40 % stay.
    assert number(finding, "drawing masks, beyond what it has to take").value == pytest.approx(18.0)
    assert number(finding, "masks drawn a step").value == 24
    assert "drawing dropout's masks number by number at t5.py:9 in run (`out = model(x)`)" in finding.summary
    assert "(40 % of it)" in finding.summary
    assert changes(finding) == [{"masks_from_bits": True}]
    assert finding.recoverable is not None and 0 < finding.recoverable.low < 0.18 < finding.recoverable.high


def test_where_it_was_not_tried_half_is_counted() -> None:
    finding = found(ask(line(left=None)))
    assert number(finding, "drawing masks, beyond what it has to take").value == pytest.approx(15.0)


def test_little_or_nothing_is_cleared() -> None:
    assert "little of the step" in clear(ask(line(part=0.1))).summary  # 3.6 %
    assert "no masks" in clear(ask(line(left=1.1))).summary  # drawn from words already
    assert "no masks" in clear(ask()).summary


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.06, backward=0.03)))
