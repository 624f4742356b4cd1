"""HST001, HST003, HST005, HST006, HST007 and XFR002, OPT003 on a run's records."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.hst001_launch_bound import LaunchBound
from perf_diagnostics.diagnose.rules.hst003_allocation_churn import AllocationChurn
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.hst006_time_outside_phases import TimeOutsidePhases
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.rules.opt003_optimizer_synchronises import OptimizerSynchronises
from perf_diagnostics.diagnose.rules.xfr002_pageable_copies import PageableCopies
from perf_diagnostics.diagnose.trace.rules import TRACE_RULES
from perf_diagnostics.records import Phase, Series
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


_EACH_SECOND = {"start_ns": np.arange(100) * 1_000_000_000}


def launching(*, idle=6, host=1.0, lead=0.0, **trial):
    """A step of 1 s of compute on a device, whose queue is empty at ``idle`` of 6 borders."""
    return ask_trial(
        LaunchBound(),
        **GPU,
        forward=0.4,
        backward=0.4,
        optimizer=0.2,
        host={Phase.FORWARD: 0.4 * host, Phase.BACKWARD: 0.4 * host, Phase.OPTIMIZER: 0.2 * host},
        columns={"borders_idle": idle, "host_lead_ns": lead * 1e9, "starved": float(idle > 3)} | _EACH_SECOND,
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


def sampled(percents):
    """The driver's utilisation every 5 s of 100 steps of 1 s."""
    values = np.resize(np.asarray(percents, dtype=float), 20)
    series = Series("gpu_utilization", "%", "made up", np.arange(20) * 5_000_000_000, values)
    return {"series": (series,), "quantities": {"steps_began_s": 0.0}}


@pytest.mark.parametrize("given", [{"idle": 4}, {"lead": 0.15}])
def test_where_no_kernel_is_resident_the_tail_of_one_long_kernel_says_nothing_for_the_device(given):
    """As AdamW's: it runs on while the host is at the next step's first layers."""
    clear(launching(**given, **sampled([95])))
    finding = found(launching(**given, **sampled([35, 45])))
    assert finding.severity is Severity.WARNING
    assert number(finding, "time with a kernel on the device").value == pytest.approx(40)
    assert finding.recoverable.high == pytest.approx(0.6, abs=0.05)
    assert "a kernel was on the device for 40 % of the time only" in finding.summary


def test_a_device_that_idles_outside_of_these_phases_is_not_launch_bound():
    """It rests for 60 % of the time; the loader alone takes 55 %."""
    columns = {"borders_idle": 6, "host_lead_ns": 0.0, "starved": 1.0} | _EACH_SECOND
    steps = {"data_wait": 0.55, "forward": 0.45, "host": {Phase.FORWARD: 0.45}, "columns": columns}
    assert found(ask_trial(LaunchBound(), **GPU, **steps)).severity is Severity.WARNING
    answer = found(ask_trial(LaunchBound(), **GPU, **steps, **sampled([40])))
    assert answer.severity is Severity.INFO  # it may be 5 % of the step, and no more than all of it


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


def test_what_a_collection_leaves_cold_may_be_won_as_well():
    # Three steps of 0.1 s with one pause of 0.15 s, after which forward takes 0.03 s longer: 0.18 of 0.48 s.
    columns = {"host_forward_ns": 1e8 + np.where(EVERY_3RD, 0.03e9, 0)}
    columns["wall_ns"] = columns["host_forward_ns"] + np.where(EVERY_3RD, 0.15e9, 0)
    columns["gc_ns"] = np.where(EVERY_3RD, 0.15e9, 0)
    finding = found(ask_trial(CollectorPauses(), steps=99, columns=columns))
    assert finding.recoverable.high == pytest.approx(0.18 / 0.48, rel=0.02)
    assert finding.recoverable.low == pytest.approx(0.8 * 0.15 / 0.48, rel=0.02)
    # In every step there is nothing to compare with: the pauses alone.
    columns = {"host_forward_ns": 1e8, "wall_ns": 2e8, "gc_ns": 1e8}
    assert found(ask_trial(CollectorPauses(), columns=columns)).recoverable.high == pytest.approx(0.5, rel=0.01)


