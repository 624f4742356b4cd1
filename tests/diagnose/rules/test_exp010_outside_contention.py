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
