"""What contention does to the findings of the same trials."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.finding import Evidence, Severity, Share
from perf_diagnostics.diagnose.trust import tempered
from tests.diagnose.test_ranking import HERE, THERE, placed

DISTURBED = placed("EXP010", batch_sizes=(8, 16))


def after(item, cause=DISTURBED):
    """The finding after the engine has looked at who was disturbed."""
    return tempered((cause, item))[1].finding


def test_confidence_and_the_lower_end_of_a_predicted_gain_fall():
    lowered = after(placed("INP001", 0.3))
    assert lowered.confidence == pytest.approx(0.7 * 0.6)
    assert lowered.recoverable == Share(0.3, pytest.approx(0.18), 0.3)


def test_nothing_of_a_gain_measured_between_trials_is_sure():
    item = placed("SWP002")
    item = dataclasses.replace(item, finding=dataclasses.replace(item.finding, recoverable=Share(0.3, 0.2, 0.4, True)))
    assert after(item).recoverable == Share(0.3, 0.0, 0.4, measured=False)


@pytest.mark.parametrize(
    ("item", "cause"),
    [
        (placed("INP001", 0.3, group=THERE), DISTURBED),
        (placed("INP001", 0.3, batch_sizes=(64,)), DISTURBED),
        (placed("EXP001"), DISTURBED),
        (placed("INP001", 0.3), placed("EXP010", severity=Severity.INFO)),
        (placed("INP001", 0.3), placed("EXP007")),
    ],
)
def test_other_trials_and_lesser_faults_change_nothing(item, cause):
    assert after(item, cause) == item.finding


def test_a_finding_about_the_whole_run_is_disturbed_with_any_group():
    assert after(placed("CMP001", 0.3, group=None)).confidence < 0.7
    assert after(placed("CMP001", 0.3, group=HERE, batch_sizes=(16, 32))).confidence < 0.7


def test_times_that_do_not_settle_under_other_peoples_load_are_no_second_fault():
    assert after(placed("EXP004")).severity is Severity.INFO
    assert after(placed("EXP004"), placed("EXP009")).severity is Severity.WARNING  # the probe does not unsettle them
    assert after(placed("EXP004", batch_sizes=(64,))).severity is Severity.WARNING


def unsettled(says="not shown", steps=110, **more):
    """EXP004 about the same trials."""
    item = placed("EXP004", **more)
    told = Evidence(metric="warm-up over", value=says, n=steps)
    return dataclasses.replace(item, finding=dataclasses.replace(item.finding, evidence=(told,)))


def test_one_load_costs_confidence_once():
    """Steps that never settled under it have cost the finding a part already (thin)."""

    def confidence(*others):
        return tempered((*others, placed("HST006", 0.3)))[-1].finding.confidence

    assert confidence(DISTURBED, unsettled()) == pytest.approx(0.7)
    assert confidence(DISTURBED, unsettled("yes")) == pytest.approx(0.7 * 0.6)  # it drifts, and is not thin
    assert confidence(DISTURBED, unsettled(steps=4)) == pytest.approx(0.7 * 0.6)  # thin for another reason
    assert confidence(DISTURBED, unsettled(batch_sizes=(64,))) == pytest.approx(0.7)  # of the whole group
    assert confidence(placed("EXP009"), unsettled()) == pytest.approx(0.7 * 0.6)
    assert tempered((DISTURBED, unsettled(), placed("HST006", 0.3)))[-1].finding.recoverable.low == pytest.approx(0.18)