def pausing_at(steps, cpu, *, robbed=0.8, **trial):
    """100 steps of 0.1 s, in three (or so) of which the collector pauses 0.9 s of wall time.

    In these the thread ran for ``cpu`` s; the scheduler counted that it had no core for ``robbed`` of the time.
    """
    marked = np.isin(np.arange(100), steps)
    ran = np.where(marked, cpu, 0.02)
    given = {"process_cpu_s": ran.sum(), "workers_cpu_s": 0.0, "other_cpu_s": 9.9, "loop_cpu_share": 0.1}
    counted = {"loop_run_delay_share": robbed, "process_run_delay_share": robbed}
    columns = {"thread_cpu_ns": ran * 1e9, "data_wait_cpu_ns": 0, "gc_ns": np.where(marked, 0.9e9, 0.0)}
    columns |= {"wall_ns": np.where(marked, 1e9, 1e8), "host_forward_ns": 1e8}
    facts = {"threads": 1, "cpu_count": 1, "num_workers": 0, "cpu_window_s": 10 + 0.9 * marked.sum()}
    return ask_trial(CollectorPauses(), steps=100, columns=columns, facts=facts, quantities=given | counted)


def test_a_collector_computes_no_longer_than_its_thread_runs():
    # Five pauses of 0.9 s in 14.5 s of wall time are 31 %; the thread ran for 0.18 s in each of these: 6.2 % at most.
    at = [10, 27, 48, 61, 90]
    alone, robbed = found(pausing_at(at, 0.95, robbed=0.0)), found(pausing_at(at, 0.18))
    assert number(robbed, "collector's pauses").value == number(alone, "collector's pauses").value  # as it was seen
    assert alone.recoverable.value == pytest.approx(0.9 * 4.5 / 14.5, rel=0.1)
    assert robbed.recoverable.value == pytest.approx(0.9 * 0.9 / 14.5, rel=0.15)
    # Others had the thread's core for 0.8 of all time, and not of the pauses only: alone 31 % might be won as well.
    assert robbed.recoverable.high == pytest.approx(4.5 / 14.5, rel=0.02)
    assert "the collector itself computed for 6.2 % at most" in robbed.summary
    assert "Others had its core" not in alone.summary


def test_a_long_pause_in_most_steps_is_one_that_is_called_for():
    every = found(ask_trial(CollectorPauses(), columns={"host_forward_ns": 1e8, "wall_ns": 2e8, "gc_ns": 1e8}))
    assert every.remedies[0].says.startswith("Most steps have a long pause: if gc.collect() is called in the loop")
    assert {"freeze_gc": True} in changes(every)
    # Young collections come in each step as well: 4 ms in one of 0.1 s.
    young = found(ask_trial(CollectorPauses(), columns={"host_forward_ns": 1e8, "wall_ns": 1.04e8, "gc_ns": 4e6}))
    assert "Most steps" not in str(young.remedies)


def test_from_one_or_two_pauses_no_gain_is_claimed():
    for at in ([50], [20, 70]):
        few = found(pausing_at(at, 0.95, robbed=0.0))
        assert few.recoverable is None
        assert "how often one comes is not known" in few.summary
    assert found(pausing_at([20, 50, 70], 0.95, robbed=0.0)).recoverable is not None


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
    assert "30 % lies in the transfer of batches" in finding.summary
    assert "Move preparation of batches" in finding.remedies[0].says
    assert finding.claims == {"other": pytest.approx(0.1, abs=0.02), "transfer": pytest.approx(0.3, abs=0.02)}
    loaded = {"forward": 0.6, "transfer": 0.1, "other": 0.3, "facts": {"num_workers": 0}, "data_wait": 1e-6}
    assert found(ask_trial(TimeOutsidePhases(), **loaded)).remedies[0].says.startswith("If it is logging")


