"""CPU001: more threads than cores."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cpu001_oversubscribed_threads import OversubscribedThreads
from perf_diagnostics.records import Environment
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = OversubscribedThreads()


def ask(threads, switches_per_s, *, workers=0, cores=2, **more):
    """100 steps of 0.1 s on so many cores."""
    facts = {"threads": threads, "cpu_count": cores, "num_workers": workers}
    counted = {"involuntary_switches": switches_per_s * 10, "measured_wall_s": 10.0}
    return ask_trial(RULE, forward=0.1, facts=facts, quantities=counted, **more)


@pytest.mark.parametrize(("rate", "severity"), [(1000, Severity.WARNING), (5000, Severity.CRITICAL)])
def test_threads_that_take_cores_from_each_other(rate, severity):
    finding = found(ask(16, rate))
    assert finding.severity is severity
    assert number(finding, "threads at work").value == 16
    assert changes(finding) == [{"threads": 2}]


@pytest.mark.parametrize(("threads", "rate"), [(16, 50), (16, 250), (2, 5000), (2, 50)])
def test_either_alone_is_clear(threads, rate):
    clear(ask(threads, rate))


def test_workers_need_cores_too():
    finding = found(ask(4, 1000, workers=2, cores=4))
    assert changes(finding) == [{"threads": 2}]
    assert {"num_workers": 1} in changes(found(ask(2, 1000, workers=8)))


def test_a_quota_counts_as_cores():
    result = trial_of(
        forward=0.1,
        facts={"threads": 4, "cpu_count": 8},
        quantities={"involuntary_switches": 9000, "measured_wall_s": 10.0},
    )
    limited = dataclasses.replace(result, environment=Environment(limits={"cgroup_cpu_quota_cores": 2.0}))
    clear(RULE.check(TrialFacts.of(result)))
    assert changes(found(RULE.check(TrialFacts.of(limited)))) == [{"threads": 2}]


def test_the_gain_is_what_the_thread_stood_still():
    # 0.06 s of 0.1 s: at most 60 % of the step.
    finding = found(ask(16, 5000, columns={"thread_cpu_ns": 0.04e9}))
    assert finding.recoverable.high == pytest.approx(0.6)
    assert found(ask(16, 5000)).recoverable is None


def test_a_device_needs_one_thread():
    clear(ask(16, 5000, device="cuda:0"))


def test_not_counted_is_not_clear():
    assert missing(ask_trial(RULE, facts={"threads": 16, "cpu_count": 2})).signal == "involuntary_switches"


@pytest.mark.parametrize(("threads", "others_s", "severity"), [
    (1, 12.0, Severity.INFO),  # one thread and two workers on two cores, of which others had 12 of 20 core-seconds
    (1, 0.4, Severity.WARNING),  # nobody else was there
    (16, 12.0, Severity.WARNING),  # sixteen threads are too many for two cores whoever else is there
])  # fmt: skip
def test_others_may_be_who_took_the_cores(threads, others_s, severity):
    facts = {"threads": threads, "cpu_count": 2, "num_workers": 2}
    counted = {"involuntary_switches": 10_000, "measured_wall_s": 10.0, "other_cpu_s": others_s}
    counted |= {"process_cpu_s": 5.0, "workers_cpu_s": 20.0 - others_s - 5.0}
    assert found(ask_trial(RULE, forward=0.1, facts=facts, quantities=counted)).severity is severity
