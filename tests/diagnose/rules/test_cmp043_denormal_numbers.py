"""CMP043: what denormal numbers take longer, in operators and in the update."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp043_denormal_numbers import DenormalNumbers
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = DenormalNumbers()
STEP_S = 0.1

#: All of the thread's time in forward and backward is in operators.
TIMED = {
    **{f"operator_seconds_{phase}": 0.04 for phase in ("forward", "backward")},
    **{f"operator_bytes_{phase}": 0 for phase in ("forward", "backward")},
    **{f"around_operators_seconds_{phase}": 0.0 for phase in ("forward", "backward")},
}


def line(backward: float) -> dict[str, Any]:
    return {
        **{"file": "train.py", "line": 48, "function": "main", "text": "loss.backward()", "shape": [32, 160]},
        **{"calls": 576, "part": 0.8, "forward": 0.0, "backward": backward, "whole": backward / 2},
    }


def states(numbers: float, before: float | None = None, **changed: float) -> dict[str, Any]:
    first = numbers if before is None else before
    rooted = {"roots": 0.0, "roots_before": 0.0, "root_s": 0.0}
    return {"numbers": numbers, "numbers_before": first, "of": 4e6, "number_s": 5e-9, **rooted, **changed}


def ask(lines: list[dict[str, Any]], kept: dict[str, Any] | None = None, *, optimizer: float = 0.2) -> Any:
    facts = {**TIMED, "denormal_numbers": lines, "threads": 2, **({} if kept is None else {"denormal_states": kept})}
    forward = backward = STEP_S * (1 - optimizer) / 2
    return ask_trial(RULE, facts=facts, forward=forward, backward=backward, optimizer=STEP_S * optimizer)


def test_a_backward_that_is_slowed_is_told_with_its_line_and_what_to_set() -> None:
    finding = found(ask([line(0.6)]))
    assert finding.severity is Severity.WARNING
    # Of backward, which takes 40 % of the step, 60 %.
    assert number(finding, "slowing of operators by denormal numbers").value == pytest.approx(24)
    assert "576 operators at train.py:48 in main" in finding.summary
    assert finding.remedies[0].change == {"flush_denormals": True}
    assert finding.claims["backward"] == pytest.approx(0.24)


def test_an_update_whose_moments_have_faded_is_told() -> None:
    # 2 million numbers of 5 ns, twice each, on two threads: 10 ms of a step of 100.
    finding = found(ask([], states(2e6)))
    assert number(finding, "update beyond what it takes with other numbers").value == pytest.approx(10)
    assert "the optimizer's update" in finding.summary and "operators" not in finding.summary
    assert finding.claims["optimizer"] == pytest.approx(0.1)
    assert finding.recoverable is not None and finding.recoverable.low > 0


def test_of_what_fades_until_the_training_ends_nothing_is_sure() -> None:
    finding = found(ask([], states(4e6, before=0.0)))
    share = number(finding, "update beyond what it takes with other numbers")
    assert share.value == pytest.approx(10) and share.low == 0.0


def test_of_what_a_root_is_taken_the_dearer_counts() -> None:
    """On processors that multiply such numbers as quickly as others and take roots slowly, and on others."""
    rooted = {"roots": 2e6, "roots_before": 0.5e6}
    finding = found(ask([], states(2e6, before=1e6, number_s=0.0, root_s=16e-9, **rooted)))
    share = number(finding, "update beyond what it takes with other numbers")
    # 0.5 to 2 million roots of 16 ns on two threads, of a step of 100 ms.
    assert (share.low, share.value, share.high) == pytest.approx((4, 10, 16))
    finding = found(ask([], states(2e6, root_s=4e-9, roots=1e6, roots_before=1e6)))
    assert number(finding, "update beyond what it takes with other numbers").value == pytest.approx(10)


def test_an_update_loses_no_more_than_it_takes() -> None:
    finding = found(ask([], states(4e9), optimizer=0.2))
    assert number(finding, "update beyond what it takes with other numbers").value == pytest.approx(19.2)


def test_both_add_up() -> None:
    assert found(ask([line(0.1)], states(0.2e6))).severity is Severity.INFO
    clear(ask([line(0.1)]))
    clear(ask([], states(0.2e6)))


def test_calls_that_could_not_be_tried_are_not_cleared() -> None:
    facts = {**TIMED, "denormal_numbers": [], "threads": 2}
    step = {"forward": 0.05, "backward": 0.05}
    gap = missing(ask_trial(RULE, facts={**facts, "denormal_numbers_untried": 0.3}, **step))
    assert gap.signal == "denormal_numbers" and "30 % of operators' time" in gap.why
    clear(ask_trial(RULE, facts={**facts, "denormal_numbers_untried": 0.01}, **step))


def test_none_are_none_and_nobody_who_looked_is_told() -> None:
    clear(ask([], states(0.0)))
    clear(ask([]))
    assert missing(ask_trial(RULE)).signal == "denormal_numbers"
