"""CPU001: more threads than cores."""

from __future__ import annotations

import dataclasses

import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
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


def beside_others(threads, switches, *, cores=2, workers=0, cpu_s=3.0):
    """10 s in which others had nearly all of two cores, and the trial 3 s of CPU time."""
    facts = {"threads": threads, "cpu_count": cores, "num_workers": workers}
    counted = {
        **{"involuntary_switches": switches, "measured_wall_s": 10.0, "process_cpu_s": cpu_s},
        **{"workers_cpu_s": 0.2 * workers, "other_cpu_s": 16.8},
    }
    return ask_trial(RULE, forward=0.1, facts=facts, quantities=counted, columns={"thread_cpu_ns": 0.01e9})


def test_beside_others_the_threads_own_time_counts():
    # 2,700 switches are 270 a second, and 900 a second of the 3 s that the process ran.
    finding = found(beside_others(16, 2700))
    assert finding.severity is Severity.WARNING  # others' part in it is not known, however often
    assert "900 times a second of their own CPU time" in finding.summary
    assert finding.recoverable.low == 0.0 and finding.recoverable.high == pytest.approx(0.9)
    assert found(beside_others(16, 9000)).severity is Severity.WARNING


@pytest.mark.parametrize(("threads", "switches", "workers"), [(16, 750, 0), (2, 2700, 0), (2, 2700, 2)])
def test_beside_others_half_of_it_and_no_thread_too_many_are_clear(threads, switches, workers):
    clear(beside_others(threads, switches, workers=workers))


def counted_delay(own_delay, *, others_s=0.0, rate=0, workers=0, threads=16, workers_delay=None):
    """100 steps of 0.1 s on two cores; the loop had no core for ``own_delay`` of them."""
    facts = {"threads": threads, "cpu_count": 2, "num_workers": workers}
    quantities = {"involuntary_switches": rate * 10, "measured_wall_s": 10.0, "other_cpu_s": others_s}
    # The loop ran for 5 of 10 s; its other threads for 5, and as many of delay as the loop had.
    quantities |= {
        "loop_cpu_share": 0.5,
        "process_cpu_s": 10.0,
        "workers_cpu_s": 2.0,
        "loop_run_delay_share": own_delay,
    }
    quantities |= {"process_run_delay_share": own_delay / (1 + own_delay)}
    quantities |= {} if workers_delay is None else {"worker_run_delay_share": workers_delay}
    return ask_trial(RULE, forward=0.1, facts=facts, quantities=quantities)


def test_time_without_a_core_for_ones_own_threads_needs_no_switches():
    finding = found(counted_delay(0.3))
    assert finding.severity is Severity.WARNING
    assert number(finding, "computing thread without a core for the trial's own threads").value == pytest.approx(30)
    assert "For 30 % of the time the loop was ready to run" in finding.summary
    assert (finding.recoverable.low, finding.recoverable.high) == (0.0, pytest.approx(0.3))


def test_a_delay_of_others_or_of_nobody_is_none_of_its_threads():
    # Others ran for 28 s, its own for 5 and 2: a fifth of 3 s.
    clear(counted_delay(0.3, others_s=28.0))
    clear(counted_delay(0.0))
    # Many switches beside workers, measured to cost the loop nothing, are only mentioned.
    mentioned = found(counted_delay(0.0, rate=5000, threads=1, workers=4, workers_delay=0.9))
    assert mentioned.severity is Severity.INFO and "For 0 % of the time" in mentioned.summary


def test_workers_that_hardly_get_a_core_are_at_work_all_the_same():
    # 8 workers used 2 of 80 s: asleep, unless they were ready and had no core for 38 s more. The loop lacked 0.3.
    clear(counted_delay(0.3, workers=8, threads=1, workers_delay=0.0))
    finding = found(counted_delay(0.3, workers=8, threads=1, workers_delay=0.95))
    assert number(finding, "threads at work").value == 9


def busy(others_s: float, cpu_s: float):
    """16 threads on two cores for 10 s; its computing thread runs for 0.03 of 0.1 s."""
    facts = {"threads": 16, "cpu_count": 2}
    counted = {"involuntary_switches": 30_000, "measured_wall_s": 10.0, "process_cpu_s": cpu_s}
    counted |= {"workers_cpu_s": 0.0, "other_cpu_s": others_s}
    return found(ask_trial(RULE, forward=0.1, facts=facts, quantities=counted, columns={"thread_cpu_ns": 0.03e9}))


def test_beside_others_nothing_of_the_gain_is_sure_however_much_the_process_ran_itself():
    alone, contended = busy(0.2, 19.0), busy(5.0, 14.0)
    # 2,143 switches a second of CPU time are fewer than the 3,000 a second of wall time.
    assert "of their own CPU time" not in contended.summary
    assert alone.recoverable.low == pytest.approx(0.3 * 0.7)
    assert contended.recoverable.low == 0.0
    assert contended.recoverable.high == alone.recoverable.high == pytest.approx(0.7)


def test_others_that_the_scheduler_counted_make_the_gain_unsure_and_its_upper_end_wider():
    # For 0.6 of the time without a core its own threads ran 5 s and others 7: 0.25 and 0.35 of the time.
    finding = found(counted_delay(0.6, others_s=5.0))
    own = number(finding, "computing thread without a core for the trial's own threads").value / 100
    assert own < 0.6
    assert finding.recoverable.low == 0.0 and finding.recoverable.high == pytest.approx(0.6)
    assert " others had them, so that nothing of the gain is sure" in finding.summary
    assert "others" not in found(counted_delay(0.6)).summary
