"""CMP033: what frozen parts compute again of samples that come again."""

from __future__ import annotations

from typing import Any

import pytest

from perf_diagnostics.diagnose.facts.facts import NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp033_known_answers import KnownAnswers
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import clear, found, missing, number


def entry(**more: object) -> dict[str, Any]:
    """A teacher that takes a quarter of forward's operators; of 900 rows 300 are different ones."""
    told: dict[str, object] = {"file": "kd.py", "line": 9, "function": "main", "text": "guide = teacher(x)"}
    told |= {"operators": 6, "seconds_forward": 0.5, "seconds_backward": 0.0, "seconds_outside": 0.0}
    told |= {"bytes": 1 << 20, "rows_a_step": 30, "calls": 30, "rows": 900, "different": 300, "again": 1.0}
    return told | {"compared": 90, "seconds_instead": 0.0} | more


def ask(*lines: object, facts: dict[str, Any] | None = None, **phases: float) -> Any:
    """Operators take 1 s in forward and 2 s in backward, which are 0.04 and 0.06 of a step of 0.1 s."""
    known = {"operator_seconds_forward": 1.0, "operator_seconds_backward": 2.0, "known_answers": list(lines)}
    trial = trial_of(**({"forward": 0.04, "backward": 0.06} | phases), facts=known | (facts or {}))
    try:
        return KnownAnswers().check(TrialFacts.of(trial))
    except NotMeasured as unmeasured:
        return unmeasured


def test_what_came_once_had_to_be_computed() -> None:
    finding = found(ask(entry()))
    # Half of forward's 40 %, of which 600 of 900 rows were known: 2/3 of 20 %.
    assert number(finding, "computing known answers").value == pytest.approx(20 * 2 / 3)
    assert finding.severity is Severity.INFO and finding.recoverable is not None
    # A long training wins all of the 20 %, and what may go beside it.
    assert finding.recoverable.high > 0.2 > finding.recoverable.value
    # 1 MiB for 30 rows, 300 rows.
    assert number(finding, "memory to keep the answers").value == pytest.approx(10)
    assert number(finding, "different samples, about").value == 300
    assert "kd.py:9 in main (`guide = teacher(x)`)" in finding.summary and "100 % of the samples" in finding.summary


def test_reading_kept_answers_is_taken_off() -> None:
    # 0.1 of 3 s in all of the step are a thirtieth, and 2/3 of that.
    finding = found(ask(entry(seconds_instead=0.1)))
    assert number(finding, "computing known answers").value == pytest.approx((20 - 100 / 30) * 2 / 3)


def test_what_lies_outside_of_forward_takes_no_more_than_other_does() -> None:
    phases = {"forward": 0.01, "backward": 0.02, "other": 0.06, "data_wait": 0.01}
    # By backward's pace 8 s are 80 % of the step; all of other is 60 %.
    outside = entry(seconds_forward=0.0, seconds_outside=8.0)
    assert number(found(ask(outside, **phases)), "computing known answers").value == pytest.approx(40)


def test_augmented_samples_are_none_that_are_known() -> None:
    never = entry(different=900, again=0.0)
    assert "went over its data once" in str(missing(ask(never)))
    assert "went over its data once" in str(missing(ask(never, facts={"batches_a_pass": 28.0})))  # 30 calls: one pass
    clear(ask(never, facts={"batches_a_pass": 25.0}))
    clear(ask(entry(different=900, again=0.0, seconds_forward=0.1)))  # 4 % of the step, whatever it is


def test_too_few_and_none_that_were_compared() -> None:
    assert "no sample came again" in str(missing(ask(entry(compared=15))))
    unseen = {"why_not": "its calls are too short"}
    assert "its calls are too short" in str(missing(ask({**entry(rows=0, compared=0), **unseen})))


def test_without_a_look_nothing_is_said() -> None:
    with pytest.raises(NotMeasured, match="no step was looked through"):
        KnownAnswers().check(TrialFacts.of(trial_of(forward=0.04, backward=0.06)))
    clear(ask())
