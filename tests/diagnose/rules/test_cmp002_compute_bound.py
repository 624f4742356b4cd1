"""CMP002: the answer when nothing is wrong."""

from __future__ import annotations

import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = ComputeBound()


def ask(compute, **trial):
    """A step of 1 s that computes for ``compute`` s, two thirds of it backward."""
    return ask_trial(RULE, forward=compute / 3, backward=2 * compute / 3, other=1 - compute, noise=0.02, **trial)


@pytest.mark.parametrize("compute", [0.3, 0.5])
def test_less_than_most_of_the_step_is_clear(compute):
    assert number(clear(ask(compute)), "forward and backward").value == pytest.approx(100 * compute, rel=0.05)


def test_most_of_the_step_is_said_with_the_larger_part_first():
    finding = found(ask(0.9))
    assert finding.severity is Severity.INFO
    assert "60 % in the backward and 30 % in the forward pass" in finding.summary
    assert finding.recoverable is None


def test_a_device_that_is_read_once_a_step_still_computes():
    # loss.item() in each step: the device has finished the step before, and was fed meanwhile.
    assert found(ask(0.9, device="cuda:0", columns={"starved": 1.0, "borders_idle": 4}))


def test_on_a_cpu_the_threads_are_set_against_the_cores():
    assert "on 2 of 8 cores" in found(ask(0.9, facts={"threads": 2, "cpu_count": 8})).summary


def test_a_small_batch_alone_is_to_be_compared_with_larger_ones():
    assert any("Measure larger batches" in remedy.says for remedy in found(ask(0.9, batch_size=2)).remedies)
    assert not any("Measure larger batches" in remedy.says for remedy in found(ask(0.9, batch_size=64)).remedies)


def test_a_compiled_model_is_not_to_be_compiled():
    assert {"compile_mode": "default"} in changes(found(ask(0.9, facts={"compiled": False})))
    assert {"compile_mode": "default"} not in changes(found(ask(0.9, facts={"compiled": True})))
    assert {"compile_mode": "default"} not in changes(found(ask(0.9, settings={"compile_mode": "default"})))


def test_a_device_that_runs_dry_does_not_compute():
    assert "ran dry in 100 %" in clear(ask(0.9, device="cuda:0", columns={"starved": 1.0, "borders_idle": 6})).summary
    assert "the device's own work" in found(ask(0.9, device="cuda:0", columns={"starved": 0.0})).summary


def test_without_the_queue_a_device_is_not_judged():
    assert missing(ask(0.9, device="cuda:0", without=["starved"])).signal == "starved"


def test_lower_precision_is_proposed_on_a_device_in_float32_only():
    known = {"device_name": "NVIDIA A100-SXM4-80GB"}
    assert {"precision": "bfloat16"} in changes(found(ask(0.9, device="cuda:0", facts=known)))
    assert {"precision": "bfloat16"} not in changes(found(ask(0.9)))


@pytest.mark.parametrize(
    ("known", "precision"),
    [
        ({"device_name": "Tesla T4"}, "float16"),  # has no units for bfloat16
        ({"device_name": "NVIDIA L4"}, "bfloat16"),
        ({"device_name": "NVIDIA L4", "parameter_types": ["bfloat16"]}, None),  # computes in it already
    ],
)
def test_16_bits_are_advised_in_the_format_that_the_device_has(known, precision):
    advised = changes(found(ask(0.9, device="cuda:0", facts=known)))
    assert [change for change in advised if "precision" in change] == ([{"precision": precision}] if precision else [])


def test_unmarked_phases_are_not_zero():
    missing(ask(0.9, without=["host_backward_ns"]))
