"""CMP034: products in a dearer order, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp034_dearer_order import DearerOrder
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = DearerOrder()

SHARE = "products in a dearer order"


def order(line: int = 10, **more: Any) -> dict[str, Any]:
    told = {"file": "model.py", "line": line, "function": "Net.forward", "text": "s = q @ k.mT", "calls": 1}
    told |= {"shape": [8, 1024, 1024], "shapes": [[8, 1024, 32], [8, 32, 1024]], "left": 0.25}
    told |= {"then": {"file": "model.py", "line": line + 2, "function": "Net.forward", "text": "o = s @ v"}}
    told |= {"flops": 3_221_225_472, "flops_instead": 100_663_296, "forward": 0.5, "backward": 0.5, "whole": 0.5}
    return told | more


def ask(*lines: dict[str, Any], timed: bool = True) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"dearer_orders": list(lines)}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_both_orders_are_told_with_their_lines_and_what_may_be_won() -> None:
    finding = found(ask(order()))
    assert finding.severity is Severity.WARNING and number(finding, SHARE).value == pytest.approx(40.0)
    assert "goes into multiplying 8×1,024×32 and 8×32×1,024 first at model.py:10" in finding.summary
    says = ", then with others at model.py:12: 3.22 GFLOP in forward and backward, where the other order takes "
    assert f"{says}0.101 GFLOP" in finding.summary
    assert number(finding, "operations of these products").value == pytest.approx(3.221, rel=1e-3)
    assert number(finding, "operations in the other order").value == pytest.approx(0.1007, rel=1e-3)
    won = finding.recoverable
    # Three quarters of 0.4 go; families realise 0.3 of a guess at least, and another step may have a third less.
    assert (
        won is not None and won.low == pytest.approx(0.3 * 0.3 / 1.5) and won.high == pytest.approx(0.6 / (0.6 + 0.7))
    )
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.2)}


def test_a_line_that_multiplies_twice_is_named_once() -> None:
    one = order()
    finding = found(ask({**one, "then": {**one["then"], "line": 10, "text": one["text"]}}, order(30)))
    assert "first at model.py:10 in Net.forward (`s = q @ k.mT`), then with others: " in finding.summary
    assert finding.summary.endswith(", and at 1 more line.")


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(order(forward=0.1, backward=0.1, whole=0.1))).severity is Severity.INFO  # 8 %
    assert "little of the step" in clear(ask(order(forward=0.05, backward=0.05, whole=0.05))).summary
    assert "no matrices are multiplied" in clear(ask()).summary


def updating(*lines: dict[str, Any]) -> dict[str, Any]:
    """A step of 0.1 s, 0.04 s of it an update by an optimizer of one's own, with these lines of forward."""
    update = order(70, function="Muon.step", text="b * a + c * a @ a", forward=0.0, backward=0.0, optimizer=0.8)
    facts: dict[str, Any] = {f"operator_seconds_{phase}": 0.04 for phase in ("forward", "backward")}
    facts |= {"operator_seconds_optimizer": 0.01, "around_operators_seconds_optimizer": 0.01, "optimizer": "Muon"}
    facts |= {f"operator_bytes_{phase}": 0 for phase in ("forward", "backward")}
    facts |= {f"around_operators_seconds_{phase}": 0.0 for phase in ("forward", "backward")}
    facts |= {"dearer_orders": [*lines], "dearer_orders_of_updates": [update]}
    return {"forward": 0.03, "backward": 0.03, "optimizer": 0.04, "facts": facts}


def test_it_is_why_the_optimizer_is_heavy_where_it_takes_most_of_the_update() -> None:
    diagnosis = diagnose(run_of(trial_of(**updating())))
    (cause,) = [one for one in diagnosis.findings if one.code == "CMP034"]
    codes = [one.code for one in diagnosis.findings]
    assert codes.index("CMP034") < codes.index("OPT001") and "OPT001" in cause.explains
    plain = updating()
    plain["facts"] |= {"dearer_orders": [order()], "dearer_orders_of_updates": []}  # of forward and backward alone
    (cause,) = [one for one in diagnose(run_of(trial_of(**plain))).findings if one.code == "CMP034"]
    assert "OPT001" not in cause.explains


def test_what_updates_take_is_told_beside_it_and_the_larger_share_first() -> None:
    finding = found(ask_trial(RULE, **updating(order(forward=0.1, backward=0.1))))
    # Three quarters of an update's thread time: its operators' half, and half of what lies between them.
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.6 / 1.3, rel=0.2)
    assert finding.claims["optimizer"] == pytest.approx(0.4 * 0.8 * 0.75)
    assert number(finding, SHARE).value == pytest.approx(100 * (0.24 + 0.06))
    assert "first at model.py:70 in Muon.step" in finding.summary and "GFLOP in an update, where" in finding.summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(order(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary.startswith("50 % of the bytes that a step's operators move are for multiplying 8×1,024×32")


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
