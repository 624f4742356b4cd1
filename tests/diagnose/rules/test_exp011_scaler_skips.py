"""EXP011: updates that the gradient scaler skipped, from its scale before and after the steady steps."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp011_scaler_skips import ScalerSkips
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number


def scaling(halvings, **trial):
    """100 steps in float16, after which the scale is so many times halved."""
    facts = {"loss_scale_before": 65536.0, "loss_scale_after": 65536.0 / 2**halvings}
    return ask_trial(ScalerSkips(), device="cuda:0", settings={"precision": "float16"}, facts=facts, **trial)


def test_bfloat16_is_advised_only_where_the_device_has_units_for_it():
    for name, advised in (("NVIDIA L4", True), ("Tesla T4", False)):
        known = {"loss_scale_before": 65536.0, "loss_scale_after": 1.0, "device_name": name}
        reply = ask_trial(ScalerSkips(), device="cuda:0", settings={"precision": "float16"}, facts=known)
        assert ({"precision": "bfloat16"} in changes(found(reply))) is advised


@pytest.mark.parametrize("halvings", [0, -1])  # unchanged, or doubled
def test_a_scale_that_stays_is_clear(halvings):
    assert number(clear(scaling(halvings)), "skipped updates at least").value == 0


def test_one_update_was_skipped_and_none_were():
    one = ask_trial(
        ScalerSkips(warn_rate=0.5, critical_rate=0.9),
        device="cuda:0",
        settings={"precision": "float16"},
        steps=20,
        facts={"loss_scale_before": 65536.0, "loss_scale_after": 32768.0},
    )
    assert clear(one).summary == "1 update was skipped in 20 steps"
    assert clear(scaling(0)).summary == "0 updates were skipped in 100 steps"


def test_skipped_updates_are_graded_by_what_is_sure_of_their_rate():
    assert found(scaling(2)).severity is Severity.INFO  # 2 of 100; surely no more than 0.24 of 100
    assert found(scaling(5)).severity is Severity.WARNING  # surely 1.6 of 100
    assert found(scaling(12)).severity is Severity.CRITICAL  # surely 6.2 of 100
    assert number(found(scaling(5)), "skipped updates at least").low == pytest.approx(1.62, abs=0.01)


def test_a_scale_of_zero_skipped_everything():
    facts = {"loss_scale_before": 65536.0, "loss_scale_after": 0.0}
    reply = ask_trial(ScalerSkips(), device="cuda:0", settings={"precision": "float16"}, facts=facts)
    assert found(reply).severity is Severity.CRITICAL


def test_without_a_scaler_there_is_nothing_to_skip():
    assert isinstance(missing(ask_trial(ScalerSkips())), NotApplicable)
    reply = missing(ask_trial(ScalerSkips(), device="cuda:0", settings={"precision": "float16"}))
    assert reply.signal == "loss_scale_before"
