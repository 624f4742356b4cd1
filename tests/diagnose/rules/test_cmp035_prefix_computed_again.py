"""CMP035: earlier positions that are computed again, by the calls of one step."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp035_prefix_computed_again import PrefixComputedAgain
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = PrefixComputedAgain()

SHARE = "computing earlier positions again"


def rollout(seconds: float = 0.04, line: int = 7, **more: Any) -> dict[str, Any]:
    told = {"file": "ppo.py", "line": line, "function": "roll", "text": "logits = policy(tokens)", "calls": 31}
    told |= {"rows": 16, "longest": 40, "positions": 12_896, "positions_again": 12_400, "seconds": 0.05}
    told |= {"seconds_again": seconds, "seconds_again_least": 0.6 * seconds, "seconds_again_most": 1.2 * seconds}
    return told | more


def forecast(forward: float = 0.5, backward: float = 0.8, line: int = 44, **more: Any) -> dict[str, Any]:
    """Of a recurrent layer: these parts of forward and backward."""
    told = rollout(line=line) | {"recurrent": "GRU", "forward": forward, "backward": backward, "whole": 0.5}
    return told | {"seconds_again": 0.04, "seconds_again_least": 0.03, "seconds_again_most": 0.042} | more


def ask(*lines: dict[str, Any], quantities: dict[str, float] | None = None, **phases: float) -> Reply:
    """A step takes 0.1 s."""
    times = {"forward": 0.02, "backward": 0.03, "other": 0.05} | phases
    return ask_trial(RULE, **times, facts={"prefixes_again": list(lines)}, quantities=quantities or {})


def test_positions_calls_and_what_a_cache_saves_are_told() -> None:
    finding = found(ask(rollout()))
    assert finding.severity is Severity.WARNING and number(finding, SHARE).value == pytest.approx(40.0)
    assert finding.summary.startswith(
        "40 % (27 % to 48 %) of each step computes earlier positions of a sequence again:"
    )
    assert "31 calls without gradients at ppo.py:7 in roll (`logits = policy(tokens)`)" in finding.summary
    assert "of 12,896 positions 12,400 had been computed (up to 40 in 16 rows)" in finding.summary
    again = number(finding, "share of positions computed again")
    assert again.value == pytest.approx(100 * 12_400 / 12_896)
    won = finding.recoverable
    # At least that with which the shortest call leaves the others, a third less in another step.
    assert won is not None and won.low == pytest.approx(0.3 * 0.24 / 1.5) and won.high == pytest.approx(0.48)
    assert "use_cache=True" in finding.remedies[0].says
    assert finding.claims == {"other": pytest.approx(0.4)}


def test_it_lies_in_forward_where_nothing_else_has_room_and_never_takes_more_than_there_is() -> None:
    finding = found(ask(rollout(), forward=0.07, other=0.0))
    assert finding.claims == {"forward": pytest.approx(0.4)}
    # 0.03 of 0.1 s are backward's: a rollout that comes in some steps only took longer than a step in one.
    assert number(found(ask(rollout(0.2))), SHARE).value == pytest.approx(70.0)


def test_what_others_had_of_the_cores_is_in_the_step_and_not_in_the_calls() -> None:
    # The thread ran for 0.02 of the 0.08 s in which it was ready to: a call of 0.01 s takes 0.04 s of such a step.
    crowded = {"loop_cpu_share": 0.2, "loop_run_delay_share": 0.6}
    assert number(found(ask(rollout(0.01), quantities=crowded)), SHARE).value == pytest.approx(40.0)


def test_lines_add_up_and_little_is_cleared_or_an_info() -> None:
    finding = found(ask(rollout(0.01), rollout(0.03, 20)))
    assert number(finding, SHARE).value == pytest.approx(40.0)
    assert "ppo.py:20" in finding.summary and "and at 1 more line" in finding.summary
    assert found(ask(rollout(0.008))).severity is Severity.INFO
    assert "little of the step" in clear(ask(rollout(0.004))).summary
    assert "no model is called again and again" in clear(ask()).summary


def test_of_a_recurrent_layer_it_is_told_what_the_state_would_save_of_forward_and_backward() -> None:
    finding = found(ask(forecast()))
    # Half of forward's 0.02 s and 0.8 of backward's 0.03 of 0.1 s; at the upper end 0.042 / 0.04 of that.
    assert number(finding, SHARE).value == pytest.approx(34.0)
    assert finding.claims == {"forward": pytest.approx(0.10), "backward": pytest.approx(0.24)}
    assert finding.severity is Severity.WARNING and "(23 % to 36 %)" in finding.summary
    assert "31 calls of the GRU at ppo.py:44 in roll" in finding.summary and "whose state is dropped" in finding.summary
    assert "without gradients" not in finding.summary
    first, second = finding.remedies
    assert "rnn(new_steps, state)" in first.says and "one call on all of it" in second.says
    won = finding.recoverable
    # As in any other rule on operators more goes with them, of forward and backward no more than there is.
    assert won is not None and won.low == pytest.approx(0.8 * 0.34 * 0.75 / 1.5) and won.high == pytest.approx(0.5)


def test_both_kinds_add_up_with_the_remedy_of_each() -> None:
    finding = found(ask(rollout(0.05), forecast()))
    assert number(finding, SHARE).value == pytest.approx(50.0 + 34.0)
    assert finding.claims == {
        "other": pytest.approx(0.5),
        "forward": pytest.approx(0.1),
        "backward": pytest.approx(0.24),
    }
    assert "without gradients" in finding.summary and "and at 1 more line" in finding.summary
    assert [("use_cache" in one.says, "rnn(new" in one.says) for one in finding.remedies[:2]] == [
        (True, False),
        (False, True),
    ]
    assert "little of the step" in clear(ask(forecast(0.05, 0.05))).summary


def test_without_a_look_nothing_is_said() -> None:
    assert "no step was looked through" in str(missing(ask_trial(RULE, forward=0.04, backward=0.04)))
