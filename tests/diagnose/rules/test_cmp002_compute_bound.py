"""CMP002: the answer when nothing is wrong."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.records import Environment
from perf_diagnostics.testing import trial_of
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
    finding = found(ask(0.9, facts={"threads": 2, "cpu_count": 8}))
    assert "on 2 of 8 cores" in finding.summary
    assert {"threads": 8} in changes(finding)
    assert {"threads": 8} not in changes(found(ask(0.9, facts={"threads": 8, "cpu_count": 8})))


def on_eight(*, robbed=0.0, idle, physical=8, ranks=1):
    """Two threads of eight cores, of which nobody uses so many."""
    given = {"process_cpu_s": 200.0, "workers_cpu_s": 0.0, "other_cpu_s": (6 - idle) * 100.0, "loop_cpu_share": 0.9}
    counted = {"loop_run_delay_share": robbed, "process_run_delay_share": robbed}
    facts = {"threads": 2, "cpu_count": 8, "num_workers": 0, "cpu_window_s": 100.0}
    result = trial_of(forward=0.3, backward=0.6, other=0.1, facts=facts, quantities=given | counted)
    here = Environment(host={"cores_physical": physical})
    return found(RULE.check(TrialFacts.of(replace(result, environment=here, steps=result.steps * ranks))))


def test_more_threads_are_advised_as_far_as_cores_are_free():
    assert {"threads": 8} in changes(on_eight(idle=5.9))
    assert {"threads": 5} in changes(on_eight(idle=3.4))
    assert not [change for change in changes(on_eight(idle=0.5)) if "threads" in change]
    # Others use 0.1 of a core.
    assert not [change for change in changes(on_eight(idle=5.9, robbed=0.9)) if "threads" in change]


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        ({"idle": 5.9}, 8),
        ({"idle": 3.4}, 5),
        ({"idle": 5.9, "physical": 4}, 4),  # the others are their second halves
        ({"idle": 5.9, "physical": 2}, None),
        ({"idle": 0.5}, None),
        ({"idle": 5.9, "ranks": 2}, None),
        ({"idle": 5.9, "physical": None}, None),
    ],
)
def test_idle_cores_win_at_most_an_even_split_and_none_of_it_surely(given, threads):
    gain = on_eight(**given).recoverable
    if threads is None:
        assert gain is None
    else:
        assert (gain.low, gain.high) == (0, pytest.approx(0.9 * (1 - 2 / threads)))


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