def test_remedies_are_about_what_the_loop_has():
    """Workers are advised where a loader was seen; without one the batches are made outside of the phases."""

    def outside(**trial):
        return found(ask_trial(TimeOutsidePhases(), forward=0.6, other=0.4, **trial))

    with_loader = outside(data_wait=1e-6, facts={"num_workers": 0})
    assert any("into the loader's workers" in remedy.says for remedy in with_loader.remedies)
    assert with_loader.recoverable.low == pytest.approx(0.3 * 0.4, rel=0.05)
    assert "No loader" not in with_loader.summary

    without = outside(without=["host_data_wait_ns"])
    assert not any("the loader's workers" in remedy.says for remedy in without.remedies)
    assert "mark the loop's parts" in without.remedies[0].says
    assert "No loader was seen: making the batches is part of that." in without.summary
    assert without.recoverable.low == 0.0 and without.recoverable.high == pytest.approx(0.4, rel=0.05)

    # Batches that are worked on, and no loader's workers that are known: no device to move it to, either.
    moved = found(ask_trial(TimeOutsidePhases(), forward=0.6, transfer=0.4))
    assert moved.remedies[0].says == "Move preparation of batches out of the loop."


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
    # Half of forward somebody else had it: 0.002 of 0.101 + 0.079 / 3 s in most steps, and all of it is told.
    told = found(between_phases(spikes, ran=0.5))
    assert told.severity is Severity.INFO
    assert number(told, "outside of all phases").value == pytest.approx(100 * 0.0273 / 0.1273, rel=0.01)
    assert told.recoverable.low < 0.01 < told.recoverable.high
    assert found(between_phases(np.full(120, 0.03), ran=0.5)).severity is Severity.CRITICAL  # every step has it


def counted(*, cpu, delay, others):
    """100 steps of 1 s on one core, 0.4 s of each in no phase; the scheduler counted the delay."""
    given = {"process_cpu_s": 100 * cpu, "workers_cpu_s": 0.0, "other_cpu_s": 100 * others, "loop_cpu_share": cpu}
    return ask_trial(
        TimeOutsidePhases(),
        forward=0.6,
        other=0.4,
        columns={"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": 0},
        facts={"num_workers": 0, "threads": 1, "cpu_count": 1},
        quantities=given | {"loop_run_delay_share": delay, "process_run_delay_share": delay / (cpu + delay)},
    )


def test_time_for_which_others_may_have_had_the_core_is_only_mentioned():
    # 0.4 s outside; the thread ran for 0.6 s, which is all of forward, and lacked the core for 0.38.
    finding = found(counted(cpu=0.6, delay=0.38, others=0.38))
    assert finding.severity is Severity.INFO
    assert "Others had the cores meanwhile: without them 3.2 % to 40 % of a step would lie there" in finding.summary
    assert finding.recoverable.low < 0.01  # 30 % of 0.02 / 0.62
    # Delayed in forward, where it ran for 0.22 of 0.6 s: what lies outside is the loop's.
    own = found(counted(cpu=0.22, delay=0.38, others=0.38))
    assert own.severity is Severity.CRITICAL and "Others had the cores meanwhile" not in own.summary
    assert "cannot be told" in own.summary  # whether it computes


def test_a_small_or_no_delay_leaves_the_time_outside_the_loops_own():
    # 0.1 s of 0.4 may be others': 0.3 of 0.9 s are the loop's at least.
    finding = found(counted(cpu=0.6, delay=0.1, others=0.1))
    assert finding.severity is Severity.CRITICAL and "without them 33 % to 40 % of a step" in finding.summary
    assert "Others had" not in found(counted(cpu=0.6, delay=0.0, others=0.4)).summary  # measured: nobody took any


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
