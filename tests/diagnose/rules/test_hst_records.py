"""HST001, HST003, HST005, HST006, HST007 and XFR002, OPT003 on a run's records."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.hst001_launch_bound import LaunchBound
from perf_diagnostics.diagnose.rules.hst003_allocation_churn import AllocationChurn
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.rules.opt003_optimizer_synchronises import OptimizerSynchronises
from perf_diagnostics.diagnose.rules.xfr002_pageable_copies import PageableCopies
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.records import Phase
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

GPU = {"device": "cuda:0"}


def steps_with(marked, extra_s, column, *, where="other", **trial):
    """Steps of 0.1 s; those marked take ``extra_s`` more in one phase, and ``column`` says so."""
    extra = np.where(marked, extra_s, 0.0) * 1e9
    phase = {} if where == "other" else {f"host_{where}_ns": extra + (1e8 if where == "forward" else 0)}
    columns = {"wall_ns": 1e8 + extra, "host_forward_ns": 1e8} | phase | column
    return {"steps": len(extra), "columns": columns} | trial


# -- HST001


def launching(*, idle=6, host=1.0, lead=0.0, **trial):
    """A step of 1 s of compute on a device, whose queue is empty at ``idle`` of 6 borders."""
    return ask_trial(
        LaunchBound(),
        **GPU,
        forward=0.4,
        backward=0.4,
        optimizer=0.2,
        host={Phase.FORWARD: 0.4 * host, Phase.BACKWARD: 0.4 * host, Phase.OPTIMIZER: 0.2 * host},
        columns={"borders_idle": idle, "host_lead_ns": lead * 1e9, "starved": float(idle > 3)},
        **trial,
    )


def test_an_empty_queue_and_equal_clocks_are_launch_bound():
    finding = found(launching())
    assert finding.severity is Severity.WARNING
    assert {"compile_mode": "reduce-overhead"} in changes(finding)
    assert number(finding, "borders with an empty queue").value == 100


def test_a_full_queue_a_lagging_device_or_a_fast_host_is_not():
    clear(launching(idle=0))
    clear(launching(lead=0.5))  # the device ends half a step after the host
    clear(launching(host=0.5))  # the host queues in half the time the device takes


def test_a_device_that_waits_for_data_is_not_launch_bound():
    clear(
        ask_trial(LaunchBound(), **GPU, data_wait=0.95, forward=0.05, columns={"borders_idle": 6, "host_lead_ns": 0.0})
    )


def test_launching_is_a_devices_matter_and_needs_its_queue():
    assert isinstance(missing(ask_trial(LaunchBound())), NotApplicable)
    assert missing(ask_trial(LaunchBound(), **GPU, without=["borders_idle"])).signal == "borders_idle"


# -- HST003

EVERY_5TH = np.arange(100) % 5 == 4


def test_steps_that_allocate_cost_what_they_take_beyond_the_others():
    # 20 of 100 steps take 0.1 s more: 2 of 12 s.
    trial = steps_with(EVERY_5TH, 0.1, {"device_allocs": np.cumsum(EVERY_5TH)}, **GPU)
    finding = found(ask_trial(AllocationChurn(), **trial))
    assert finding.severity is Severity.CRITICAL
    assert number(finding, "lost in these steps").value == pytest.approx(100 * 2 / 12, rel=0.02)


def test_allocating_in_every_step_is_a_fault_of_unknown_cost():
    finding = found(ask_trial(AllocationChurn(), **GPU, columns={"device_allocs": np.arange(100)}))
    assert finding.severity is Severity.WARNING and finding.recoverable is None


def test_cheap_or_rare_allocations_are_no_churn():
    cheap = found(
        ask_trial(AllocationChurn(), **steps_with(EVERY_5TH, 0.0, {"device_allocs": np.cumsum(EVERY_5TH)}, **GPU))
    )
    assert cheap.severity is Severity.INFO
    clear(ask_trial(AllocationChurn(), **GPU, columns={"device_allocs": 7.0}))


def test_without_counters_allocation_is_unchecked():
    assert missing(ask_trial(AllocationChurn(), **GPU)).signal == "device_allocs"


# -- HST005

EVERY_3RD = np.arange(99) % 3 == 0


def collecting(extra_s, **trial):
    return ask_trial(
        CollectorPauses(), **steps_with(EVERY_3RD, extra_s, {"gc_ns": np.where(EVERY_3RD, extra_s * 1e9, 0)}, **trial)
    )


def test_pauses_are_graded_by_their_share_and_belong_to_a_phase():
    # Three steps of 0.1 s with one pause of 0.15 s: a third of the time.
    finding = found(collecting(0.15))
    assert finding.severity is Severity.CRITICAL
    assert finding.claims == {"other": pytest.approx(1 / 3, rel=0.01)}
    assert {"freeze_gc": True} in changes(finding)
    assert finding.recoverable.low == pytest.approx(0.8 / 3, rel=0.1)
    assert found(collecting(0.01)).severity is Severity.WARNING  # 0.01 of 0.31 s


def test_short_pauses_are_clear_and_one_long_one_is_mentioned():
    clear(collecting(0.001))
    clear(collecting(0.0))
    single = np.zeros(100)
    single[50] = 1e8
    assert found(ask_trial(CollectorPauses(), forward=0.1, columns={"gc_ns": single})).severity is Severity.INFO


def test_a_full_queue_hides_pauses():
    gc = {"gc_ns": 0.2e9}
    clear(ask_trial(CollectorPauses(), **GPU, forward=1.0, columns=gc))
    found(ask_trial(CollectorPauses(), **GPU, forward=1.0, columns=gc | {"starved": 1.0}))
    assert missing(ask_trial(CollectorPauses())).signal == "gc_ns"


def test_the_collector_and_not_the_time_outside_is_the_verdict():
    """Collections lie outside of the phases; naming that time alone would be half of the truth."""
    marked = np.arange(99) % 3 == 0
    trial = steps_with(marked, 0.3, {"gc_ns": np.where(marked, 3e8, 0)})
    diagnosis = diagnose(run_of(trial_of(**trial)))
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "HST005"
    first = next(f for f in diagnosis.findings if f.code == "HST005")
    assert "HST006" in first.explains
    assert not {"STB002", "STB004"} & {f.code for f in diagnosis.findings}


def test_a_pause_is_mentioned_for_its_length_only_if_anybody_would_notice():
    """One pause of twice a step in a thousand steps: of 1 ms (0.5 ms steps) and of 20 ms (10 ms steps)."""

    def pausing(step_s):
        pauses = np.zeros(1000)
        pauses[500] = 2 * step_s * 1e9
        return ask_trial(CollectorPauses(), forward=step_s, steps=1000, columns={"gc_ns": pauses})

    clear(pausing(0.0005))
    assert found(pausing(0.01)).severity is Severity.INFO


# -- HST006


@pytest.mark.parametrize(
    ("other", "severity"), [(0.05, None), (0.0, None), (0.15, Severity.WARNING), (0.4, Severity.CRITICAL)]
)
def test_time_outside_of_the_phases_is_graded(other, severity):
    reply = ask_trial(TimeOutsidePhases(), forward=1 - other, other=other, noise=0.02)
    if severity is None:
        clear(reply)
    else:
        assert found(reply).severity is severity


def test_the_lines_of_a_plain_loop_are_no_fault():
    # 0.02 ms of 0.1 ms is 20 %, and what any loop takes; 0.06 ms of 0.3 ms is the same share, and more than that.
    clear(ask_trial(TimeOutsidePhases(), forward=80e-6, other=20e-6))
    assert found(ask_trial(TimeOutsidePhases(), forward=240e-6, other=60e-6)).severity is Severity.CRITICAL


def test_what_of_it_computes_is_said_where_it_is_sure():
    def outside(cpu):  # 0.6 s of compute, 0.4 s outside; the thread computed so long in all
        columns = {"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": 0}
        return found(ask_trial(TimeOutsidePhases(), forward=0.6, other=0.4, columns=columns)).summary

    assert "nearly all of it computing" in outside(1.0)
    assert "0 % of it surely computing" in outside(0.6)
    assert "computing" not in found(ask_trial(TimeOutsidePhases(), forward=0.6, other=0.4)).summary


def test_where_others_had_the_processors_its_cpu_time_tells_no_waiting():
    def outside(computed):  # of 0.4 s outside of the phases and 0.6 s in them
        columns = {"thread_cpu_ns": computed * 1e9, "data_wait_cpu_ns": 0}
        return found(ask_trial(TimeOutsidePhases(), forward=0.6, other=0.4, columns=columns)).summary

    assert "perhaps waiting" in outside(0.6)
    assert "cannot be told" in outside(0.3)  # for 0.3 s of the phases it surely did not run


def test_on_the_cpu_work_in_transfer_is_work_on_batches():
    # 0.3 s of transfer and 0.1 s of other in a step of 1 s; there is nothing to copy.
    finding = found(ask_trial(TimeOutsidePhases(), forward=0.6, transfer=0.3, other=0.1, noise=0.02))
    assert finding.severity is Severity.CRITICAL
    assert "30 % lie in the transfer of batches" in finding.summary
    assert "Move preparation of batches" in finding.remedies[0].says
    assert finding.claims == {"other": pytest.approx(0.1, abs=0.02), "transfer": pytest.approx(0.3, abs=0.02)}
    assert (
        found(ask_trial(TimeOutsidePhases(), forward=0.6, transfer=0.1, other=0.3)).remedies[0].says.startswith("Log")
    )


def test_on_a_device_transfer_is_copying():
    clear(ask_trial(TimeOutsidePhases(), device="cuda:0", forward=0.65, transfer=0.3, other=0.05))
    clear(ask_trial(TimeOutsidePhases(), forward=0.95, transfer=0.02, other=0.03))


def test_work_in_transfer_that_computes_is_told_from_waiting():
    def outside(cpu):  # 0.6 s of compute, 0.4 s of transfer; the thread computed so long in all
        columns = {"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": 0}
        return found(ask_trial(TimeOutsidePhases(), forward=0.6, transfer=0.4, columns=columns)).summary

    assert "nearly all of it computing" in outside(1.0)
    assert "0 % of it surely computing" in outside(0.6)


def test_a_loop_without_phases_has_no_time_outside_of_them():
    everything = [f"host_{phase}_ns" for phase in ("data_wait", "transfer", "forward", "backward", "optimizer")]
    missing(ask_trial(TimeOutsidePhases(), without=everything))


# -- HST007


def test_steps_that_compile_cost_what_they_take_beyond_the_others():
    marked = np.arange(100) % 20 == 10
    finding = found(
        ask_trial(Recompiles(), **steps_with(marked, 1.0, {"graphs": 3 + np.cumsum(marked)}, where="forward"))
    )
    # 5 compilations of 1 s in 10 + 5 s.
    assert finding.severity is Severity.CRITICAL
    assert number(finding, "lost in steps that compile").value == pytest.approx(100 / 3, rel=0.2)
    assert set(finding.claims) == {"forward"}


def test_a_compilation_in_every_step_is_a_warning_without_a_price():
    finding = found(ask_trial(Recompiles(), columns={"graphs": np.arange(100)}))
    assert finding.severity is Severity.WARNING and finding.recoverable is None


def test_no_new_graph_is_clear_and_no_counter_is_unchecked():
    clear(ask_trial(Recompiles(), columns={"graphs": 3}))
    clear(ask_trial(Recompiles(), columns={"graphs": 0}))
    assert missing(ask_trial(Recompiles())).signal == "graphs"


# -- XFR002 and OPT003


def test_pageable_copies_are_only_ever_mentioned():
    finding = found(ask_trial(PageableCopies(), **GPU, transfer=0.5, forward=0.5, facts={"pin_memory": False}))
    assert finding.severity is Severity.INFO and changes(finding) == [{"pin_memory": True}]
    clear(ask_trial(PageableCopies(), **GPU, transfer=0.001, forward=1.0, facts={"pin_memory": False}))
    clear(ask_trial(PageableCopies(), **GPU, transfer=0.5, facts={"pin_memory": True}))
    assert missing(ask_trial(PageableCopies(), **GPU)).signal == "pin_memory"
    assert isinstance(missing(ask_trial(PageableCopies())), NotApplicable)


def test_the_scaler_waits_unless_the_optimizer_is_fused():
    def updating(implementation, *, precision="float16", starved=1.0, facts=None):
        return ask_trial(
            OptimizerSynchronises(),
            **GPU,
            forward=0.8,
            optimizer=0.2,
            settings={"precision": precision},
            columns={"starved": starved},
            facts={"optimizer_implementation": implementation} if facts is None else facts,
        )

    finding = found(updating("foreach"))
    assert finding.severity is Severity.INFO
    assert {"optimizer_implementation": "fused"} in changes(finding)
    clear(updating("fused"))
    clear(updating("foreach", starved=0.0))
    assert missing(updating("foreach", precision="float32")).signal == "synchronisations"
    assert missing(updating("", facts={})).signal == "optimizer_implementation"


@pytest.mark.parametrize("rule", [LaunchBound(), AllocationChurn(), PageableCopies()], ids=lambda rule: rule.code)
def test_a_trace_and_a_run_share_name_and_thresholds(rule):
    """One fault, however it was measured."""
    twin = next(other for other in TRACE_RULES if other.code == rule.code)
    assert twin.name == rule.name and twin.family is rule.family
    shared = set(vars(rule)) & set(vars(twin))
    assert shared
    assert {name: getattr(twin, name) for name in shared} == {name: getattr(rule, name) for name in shared}


# -- a machine with other users


def between_phases(other_s, *, ran=1.0):
    """Steps of 0.1 s in forward and ``other_s``; the loop's thread ran in this part of forward."""
    wall = 1e8 + np.asarray(other_s) * 1e9
    computed = ran * 1e8 + np.asarray(other_s) * 1e9
    columns = {"wall_ns": wall, "host_forward_ns": 1e8, "thread_cpu_ns": computed, "data_wait_cpu_ns": 0}
    return ask_trial(TimeOutsidePhases(), steps=len(wall), columns=columns)


