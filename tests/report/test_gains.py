"""What a fix wins, in words, and at which batch sizes."""

from __future__ import annotations

import dataclasses

from perf_diagnostics.diagnose.finding import Share
from perf_diagnostics.report.gains import fix
from tests.report.test_changes import finding

WON = Share(0.809, 0.786, 0.828, measured=True)


def test_a_gain_where_nobody_should_train_says_so() -> None:
    here = finding(gain=WON)
    assert fix(here) == "A fix wins 80.9 % of the time a sample takes (78.6 to 82.8 %), measured in this run."
    elsewhere = dataclasses.replace(here, at_recommended=False, batch_sizes=(1, 2, 4))
    there = "That is at batch size 1 (what was found holds at 2 and 4 too), not at the recommended one."
    assert fix(elsewhere) == f"{fix(here)} {there}"
    assert fix(dataclasses.replace(elsewhere, batch_sizes=())) == fix(here)


def test_a_finding_that_promises_nothing_has_no_such_sentence() -> None:
    assert fix(finding(gain=None)) == ""


def test_what_was_measured_to_win_nothing_says_no_share_of_nothing() -> None:
    nothing = fix(finding(gain=Share(0.0, 0.0, 0.0098, measured=True)))
    assert nothing == "A fix wins nothing, at most 1.0 % of the time a sample takes, measured in this run."
    perhaps = fix(finding(gain=Share(0.03, 0.0, 0.1, measured=True)))
    assert perhaps == "A fix shows no gain: 3.0 % of the time a sample takes (0 to 10 %), measured in this run."
