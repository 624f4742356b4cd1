"""CMP054: calls in evaluation mode whose answers were known, by their time over the training's."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.not_measured import NotApplicable
from perf_diagnostics.diagnose.rules.cmp054_evaluated_again import EvaluatedAgain
from tests.diagnose.answers import Reply, ask_trial, clear, found, missing, number

RULE = EvaluatedAgain()


def ask(known_s: float, *, calls: int = 140, known: int = 96) -> Reply:
    """Of 100 s of training 20 s lie in calls in evaluation mode."""
    told = {"calls": calls, "calls_known": known, "calls_s": 20.0, "calls_known_s": known_s, "calls_within_s": 100.0}
    return ask_trial(RULE, facts={f"evaluation_{name}": value for name, value in told.items()})


def test_answers_that_were_known_are_told_with_their_time() -> None:
    finding = found(ask(15.0))
    assert finding.severity is Severity.WARNING
    assert finding.summary == (
        "96 of 140 calls in evaluation mode gave an answer that the model had given before, for the same input with "
        "the same weights: 75 % of the time of such calls, 15 % of the training's."
    )
    known = number(finding, "answers that were known")
    # Each call was timed: an interval would say that some were drawn.
    assert (known.value, known.limit, known.low, known.high) == (pytest.approx(15), 5, None, None)
    assert finding.confidence == pytest.approx(0.7 * 1.0, abs=0.05)  # nobody ran it without them
    assert finding.claims == {"other": pytest.approx(0.15)}
    assert finding.recoverable.low == pytest.approx(0.8 * 0.15) and finding.recoverable.high == pytest.approx(0.15)
    assert "encode a gallery before the loop over its queries" in finding.remedies[0].says


def test_calls_that_were_only_timed_are_told_apart() -> None:
    told = {"calls": 140, "calls_read": 50, "calls_known": 96, "calls_s": 20.0, "calls_known_s": 15.0}
    facts = {f"evaluation_{name}": value for name, value in (told | {"calls_within_s": 100.0}).items()}
    finding = found(ask_trial(RULE, facts=facts))
    assert finding.summary.endswith("50 of them were compared, and the others taken for like these.")
    assert number(finding, "calls that were compared").value == 50


def test_little_of_it_is_mentioned_or_clear() -> None:
    assert found(ask(3.0)).severity is Severity.INFO
    assert "take 1.0 % of the time" in clear(ask(1.0)).summary


def test_without_an_evaluation_it_does_not_apply() -> None:
    assert isinstance(missing(ask_trial(RULE)), NotApplicable)
