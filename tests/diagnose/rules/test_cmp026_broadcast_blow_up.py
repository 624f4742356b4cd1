"""CMP026: tensors that are spread only to be added up, by the time of one step's operators."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp026_broadcast_blow_up import BroadcastBlowUp
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = BroadcastBlowUp()


def spread(line: int = 10, **more: Any) -> dict[str, Any]:
    told = {"file": "loss.py", "line": line, "function": "chamfer", "text": "d = ((a - b) ** 2).sum(-1)", "calls": 1}
    told |= {"shape": [8, 512, 512, 3], "shapes": [[8, 512, 1, 3], [8, 1, 512, 3]], "left": 0.1}
    told |= {"operators": ["sub", "pow", "sum"], "forward": 0.5, "backward": 0.5, "whole": 0.5}
    return told | more


def ask(*lines: dict[str, Any], timed: bool = True, around: float = 0.0, **more: Any) -> Reply:
    """Forward takes 0.04 and backward 0.04 of 0.1 s, by one step's operators as long."""
    facts: dict[str, Any] = {"broadcast_blow_ups": list(lines)}
    for phase in ("forward", "backward"):
        # On a device a few operators of the host's have a time.
        facts[f"operator_seconds_{phase}"] = 0.04 if timed else 1e-6
        facts[f"operator_bytes_{phase}"] = 0 if timed else 1e9
        facts[f"around_operators_seconds_{phase}"] = around
    return ask_trial(RULE, forward=0.04, backward=0.04, optimizer=0.02, facts=facts, **more)


def test_what_is_spread_is_told_with_its_line_its_share_and_what_may_be_won() -> None:
    finding = found(ask(spread()))
    # Half of forward's 0.4 and of backward's 0.4; another step may have a third less.
    assert number(finding, "spreading, and adding up again").value == pytest.approx(40.0)
    assert finding.summary.startswith("40 % (27 % to 40 %) of each step goes into a tensor of ")
    assert finding.severity is Severity.WARNING
    assert "8×512×512×3 numbers" in finding.summary and "at loss.py:10 in chamfer (`d = ((a - b)" in finding.summary
    won = finding.recoverable
    # A tenth of the numbers has to be written in any case; families realise 0.3 of a guess at least. At most it takes
    # twice as long beside the other 0.64 of the step, with what is let go and the caches.
    assert won is not None and won.low == pytest.approx(0.3 * 0.36 / 1.5)
    assert won.high == pytest.approx(0.72 / (0.72 + 0.64))
    assert finding.claims == {"forward": pytest.approx(0.2), "backward": pytest.approx(0.2)}
    assert number(finding, "numbers left after adding up, of all that are written").value == pytest.approx(10.0)


def test_of_what_lies_between_operators_none_half_or_their_part_is_theirs() -> None:
    finding = found(ask(spread(), around=0.04))  # half of the thread's time in both phases
    assert number(finding, "spreading, and adding up again").value == pytest.approx(30.0)
    assert finding.summary.startswith("30 % (13 % to 40 %) of each step")


@pytest.mark.parametrize(
    ("operators", "words"),
    [
        (["sub", "pow", "sum"], "For squared differences torch.cdist"),
        (["sub", "abs", "sum"], "For distances torch.cdist"),
        (["sub", "linalg_vector_norm"], "For distances torch.cdist"),
        (["mul", "sum"], "For products a @ b.T"),
        (["div", "mul", "sum"], "For products a @ b.T"),
    ],
)
def test_the_advice_is_that_for_its_operators(operators: list[str], words: str) -> None:
    (remedy,) = found(ask(spread(operators=operators))).remedies
    assert remedy.says.startswith(words)


def test_lines_add_up_and_little_is_cleared_or_an_info() -> None:
    finding = found(ask(spread(5, forward=0.1, backward=0.1, whole=0.1), spread()))
    assert number(finding, "spreading, and adding up again").value == pytest.approx(48.0)
    assert "loss.py:10" in finding.summary and "and at 1 more line" in finding.summary
    small = spread(forward=0.1, backward=0.1, whole=0.1)
    assert found(ask(small)).severity is Severity.INFO  # 8 %
    assert "little of the step" in clear(ask(spread(forward=0.05, backward=0.05, whole=0.05))).summary
    assert "no tensor is spread" in clear(ask()).summary


def test_on_a_device_bytes_are_told_and_no_gain() -> None:
    finding = found(ask(spread(), timed=False))
    assert finding.severity is Severity.INFO and finding.recoverable is None
    assert finding.summary.startswith("50 % of the bytes that a step's operators move are for a tensor of")
    assert number(finding, "bytes of these operators, of all").value == pytest.approx(50.0)
    assert "few of the step's bytes" in clear(ask(spread(whole=0.04), timed=False)).summary


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
