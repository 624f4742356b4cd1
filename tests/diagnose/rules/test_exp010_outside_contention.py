"""EXP010: other people's use of the processors, by signs that have to agree."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.exp010_outside_contention import OutsideContention
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = OutsideContention()
STEPS = 100
CORES = {"threads": 2, "cpu_count": 2, "num_workers": 0}

#: Over 100 s on two cores: who used them, how long something waited, and how often threads lost their core.
QUIET = {"process_cpu_s": 150.0, "workers_cpu_s": 0.0, "other_cpu_s": 3.0, "cpu_pressure_s": 2.0, "cpu_periods": 0}
QUIET |= {"cpu_throttled_periods": 0, "cpu_throttled_s": 0.0, "involuntary_switches": 500}
BUSY = QUIET | {"process_cpu_s": 110.0, "other_cpu_s": 85.0, "cpu_pressure_s": 90.0, "involuntary_switches": 20000}


def ask(quantities=QUIET, *, off=0.0, hogs=False, facts=CORES, without=(), **more):
    """Steps of 1.0 s in three phases; the computing thread is off its core for this part of them.

    With ``hogs`` every fifth step takes 1.6 s, longer in all of its phases.
    """
    slow = np.where((np.arange(STEPS) % 5 == 0) & hogs, 1.6, 1.0) * 1e9
    columns = {
        "wall_ns": slow,
        "host_forward_ns": 0.4 * slow,
        "host_backward_ns": 0.4 * slow,
        "host_optimizer_ns": 0.2 * slow,
        "thread_cpu_ns": (1 - off) * slow,
    }
    scaled = {name: value * slow.sum() / 1e11 for name, value in quantities.items()}
    quantities = scaled | {"measured_wall_s": slow.sum() / 1e9}
    return ask_trial(RULE, steps=STEPS, columns=columns, quantities=quantities, facts=facts, without=without, **more)


def test_a_machine_of_ones_own_is_clear():
    answer = clear(ask())
    assert number(answer, "cores used by others").value == pytest.approx(1.5)  # 3 of 200 core seconds
    assert number(answer, "computing thread not running").value == 0.0


def test_others_on_full_cores_and_a_thread_that_stands_still_are_a_warning():
    finding = found(ask(BUSY, off=0.3))
    assert finding.severity is Severity.WARNING
    assert number(finding, "cores used by others").value == pytest.approx(42.5)
    assert "others used 42 % of the cores" in finding.summary


def test_long_steps_in_all_phases_and_waiting_are_a_warning():
    finding = found(ask(QUIET | {"cpu_pressure_s": 60.0}, hogs=True))
    assert finding.severity is Severity.WARNING
    lost = number(finding, "time lost in long steps without a cause").value
    assert lost == pytest.approx(100 * 20 * 0.6 / (80 + 20 * 1.6))


@pytest.mark.parametrize(
    "one",
    [
        {"hogs": True},
        {"off": 0.3},
        {"quantities": QUIET | {"cpu_pressure_s": 60.0}},
        {"quantities": QUIET | {"process_cpu_s": 110.0, "other_cpu_s": 85.0}},
    ],
)
def test_one_sign_alone_is_only_mentioned(one):
    assert found(ask(**one)).severity is Severity.INFO


def test_a_rank_that_waits_for_the_others_is_not_robbed():
    found(ask(off=0.8))
    clear(ask(off=0.8, facts=CORES | {"ranks": 2}))


def test_two_signs_from_the_steps_alone_could_be_the_trials_own():
    assert found(ask(hogs=True, off=0.3)).severity is Severity.INFO


def test_others_who_leave_cores_idle_take_nothing():
    # 8 cores for 100 s: two used by the trial, three by others, three idle.
    idle = QUIET | {"process_cpu_s": 200.0, "other_cpu_s": 300.0}
    clear(ask(idle, facts=CORES | {"cpu_count": 8}))


def test_half_the_limits_are_clear():
    clear(ask(QUIET | {"process_cpu_s": 190.0, "other_cpu_s": 10.0, "cpu_pressure_s": 10.0}, off=0.025))


def test_a_stall_in_one_phase_is_the_loops_own():
    wall = np.where(np.arange(STEPS) % 5 == 0, 3.0, 1.0) * 1e9
    columns = {"wall_ns": wall, "host_forward_ns": 0.7e9, "host_optimizer_ns": wall - 0.7e9}
    clear(ask_trial(RULE, steps=STEPS, columns=columns, quantities=QUIET, facts=CORES))


def test_pauses_of_the_collector_are_the_loops_own():
    slow = np.where(np.arange(STEPS) % 5 == 0, 1.6, 1.0) * 1e9
    columns = {
        "wall_ns": slow,
        "host_forward_ns": 0.5 * slow,
        "host_backward_ns": 0.5 * slow,
        "gc_ns": slow - 1e9,
    }
    clear(ask_trial(RULE, steps=STEPS, columns=columns, quantities=QUIET, facts=CORES))


@pytest.mark.parametrize(
    ("facts", "quantities"),
    [
        (CORES | {"threads": 16}, {}),
        (CORES | {"num_workers": 4}, {"workers_cpu_s": 80.0}),  # 0.8 of the 4 cores that they would keep busy
        (CORES, {"cpu_periods": 100, "cpu_throttled_periods": 50}),
    ],
)
def test_a_trial_that_makes_itself_wait_is_no_outside_contention(facts, quantities):
    waiting = QUIET | {"cpu_pressure_s": 90.0, "involuntary_switches": 50000} | quantities
    clear(ask(waiting, off=0.5, facts=facts))


def test_without_pressure_lost_cores_count():
    finding = found(ask(BUSY, off=0.3, without=("cpu_pressure_s", "other_cpu_s")))
    assert finding.severity is Severity.WARNING
    assert number(finding, "involuntary switches").value == pytest.approx(200)


def test_a_device_waits_for_nobodys_thread():
    answer = ask_trial(
        RULE,
        device="cuda:0",
        columns={"thread_cpu_ns": 1e6},
        quantities=QUIET | {"measured_wall_s": 100.0},
        facts=CORES,
    )
    assert "computing thread not running" not in {item.metric for item in clear(answer).evidence}


def test_nobody_looked():
    assert missing(ask_trial(RULE, steps=10)).signal == "other_cpu_s"


# -- where the scheduler's count is known


def counted(delay, *, others_s, workers=0, workers_delay=0.0, **more):
    """100 s on one core: the loop ran for what is left of it, and lacked it for ``delay`` of the time."""
    quantities = QUIET | {"process_cpu_s": 60.0, "other_cpu_s": others_s, "cpu_pressure_s": 90.0}
    quantities |= {"involuntary_switches": 20000}
    given = {"loop_cpu_share": 0.6, "loop_run_delay_share": delay, "process_run_delay_share": delay / (0.6 + delay)}
    if workers:
        given |= {"worker_run_delay_share": workers_delay, "workers_cpu_s": 10.0}
    facts = {"threads": 1, "cpu_count": 1, "num_workers": workers}
    wait = 0.3 if workers else 0.0
    return ask_trial(
        RULE,
        data_wait=wait,
        forward=1 - wait,
        columns={"thread_cpu_ns": 0.6e9},
        quantities=quantities | given,
        facts=facts,
        **more,
    )


def test_a_loop_that_others_robbed_of_its_core_needs_no_other_sign():
    finding = found(counted(0.4, others_s=40.0))
    assert finding.severity is Severity.WARNING
    assert number(finding, "computing thread without a core for others").value == pytest.approx(40)
    assert "For 40 % of the time the computing thread was ready to run while others had the cores." in finding.summary


def test_a_loop_that_had_its_core_was_not_disturbed():
    # Something waited for a processor for 90 % of the time, and the thread did not run for 40 % of it: but it was
    # blocked, and had a core whenever it could run. Measured zero is no disturbance; not measured, the signs count.
    clear(counted(0.0, others_s=40.0))
    assert found(counted(0.0, others_s=40.0, without=("loop_run_delay_share",))).severity is Severity.WARNING


def test_what_its_own_threads_take_is_no_outside_contention():
    clear(counted(0.4, others_s=0.5))


def test_half_of_the_limit_is_clear_and_twice_of_it_a_warning():
    clear(counted(0.025, others_s=40.0))
    assert found(counted(0.1, others_s=40.0)).severity is Severity.WARNING


def test_workers_that_the_training_waits_for_are_robbed_as_well():
    # 2 workers ran for 10 of 200 s and lacked a core for 90, 45 % each. Others used 390 s, the loop 60, the other 5.
    finding = found(counted(0.0, others_s=390.0, workers=2, workers_delay=0.9))
    assert finding.severity is Severity.WARNING
    assert number(finding, "loader worker without a core for others").value == pytest.approx(45 * 390 / 455)
    clear(counted(0.0, others_s=390.0, workers=2, workers_delay=0.0))


def test_what_a_quota_holds_back_is_not_told_apart():
    held = {"cpu_periods": 100, "cpu_throttled_periods": 50}
    reply = ask_trial(
        RULE,
        forward=1.0,
        quantities=QUIET
        | held
        | {"loop_cpu_share": 0.5, "loop_run_delay_share": 0.5, "process_run_delay_share": 0.5, "other_cpu_s": 50.0},
        facts=CORES,
    )
    assert "computing thread without a core for others" not in {item.metric for item in found(reply).evidence}
    assert found(reply).severity is Severity.INFO


def test_a_device_with_work_queued_goes_on_without_the_thread():
    given = QUIET | {
        "loop_cpu_share": 0.5,
        "loop_run_delay_share": 0.5,
        "process_run_delay_share": 0.3,
        "other_cpu_s": 100.0,
    }
    fed = {"device": "cuda:0", "forward": 1.0, "quantities": given, "facts": CORES}
    clear(ask_trial(RULE, **fed))
    dry = {"starved": 1.0, "borders_idle": 6.0}
    assert found(ask_trial(RULE, **fed, columns=dry)).severity is Severity.WARNING
