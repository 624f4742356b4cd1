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
    told |= {"shape": [128, 8000], "calls": 24, "together": 24.0, "rows": 16, "weights": 1, "beside_needing": False}
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
    says = "applying the layer of 128 x 8,000 weights at nmt.py:10 in Decoder.forward (`logits.append(self.out(h))`) "
    takes = "in 24 calls of 16 rows, beyond what one call for all of them takes (no call needs another one)"
    assert f"{says}{takes}, and at 1 more line." in finding.summary
    assert finding.claims == {"forward": pytest.approx(0.24), "backward": pytest.approx(0.1)}


def test_several_layers_of_which_some_calls_need_others_are_told_as_such() -> None:
    finding = found(ask(layer(weights=3, together=8.0)))
    assert "applying 3 layers at nmt.py:10" in finding.summary and "(8 at a time need no other)" in finding.summary
    assert number(finding, "calls that need nothing of each other").value == 8


def test_a_layer_of_a_cell_is_told_as_such() -> None:
    finding = found(ask(layer(beside_needing=True)))
    assert "no call needs another one for what this layer is given, though others at this line need each" in (
        finding.summary
    )
    assert "nn.GRU" in finding.remedies[0].says
    assert "nn.GRU" not in found(ask(layer())).remedies[0].says


def test_what_was_not_tried_is_not_cleared() -> None:
    untried = layer(untried="trying them takes long", forward=0.0, backward=0.0, whole=0.0)
    assert "nmt.py:10 in Decoder.forward: trying them takes long" in missing(ask(untried)).why
    assert "in 24 calls" in found(ask(untried, layer())).summary
    assert "takes long" in missing(ask(untried, layer(forward=0.01, backward=0.01, whole=0.01))).why


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(layer(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(layer(forward=0.05, backward=0.05))).summary
    assert "no layer is applied one by one" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "applied_one_by_one"