def test_time_slices_lost_between_the_phases_are_not_the_loops():
    """0.08 s in every third step: 21 % of all time outside of the phases."""
    spikes = np.where(np.arange(120) % 3 == 0, 0.08, 0.001)
    assert found(between_phases(spikes)).severity is Severity.CRITICAL  # nobody else had the processor
    clear(between_phases(spikes, ran=0.5))  # half of forward somebody else had it
    assert found(between_phases(np.full(120, 0.03), ran=0.5)).severity is Severity.CRITICAL  # every step has it


# -- steps that are compared with those around them


def test_a_machine_with_two_speeds_hides_no_cost_and_makes_none():
    """Every eighth of 160 steps of 0.10 or, in the second half, 0.14 s takes 0.03 s more: 2.9 % of all time."""
    at, base = np.arange(160), np.where(np.arange(160) < 80, 1e8, 1.4e8)
    marked = at % 8 == 7
    grown = {"device_allocs": np.cumsum(marked)}
    for extra, share in ((0.0, 0.0), (0.03e9, 0.03e9 / 8 / 1.2375e8)):  # mean step: (0.10 + 0.14) / 2 + 0.03 / 8 s
        wall = base + np.where(marked, extra, 0.0)
        columns = {"wall_ns": wall, "device_forward_ns": wall} | grown
        finding = found(ask_trial(AllocationChurn(), steps=160, columns=columns, **GPU))
        assert number(finding, "lost in these steps").value == pytest.approx(100 * share, abs=0.2)  # whole cycles only
