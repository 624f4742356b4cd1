"""CMP039: functions written out, by the time of one step's operators and what calling them took."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp039_written_out import WrittenOut
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = WrittenOut()

SAVED = "functions written out, beyond calling them"


def written(line: int = 10, **more: Any) -> dict[str, Any]:
    told = {"file": "model.py", "line": line, "function": "gelu", "text": "return x * cdf", "calls": 2}
    told |= {"shape": [8, 128, 1024], "call": 'F.gelu(x, approximate="tanh")', "operators": 8.0, "instead": 0.1}
    told |= {"forward": 0.5, "backward": 0.5, "whole": 0.5}
    return told | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"written_out_functions": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_what_calling_it_saves_is_told_with_its_line_and_its_name() -> None:
    finding = found(ask(written()))
    # Of 0.8 half is the function's, of which a fifth is left.
    assert finding.severity is Severity.WARNING and number(finding, SAVED).value == pytest.approx(32.0)
    says = 'computing F.gelu(x, approximate="tanh") at model.py:10 in gelu (`return x * cdf`) by 8 operators on '
    assert f"{says}8×128×1,024 numbers" in finding.summary
    assert finding.recoverable is not None and finding.recoverable.low == pytest.approx(0.3 * 0.32 / 1.5)
    assert sum(finding.claims.values()) == pytest.approx(0.32)
    assert 'Call F.gelu(x, approximate="tanh") instead' in finding.remedies[0].says
    assert "transformers" not in finding.remedies[0].says
    assert "gelu_pytorch_tanh" in found(ask(written(library="transformers"))).remedies[0].says


def test_several_are_named_together() -> None:
    norm = written(30, call="F.layer_norm(x, x.shape[-1:], weight, bias)", whole=0.2, forward=0.2, backward=0.2)
    finding = found(ask(norm, written()))
    assert "at model.py:10" in finding.summary and finding.summary.endswith(", and at 1 more line.")
    assert 'F.gelu(x, approximate="tanh") and F.layer_norm(x, x.shape[-1:], weight, bias)' in finding.remedies[0].says


def test_where_it_was_not_tried_half_is_taken_to_be_left() -> None:
    assert number(found(ask(written(instead=None))), SAVED).value == pytest.approx(20.0)


def test_little_is_an_info_or_cleared() -> None:
    little = {"forward": 0.1, "backward": 0.1, "whole": 0.1, "instead": 0.02}
    assert found(ask(written(**little))).severity is Severity.INFO  # 6.4 %
    assert "little of the step" in clear(ask(written(**little | {"instead": 0.08}))).summary


def test_what_is_no_faster_in_one_operator_is_not_told() -> None:
    assert "no function" in clear(ask(written(instead=0.6))).summary
    assert "no function" in clear(ask()).summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(written(instead=None), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary.startswith("25 % of the bytes that a step's operators move are for computing F.gelu")


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
