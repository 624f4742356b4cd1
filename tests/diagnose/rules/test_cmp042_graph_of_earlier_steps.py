"""CMP042: what backward goes through of earlier steps, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp042_graph_of_earlier_steps import GraphOfEarlierSteps
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = GraphOfEarlierSteps()


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.02 and backward 0.06 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"earlier_graph": list(lines)}
    for phase, seconds in (("forward", 0.02), ("backward", 0.06)):
        facts[f"operator_seconds_{phase}"] = seconds if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.02, backward=0.06, optimizer=0.02, facts=facts)


def earlier(part: float) -> dict[str, Any]:
    """This part of backward's operators."""
    told = {"file": "fit.py", "line": 71, "function": "Fit.update", "text": "loss.backward(retain_graph=True)"}
    return told | {"calls": 40, "nodes": 32, "shape": [], "forward": 0.0, "backward": part, "whole": 0.75 * part}


def test_it_is_told_with_the_line_that_calls_backward_and_what_to_do() -> None:
    finding = found(ask(earlier(0.5)))
    assert number(finding, "backward through what earlier steps computed").value == pytest.approx(30.0)
    assert number(finding, "nodes from before the step").value == 32
    assert finding.severity is Severity.WARNING and finding.claims == {"forward": 0.0, "backward": pytest.approx(0.3)}
    assert (
        "at fit.py:71 in Fit.update (`loss.backward(retain_graph=True)`): 40 operators of 32 nodes" in finding.summary
    )
    assert "detach()" in finding.remedies[0].says


@pytest.mark.parametrize(("part", "severity"), [(0.02, None), (0.12, Severity.INFO), (0.3, Severity.WARNING)])
def test_it_is_graded_by_its_share_of_the_step(part: float, severity: Severity | None) -> None:
    answer = ask(earlier(part))
    if severity is None:
        clear(answer)
    else:
        assert found(answer).severity is severity


def test_without_any_it_is_cleared_and_without_a_look_not_measured() -> None:
    clear(ask())
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.03)))


def test_on_a_device_it_goes_by_bytes() -> None:
    assert "bytes" in found(ask(earlier(0.5), timed=False)).summary
