"""CMP044: products over rows that are copies, or only added up, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp044_more_rows_than_needed import MoreRowsThanNeeded
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = MoreRowsThanNeeded()

SHARE = "multiplying more rows than needed"


def rows(line: int = 10, **more: Any) -> dict[str, Any]:
    told = {"file": "gnn.py", "line": line, "function": "Net.forward", "text": "m = self.msg(x[src])", "calls": 1}
    told |= {"shape": [6000, 128], "rows": 6000, "rows_left": 512.0, "sums": False, "parts": 1}
    told |= {"copied": {"file": "gnn.py", "line": line, "function": "Net.forward", "text": "m = self.msg(x[src])"}}
    return told | {"forward": 0.5, "backward": 0.5, "whole": 0.5} | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"more_rows": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_copies_are_told_with_their_number_and_what_may_be_won() -> None:
    finding = found(ask(rows()))
    assert finding.severity is Severity.WARNING and number(finding, SHARE).value == pytest.approx(40)
    assert "multiplying 6,000 rows at gnn.py:10" in finding.summary and finding.summary.endswith("are copies of 512.")
    assert "layer(x)[index] in place of layer(x[index])" in finding.remedies[0].says and len(finding.remedies) == 1
    assert number(finding, "rows that would do").value == 512
    won = finding.recoverable
    # All of it goes; beside the rest it may be twice as long.
    assert won is not None and won.low == pytest.approx(0.3 * 0.4 / 1.5) and won.high == pytest.approx(0.8 / 1.4)


def test_where_the_copies_are_made_is_told_if_that_is_elsewhere() -> None:
    made = {"file": "gnn.py", "line": 7, "function": "Net.forward", "text": "sent = x[src]"}
    assert "are copies of 512, made at gnn.py:7" in found(ask(rows(copied=made))).summary


def test_sums_and_parts_have_remedies_of_their_own_and_the_first_is_of_what_takes_most() -> None:
    sums = rows(12, sums=True, rows=1600, rows_left=16, whole=0.3, copied={})
    finding = found(ask(sums, rows(parts=2)))
    assert "are put together of copies, where as much as 512 would do, and at 1 more line" in finding.summary
    assert [one.says.split()[0] for one in finding.remedies] == ["Split", "Add"]
    assert "1,600 rows at gnn.py:12" in found(ask(sums)).summary
    assert found(ask(sums)).summary.endswith("that are only added up to 16 afterwards.")


def test_inside_of_a_librarys_model_it_is_an_info() -> None:
    assert found(ask(rows(library="transformers"))).severity is Severity.INFO
    assert found(ask(rows(library=""))).severity is Severity.WARNING


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(rows(forward=0.1, backward=0.1, whole=0.1))).severity is Severity.INFO  # 8 %
    assert "little of the step" in clear(ask(rows(forward=0.05, backward=0.05, whole=0.05))).summary
    assert "no layer multiplies twice the rows" in clear(ask()).summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(rows(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary.startswith("50 % of the bytes that a step's operators move are for multiplying 6,000 rows")


def test_where_nobody_looked_it_is_not_known() -> None:
    assert missing(ask_trial(RULE)).signal == "more_rows"
