"""CPU004: fewer threads than cores, and nobody else on the others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cpu004_idle_cores import IdleCores
from perf_diagnostics.records import Environment
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, changes, clear, facts_of, found, missing

RULE = IdleCores()


def on_eight(*, idle, threads=2, robbed=0.0, physical=8, ranks=1, compute=0.9):
    """A step of 1 s on eight cores, of which nobody uses so many; ``threads`` compute."""
    given = {"process_cpu_s": threads * 100.0, "workers_cpu_s": 0.0, "loop_cpu_share": 0.9}
    given |= {"other_cpu_s": (8 - threads - idle) * 100.0}
    counted = {"loop_run_delay_share": robbed, "process_run_delay_share": robbed}
    result = trial_of(
        forward=compute / 3,
        backward=2 * compute / 3,
        other=1 - compute,
        facts={"threads": threads, "cpu_count": 8, "num_workers": 0, "cpu_window_s": 100.0},
        quantities=given | counted,
    )
    return replace(result, environment=Environment(host={"cores_physical": physical}), steps=result.steps * ranks)


def ask(**given):
    return RULE.check(TrialFacts.of(on_eight(**given)))


@pytest.mark.parametrize(("idle", "threads"), [(5.9, 8), (3.4, 5), (1.0, 3)])
def test_as_many_threads_are_advised_as_cores_were_free(idle, threads):
    finding = found(ask(idle=idle))
    assert finding.severity is Severity.INFO
    assert changes(finding) == [{"threads": threads}]
    assert "90 % of a step, compute on 2 of 8 cores" in finding.summary
    assert (finding.recoverable.low, finding.recoverable.high) == (0, pytest.approx(0.9 * (1 - 2 / threads)))


def test_second_halves_of_cores_promise_nothing():
    finding = found(ask(idle=5.9, physical=4))
    assert changes(finding) == [{"threads": 4}] and finding.recoverable.high == pytest.approx(0.9 / 2)
    clear(ask(idle=5.9, physical=2))


@pytest.mark.parametrize(
    "given",
    [
        {"idle": 0.5},
        {"idle": 5.9, "robbed": 0.9},  # others use 0.1 of a core, and the loop's thread waits for one all the same
        {"idle": 0.0, "threads": 8},
        {"idle": 5.9, "compute": 0.2},
    ],
)
def test_where_no_core_is_free_or_little_computes_it_is_clear(given):
    clear(ask(**given))


def test_what_others_use_was_not_measured():
    finding = found(ask_trial(RULE, forward=0.9, other=0.1, facts={"threads": 2, "cpu_count": 8}))
    assert changes(finding) == [{"threads": 8}] and finding.recoverable is None
    assert missing(ask_trial(RULE, forward=0.9, other=0.1, facts={"cpu_count": 8})).signal == "threads"


def test_devices_and_ranks_are_none_of_its_business():
    on_device = facts_of(device="cuda:0", facts={"threads": 2, "cpu_count": 8})
    for facts in (on_device, TrialFacts.of(on_eight(idle=5.9, ranks=2))):
        with pytest.raises(NotApplicable):
            RULE.check(facts)


def test_where_nothing_is_broken_the_verdict_says_it():
    verdict = diagnose(run_of(on_eight(idle=5.9, compute=0.95))).verdict
    assert verdict.code == "CPU004" and not verdict.fault
    assert "of a step (predicted, and none of it sure)" in verdict.summary
    assert "on 2 of 8 cores: 6 more cores had nothing to do" in verdict.summary
