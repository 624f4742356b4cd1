"""EXP003: steps against the clock around them."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp003_phases_do_not_close import PhasesDoNotClose
from perf_diagnostics.records import STEP_FILES
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = PhasesDoNotClose()


def ask_with_lost_share(share):
    """A trial of 100 s by the clock around it, of which this share lies in no step."""
    return ask_trial(RULE, forward=1.0 - share, steps=100, quantities={"measured_wall_s": 100.0})


@pytest.mark.parametrize("share", [0.0, 0.025])
def test_up_to_half_the_limit_is_clear(share):
    assert number(clear(ask_with_lost_share(share)), "steps against the clock around them").value == pytest.approx(
        -100 * share
    )


@pytest.mark.parametrize(
    ("share", "severity"), [(0.10, Severity.WARNING), (0.19, Severity.WARNING), (0.25, Severity.CRITICAL)]
)
def test_lost_time_is_found(share, severity):
    finding = found(ask_with_lost_share(share))
    assert finding.severity is severity
    assert "less than the clock" in finding.summary


def test_time_of_steps_whose_files_are_damaged_is_no_work_between_them():
    lost = {STEP_FILES: "rank 0: 1 of 3 parts are not on disk"}
    finding = found(ask_trial(RULE, forward=0.75, quantities={"measured_wall_s": 100.0}, gaps=lost))
    assert finding.severity is Severity.CRITICAL and "1 of 3 parts are not on disk" in finding.summary
    assert "Copy the run folder again" in finding.remedies[0].says
    # Steps that were never written are no matter of copying.
    unwritten = {"steps": "9 steps could not be written, and were too many to keep"}
    finding = found(ask_trial(RULE, forward=0.75, quantities={"measured_wall_s": 100.0}, gaps=unwritten))
    assert "Copy" not in finding.remedies[0].says


def test_more_than_there_was_is_found_too():
    assert "more than the clock" in found(ask_trial(RULE, forward=1.0, quantities={"measured_wall_s": 90.0})).summary


def test_phases_that_overlap_are_found():
    # Forward claims 0.6 s of steps of 0.5 s.
    finding = found(ask_trial(RULE, forward=0.6, columns={"wall_ns": 0.5e9}, quantities={"measured_wall_s": 50.0}))
    assert "phases claim" in finding.summary
    assert finding.severity is Severity.WARNING


def test_without_a_clock_around_the_steps_nothing_is_said():
    assert missing(ask_trial(RULE, without=["measured_wall_s"])).signal == "measured_wall_s"
