"""CMP050: rows that are read or added up in a slow form, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp050_slow_indexing import SlowIndexing
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = SlowIndexing()


def rows(**more: Any) -> dict[str, Any]:
    told = {"file": "gnn.py", "line": 14, "function": "Layer.forward", "text": "m = relu(h[src])", "calls": 2}
    told |= {"shape": [3000, 64], "form": "index", "rows": 40_000, "forward": 0.25, "backward": 0.5, "whole": 0.375}
    return told | more


def ask(*lines: dict[str, Any], **more: Any) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"slow_indexing": list(lines), "slow_indexing_untried": 0.0, **more}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"], facts[f"operator_bytes_{phase}"] = 0.04, 0
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


@pytest.mark.parametrize(
    ("form", "does", "instead"),
    [
        ("index", "reading rows by the numbers in a tensor, x[index] at", "index_select"),
        ("gather", "reading whole rows by gather at", "index_select"),
        ("index_put", "adding up rows by index_put with accumulate=True at", "index_add"),
        ("scatter_add", "adding up whole rows by scatter_add with an expanded index at", "index_add"),
    ],
)
def test_the_form_is_told_with_its_line_and_the_quicker_one(form: str, does: str, instead: str) -> None:
    finding = found(ask(rows(form=form)))
    assert finding.severity is Severity.WARNING
    assert number(finding, "slow forms of indexing").value == pytest.approx(30)
    assert number(finding, "rows of a call").value == 40_000 and number(finding, "calls a step").value == 2
    assert f"goes into {does} gnn.py:14 in Layer.forward (`m = relu(h[src])`)" in finding.summary
    assert finding.summary.endswith(f"beyond what {instead} takes.")
    assert f"by {instead}" in finding.remedies[0].says
    assert finding.claims == {"forward": pytest.approx(0.1), "backward": pytest.approx(0.2)}


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(rows(forward=0.1, backward=0.1))).severity is Severity.INFO
    assert "little of the step" in clear(ask(rows(forward=0.05, backward=0.05))).summary
    assert "quickest form" in clear(ask()).summary
    assert missing(ask_trial(RULE)).signal == "slow_indexing"


def test_what_could_not_be_tried_is_not_cleared() -> None:
    gap = missing(ask(slow_indexing_untried=0.3))
    assert gap.signal == "slow_indexing" and "30 % of operators' time" in gap.why
    assert missing(ask(rows(forward=0.01, backward=0.01), slow_indexing_untried=0.3)).signal == "slow_indexing"
    found(ask(rows(), slow_indexing_untried=0.3))
    clear(ask(slow_indexing_untried=0.01))
