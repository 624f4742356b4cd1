"""CMP036: penalties on the weights, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp036_penalty_by_gradients import PenaltyByGradients
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = PenaltyByGradients()

SHARE = "penalties on the weights"


def penalty(line: int = 10, part: float = 0.5, **more: Any) -> dict[str, Any]:
    told = {"file": "train.py", "line": line, "function": "objective", "text": "l2 = p.pow(2).sum()", "calls": 4}
    told |= {"kind": "squares", "weights": 1_500_000, "tensors": 4, "averaged": False}
    return told | {"forward": part, "backward": part, "whole": part} | more


def ask(*lines: dict[str, Any], timed: bool = True, optimizer: str = "SGD") -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"weight_penalties": list(lines), "optimizer": optimizer}
    for phase in ("forward", "backward"):
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = 0.0
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts)


def test_squares_are_told_with_their_line_and_what_may_be_won() -> None:
    finding = found(ask(penalty()))
    assert finding.severity is Severity.WARNING and number(finding, SHARE).value == pytest.approx(40.0)
    assert "goes into a penalty on the weights in the loss at train.py:10 in objective (`l2 = p.pow" in finding.summary
    assert finding.summary.endswith("the squares of 1,500,000 weights in 4 tensors, and their gradients by autograd.")
    assert "weight_decay=2 * coefficient" in finding.remedies[0].says and "AdamW" in finding.remedies[1].says
    won = finding.recoverable
    # All of 0.4 goes; families realise 0.3 of a guess at least, and another step may have a third less. Beside the rest
    # of the step it may be four times as long.
    assert won is not None and won.low == pytest.approx(0.3 * 0.4 / 1.5) and won.high == pytest.approx(1.6 / 2.2)


def test_with_decoupled_weight_decay_the_gradient_is_added_by_hand() -> None:
    remedies = found(ask(penalty(averaged=True), optimizer="AdamW")).remedies
    assert "torch._foreach_add_" in remedies[0].says and "weight_decay=2" in remedies[1].says
    assert "A mean instead of a sum" in remedies[2].says


def test_an_optimizer_that_compares_losses_needs_it_in_them() -> None:
    assert clear(ask(penalty(), optimizer="LBFGS")).summary == "LBFGS compares losses, and needs the penalty in them"


@pytest.mark.parametrize(
    ("kind", "words", "remedy"),
    [
        ("absolute", "the absolute values of 1,500,000", "_foreach_sign"),
        ("distances", "squared distances of 1,500,000", "_foreach_sub"),
        ("norms", "the norms of 1,500,000", "_foreach_norm"),
    ],
)
def test_what_no_option_gives_is_an_info_with_a_gradient_by_hand(kind: str, words: str, remedy: str) -> None:
    finding = found(ask(penalty(kind=kind)))
    assert finding.severity is Severity.INFO and words in finding.summary and remedy in finding.remedies[0].says
    won, of_squares = finding.recoverable, found(ask(penalty())).recoverable
    assert won is not None and of_squares is not None and won.value < of_squares.value


def test_of_two_kinds_the_one_that_takes_more_is_told() -> None:
    finding = found(ask(penalty(part=0.1), penalty(12, part=0.2, kind="absolute"), penalty(14, part=0.15)))
    assert "train.py:14" in finding.summary and "and at 1 more line" in finding.summary  # 0.1 and 0.15, against 0.2
    assert number(finding, SHARE).value == pytest.approx(20.0)  # a quarter of 0.08 in 0.1 s
    assert "the squares of 3,000,000 weights in 8 tensors" in finding.summary


def test_little_is_an_info_or_cleared() -> None:
    assert found(ask(penalty(part=0.1))).severity is Severity.INFO  # 8 %
    assert "little of the step" in clear(ask(penalty(part=0.05))).summary
    assert "no penalty on the weights" in clear(ask()).summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(penalty(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary.startswith("50 % of the bytes that a step's operators move are for a penalty on the weights")


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
