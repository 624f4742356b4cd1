"""CMP052: parts that are taken one by one, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp052_parts_one_by_one import PartsOneByOne
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = PartsOneByOne()


def taken(**more: Any) -> dict[str, Any]:
    told = {"file": "rnn.py", "line": 61, "function": "Net.forward", "text": "h = self.cell(x[:, t], h)", "calls": 1}
    told |= {"shape": [256, 48, 128], "dim": 1, "parts": 48, "single": True, "forward": 0.0, "backward": 0.75}
    return {**told, "whole": 0.375, **more}


def ask(*lines: dict[str, Any], **more: Any) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"parts_one_by_one": list(lines), "parts_one_by_one_untried": 0.0, **more}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


@pytest.mark.parametrize(("single", "call"), [(True, "x.unbind(1)"), (False, "x.split(size, dim)")])
def test_parts_are_told_with_what_takes_them_at_once(single: bool, call: str) -> None:
    finding = found(ask(taken(single=single)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "parts taken one by one").value == pytest.approx(30)
    assert number(finding, "parts of one tensor").value == 48
    assert (
        "gradients of 48 parts of a tensor of 256 x 48 x 128 that are taken one by one at rnn.py:61 in Net.forward"
        in (finding.summary)
    )
    assert call in finding.remedies[0].says and finding.claims == {"forward": 0, "backward": pytest.approx(0.3)}


def test_a_recurrent_layers_own_parts_have_other_advice() -> None:
    finding = found(ask(taken(single=False, packed=True)))
    assert "a recurrent layer takes one by one of a packed sequence at rnn.py:61" in finding.summary
    assert (
        "where the padded batch took half as long" in finding.remedies[0].says
        and "split" not in finding.remedies[0].says
    )


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(taken(backward=0.2))).severity is Severity.INFO
    assert "little of the step" in clear(ask(taken(backward=0.1))).summary
    assert "no tensor's parts" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "parts_one_by_one"


def test_what_could_not_be_tried_is_not_cleared() -> None:
    gap = missing(ask(parts_one_by_one_untried=0.3))
    assert gap.signal == "parts_one_by_one" and "30 % of operators' time" in gap.why
    found(ask(taken(), parts_one_by_one_untried=0.3))
    clear(ask(parts_one_by_one_untried=0.01))
