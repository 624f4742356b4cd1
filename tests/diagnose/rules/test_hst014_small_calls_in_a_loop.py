"""HST014: loops in Python over small operators, as following the data through one step tells them."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.hst014_small_calls_in_a_loop import SmallCallsInALoop
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, number

RULE = SmallCallsInALoop()

SHARE = "small operators called in a loop"


def loop(*, forward: float = 0.5, backward: float = 1.0, passes: int = 64, recurs: bool = False) -> dict[str, Any]:
    told = {"file": "loss.py", "line": 9, "function": "triplet", "text": "out.append(one)", "operators": 640}
    return told | {"seconds_forward": forward, "seconds_backward": backward, "passes": passes, "recurs": recurs}


def ask(*lines: object) -> Any:
    """Operators take 2 s in forward and 4 s in backward, which are 0.04 and 0.06 of a step of 0.1 s."""
    facts = {"operator_seconds_forward": 2.0, "operator_seconds_backward": 4.0, "repeated_calls": list(lines)}
    return RULE.check(TrialFacts.of(trial_of(forward=0.04, backward=0.06, facts=facts)))


def test_a_loop_is_told_with_its_passes_its_line_and_what_all_but_one_of_them_take() -> None:
    finding = found(ask(loop()))
    # A quarter of forward's 40 %, and of backward's 60 %.
    assert number(finding, SHARE).value == pytest.approx(25.0)
    assert number(finding, "passes of the loop").value == 64
    assert "640 operators in 64 passes at loss.py:9 in triplet (`out.append(one)`)." in finding.summary
    assert "one before" not in finding.summary and "vmap" in finding.remedies[0].says
    # At most it is twice as long beside the rest.
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(0.5 / (0.5 + 0.75))


@pytest.mark.parametrize(
    ("part", "severity"),
    [(0.12, Severity.INFO), (0.29, Severity.INFO), (0.31, Severity.WARNING), (0.9, Severity.WARNING)],
)
def test_one_step_timed_is_trusted_to_a_factor(part: float, severity: Severity) -> None:
    assert found(ask(loop(forward=2 * part, backward=4 * part))).severity is severity


def test_little_is_cleared() -> None:
    clear(ask())
    assert number(clear(ask(loop(forward=0.1, backward=0.2))), SHARE).value == pytest.approx(5.0)


def test_of_passes_that_need_each_other_no_gain_is_sure() -> None:
    finding = found(ask(loop(forward=1.8, backward=3.6, recurs=True)))
    assert finding.severity is Severity.INFO
    assert finding.recoverable is not None and finding.recoverable.low == 0 < 0.5 < finding.recoverable.high
    assert "each pass needs what the one before made" in finding.summary and "torch.nn.LSTM" in finding.remedies[0].says


def test_a_loop_in_a_recurrence_is_told_with_how_many_of_its_passes_can_be_one() -> None:
    finding = found(ask({**loop(forward=1.0, backward=2.0), "together": 7.0}))
    assert finding.severity is Severity.WARNING and finding.recoverable is not None and finding.recoverable.low > 0
    assert "; 7 at a time need nothing of each other, before others come that need them." in finding.summary
    assert "together" not in found(ask({**loop(), "together": 64.0})).summary
    assert "at a time" not in found(ask({**loop(), "together": 64.0})).summary


def test_parts_whose_gradients_are_dear_explain_it() -> None:
    assert found(ask(loop())).symptom_of == found(ask({**loop(), "recurs": True})).symptom_of == ("CMP052",)


def test_what_the_operators_take_beside_their_calls_may_go_as_well() -> None:
    finding = found(ask({**loop(), "seconds_more": 3.0}))
    # 3 of 6 s: with a quarter of the step for the calls, three quarters of it, and what lies beside them.
    assert number(finding, SHARE).value == pytest.approx(25.0)
    assert finding.recoverable is not None and finding.recoverable.high == pytest.approx(1.3 * 0.75)


def test_loops_that_can_be_one_call_come_first() -> None:
    finding = found(ask(loop(forward=1.0, backward=2.0, recurs=True), loop()))
    assert number(finding, SHARE).value == pytest.approx(25.0)
    assert finding.recoverable is not None and finding.recoverable.low > 0


def test_layers_beside_each_other_are_to_be_one_layer() -> None:
    finding = found(ask({**loop(passes=16, forward=1.0, backward=2.0), "layers": True}))
    assert finding.severity is Severity.WARNING and finding.recoverable is not None and finding.recoverable.low > 0
    assert "640 operators in 16 passes" in finding.summary
    assert "each has parameters of its own, and needs nothing of the others" in finding.summary
    (remedy,) = finding.remedies
    assert "stack_module_state" in remedy.says
    both = found(ask(loop(), {**loop(passes=16), "layers": True}))
    assert len(both.remedies) == 2


def test_without_a_look_nothing_is_said() -> None:
    with pytest.raises(NotMeasured, match="no step was looked through"):
        RULE.check(TrialFacts.of(trial_of(forward=0.04, backward=0.06)))
