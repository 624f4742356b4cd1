"""CMP005: operations a second against the fastest product of the run."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp005_low_mfu import LowMfu
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = LowMfu()
A100 = "NVIDIA A100-SXM4-80GB"


def ask(share, *, facts=None, quantities=None, **trial):
    """A step of 1 s that reaches ``share`` of 200 TFLOP/s, the fastest product measured."""
    numbers = {"flops_per_step": share * 200e12, "matmul_ceiling": 200e12}
    phases = {"forward": 0.3, "backward": 0.6, "optimizer": 0.1}
    return ask_trial(RULE, noise=0.02, facts=facts or {}, quantities=numbers | (quantities or {}), **(phases | trial))


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_above_the_limit_is_clear(share):
    assert number(clear(ask(share)), "of the fastest product").value == pytest.approx(100 * share, rel=0.05)


def test_far_below_it_is_mentioned_and_never_a_verdict():
    finding = found(ask(0.1))
    assert finding.severity is Severity.INFO
    assert number(finding, "operations a second").value == pytest.approx(20, rel=0.05)  # TFLOP/s
    assert {"compile_mode": "default"} in changes(finding)
    assert "SWP001" in finding.symptom_of


def test_no_operations_at_all_is_a_measured_zero():
    assert found(ask(0.0)).evidence[0].value == 0


def test_not_counted_is_not_zero():
    assert missing(ask(0.1, without=["flops_per_step"])).signal == "flops_per_step"


def test_it_is_silent_where_something_else_sets_the_pace():
    assert "wait for data" in clear(ask(0.1, data_wait=0.5, forward=0.3, backward=0.2, optimizer=0.0)).summary
    dry = clear(ask(0.1, device="cuda:0", columns={"starved": 1.0, "borders_idle": 6})).summary
    assert dry.endswith("; the host (the device ran dry in 100 % of the steps) sets the pace")


def test_the_sheet_stands_beside_with_its_source():
    answer = ask(0.1, device="cuda:0", settings={"precision": "bfloat16"}, facts={"device_name": A100})
    shown = number(found(answer), "model flops utilisation")
    assert shown.value == pytest.approx(100 * 20 / 312, rel=0.05)
    assert "data sheet" in shown.source


def test_above_the_sheet_it_abstains_and_says_why():
    # 20 TFLOP/s in float32 on a device whose sheet says 19.5 would pass as noise; 40 cannot be.
    reply = missing(ask(0.2, device="cuda:0", facts={"device_name": A100}))
    assert reply.signal == "mfu" and "wrong" in reply.why
