"""INP002 to INP008: what loading consists of, how many workers it takes, and when the wait comes."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.inp002_slow_batches import SlowBatches
from perf_diagnostics.diagnose.rules.inp003_too_few_workers import TooFewWorkers
from perf_diagnostics.diagnose.rules.inp004_bursty_loader import BurstyLoader
from perf_diagnostics.diagnose.rules.inp005_epoch_restart import EpochRestart
from perf_diagnostics.diagnose.rules.inp006_cold_cache import ColdCache
from perf_diagnostics.diagnose.rules.inp008_worker_hand_over import WorkerHandOver
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

CORES = {"threads": 2, "cpu_count": 8}


def loading(rule, wait, *, cpu=None, workers=0, workers_cpu_s=None, facts=None, **trial):
    """100 steps of 1 s that wait for ``wait`` s; ``cpu`` of the wait is computing, the workers computed so long."""
    return ask_trial(
        rule,
        data_wait=wait,
        forward=1 - wait,
        columns={} if cpu is None else {"data_wait_cpu_ns": wait * cpu * 1e9},
        facts=CORES | {"num_workers": workers} | (facts or {}),
        quantities={} if workers_cpu_s is None else {"workers_cpu_s": workers_cpu_s},
        **trial,
    )


def waiting_for(rule, waits, **trial):
    """Steps of 0.1 s of training, and these waits, in s."""
    ns = np.asarray(waits) * 1e9
    columns = {"host_data_wait_ns": ns, "host_forward_ns": 1e8, "wall_ns": ns + 1e8} | trial.pop("columns", {})
    return ask_trial(rule, steps=len(ns), columns=columns, **trial)


# -- INP001, with what its workers used


def test_the_cpu_time_of_running_workers_tells_computing_from_waiting():
    # 2 workers, 100 s: 190 of 200 s computing; or 20 of 200 s, with cores to spare.
    assert "nearly all of it computing" in found(loading(InputBound(), 0.5, workers=2, workers_cpu_s=190.0)).summary
    assert "most of it waiting" in found(loading(InputBound(), 0.5, workers=2, workers_cpu_s=20.0)).summary


def test_workers_that_may_have_waited_for_a_core_are_not_called_waiting():
    """4 workers and 2 computing threads on 2 cores: little CPU time each, whatever they do."""
    crowded = {"threads": 2, "cpu_count": 2}
    assert (
        "part computing" in found(loading(InputBound(), 0.5, workers=4, workers_cpu_s=100.0, facts=crowded)).summary
    )  # 100 of 400 s
    # As crowded, but of 2 x 100 s of the cores 95 were left idle: then it was not the cores they waited for.
    idle = {"process_cpu_s": 80.0, "other_cpu_s": 5.0, "workers_cpu_s": 20.0}
    reply = ask_trial(InputBound(), data_wait=0.5, forward=0.5, facts=crowded | {"num_workers": 4}, quantities=idle)
    assert "most of it waiting" in found(reply).summary


def test_a_loop_that_may_have_waited_for_a_core_is_not_called_waiting():
    """One core, of which others used 75 s in 100: in half of each second the model computed with a quarter of it."""

    def kind(cpu, others_s):
        own = 0.5 * cpu + 0.125
        return found(
            ask_trial(
                InputBound(),
                data_wait=0.5,
                forward=0.5,
                columns={"data_wait_cpu_ns": 0.5e9 * cpu, "thread_cpu_ns": 1e9 * own},
                facts={"num_workers": 0, "threads": 1, "cpu_count": 1},
                quantities={"process_cpu_s": 100 * own, "workers_cpu_s": 0.0, "other_cpu_s": others_s},
            )
        ).summary

    assert "part computing" in kind(0.2, 75.0)  # more than 40 % of the quarter that it got
    assert "most of it waiting" in kind(0.05, 75.0)  # less
    assert "most of it waiting" in kind(0.2, 5.0)  # nobody had the core: it was not that


# -- INP002


def test_loading_is_said_to_compute_or_to_wait():
    computes, waits = found(loading(SlowBatches(), 0.5, cpu=0.95)), found(loading(SlowBatches(), 0.5, cpu=0.1))
    assert "the loader computes" in computes.summary and computes.severity is Severity.INFO
    assert "waiting for disk, network or locks" in waits.summary
    assert number(waits, "computing within the time of loading").value == pytest.approx(10, abs=0.1)


def test_between_the_two_nothing_is_said_nor_where_nothing_waits():
    clear(loading(SlowBatches(), 0.5, cpu=0.55))
    clear(loading(SlowBatches(), 0.02, cpu=1.0))


def test_what_workers_do_is_not_the_loops_own_cpu_time():
    reply = missing(loading(SlowBatches(), 0.5, cpu=0.1, workers=2))
    assert reply.signal == "workers_cpu_s"
    found(loading(SlowBatches(), 0.5, cpu=0.1, workers=2, workers_cpu_s=0.0))  # measured zero: they wait


def counted(rule, *, delay, wait_cpu, cpu, others_s):
    """100 steps of 1 s on one core, 0.5 of it waiting; the thread's times are parts of the step."""
    given = {"process_cpu_s": 100 * cpu, "workers_cpu_s": 0.0, "other_cpu_s": others_s}
    given |= {"loop_cpu_share": cpu, "loop_run_delay_share": delay}
    return ask_trial(
        rule,
        data_wait=0.5,
        forward=0.5,
        columns={"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": wait_cpu * 1e9},
        facts={"num_workers": 0, "threads": 1, "cpu_count": 1},
        quantities=given | {"process_run_delay_share": delay / (cpu + delay) if delay else 0.0},
    )


def test_time_without_a_core_is_neither_computing_nor_waiting():
    # A quarter of the core throughout: 0.125 of 0.5 s computing, 0.375 without a core.
    finding = found(counted(SlowBatches(), delay=0.75, wait_cpu=0.125, cpu=0.25, others_s=75.0))
    assert "25 % of it computing and 75 % without a core: the loader computes" in finding.summary
    assert number(finding, "without a core within it").value == pytest.approx(75)
    # Measured zero: what it did not compute it was blocked.
    blocked = found(counted(SlowBatches(), delay=0.0, wait_cpu=0.125, cpu=0.25, others_s=75.0))
    assert "the rest is waiting for disk, network or locks" in blocked.summary
    assert number(blocked, "without a core within it").value == 0.0


# -- INP003


def test_no_workers_are_proposed_for_a_wait_that_others_caused():
    # 0.5 s of waiting, 0.48 of it without a core that others had: 0.02 of 0.52 s would be left.
    reply = clear(counted(TooFewWorkers(), delay=0.48, wait_cpu=0.02, cpu=0.52, others_s=48.0))
    assert "others had the cores" in reply.summary
    assert found(counted(TooFewWorkers(), delay=0.48, wait_cpu=0.02, cpu=0.52, others_s=0.0))


def test_workers_are_predicted_to_hide_all_but_the_rest_of_the_step():
    # 0.6 s of waiting a batch, 0.4 s of training: 2 keep up, 3 are proposed; then the step takes 0.4 s.
    finding = found(loading(TooFewWorkers(), 0.6, cpu=0.1))
    assert number(finding, "workers that would keep up").value == 2
    assert changes(finding) == [{"num_workers": 3, "persistent_workers": True}]
    assert "a step would take 400 ms at best" in finding.summary
    assert finding.recoverable.high == pytest.approx(0.6, abs=0.01)


def test_more_workers_than_free_cores_will_not_fix_it():
    """One worker that computes on two cores that both train: it realised none of what the wait promised."""
    finding = found(loading(TooFewWorkers(), 0.79, workers=1, workers_cpu_s=95.0, facts={"threads": 2, "cpu_count": 2}))
    assert "more workers will not fix it" in finding.summary
    assert changes(finding) == [] and finding.recoverable is None


def test_enough_workers_are_clear_and_unknown_ones_unchecked():
    # 8 workers, a step of 1 s of which 10 % is waited: a batch takes one of them 8 s, 9 would keep up.
    assert number(found(loading(TooFewWorkers(), 0.1, workers=8)), "workers that would keep up").value == 9
    clear(loading(TooFewWorkers(), 0.01, workers=8))
    assert missing(ask_trial(TooFewWorkers(), data_wait=0.5, forward=0.5)).signal == "num_workers"


def test_no_worker_is_proposed_where_handing_over_takes_longer():
    # 0.1 ms for a batch, against 0.3 ms to take it over; and 2 workers whose batches come every 1 ms.
    reply = clear(ask_trial(TooFewWorkers(), data_wait=1e-4, forward=1e-4, facts=CORES | {"num_workers": 0}))
    assert "taking a batch over" in reply.summary
    clear(ask_trial(TooFewWorkers(), data_wait=9e-4, forward=1e-4, facts=CORES | {"num_workers": 2}))
    # 1 ms for a batch and 2 ms of training: one worker would keep up, and the step would take 2.3 ms.
    finding = found(ask_trial(TooFewWorkers(), data_wait=1e-3, forward=2e-3, facts=CORES | {"num_workers": 0}))
    assert "a step would take 2.30 ms at best" in finding.summary


# -- INP004


def turns(slow, others, *, workers=4, steps=120, jitter=0.1, seed=0):
    """Waits of which every 4th, that of the last worker, takes ``slow`` s and the others ``others`` s."""
    waits = np.where(np.arange(steps) % workers == workers - 1, slow, others)
    return waits * (1 + jitter * np.random.default_rng(seed).standard_normal(steps))


@pytest.mark.parametrize("workers", [2, 4])
def test_one_slow_worker_is_waited_for_each_round(workers):
    # A round takes w x 0.1 s and 0.2 s of waiting: 0.2 / 0.6 of the time with 4 workers, half of it with 2.
    finding = found(waiting_for(BurstyLoader(), turns(0.2, 0.002, workers=workers), facts={"num_workers": workers}))
    assert finding.severity is Severity.WARNING
    assert finding.claims["data_wait"] == pytest.approx(0.2 / (0.2 + workers * 0.1), rel=0.05)


def test_workers_that_are_all_too_slow_are_not_one_slow_worker():
    rng = np.random.default_rng(3)
    clear(waiting_for(BurstyLoader(), 0.05 * rng.lognormal(0, 0.5, 120), facts={"num_workers": 4}))
    clear(waiting_for(BurstyLoader(), turns(0.001, 0.001), facts={"num_workers": 4}))


def test_workers_are_counted_anew_in_each_pass():
    """Passes of 30 batches and 4 workers: 30 is no multiple of 4, so the slow one shifts through the trial."""
    step = np.arange(120)
    waits = np.where(step % 30 % 4 == 3, 0.2, 0.002)
    epoch = {"epoch": 1 + step // 30}  # the warm-up repeats the first value, and belongs to another pass
    trial = {"facts": {"num_workers": 4}, "columns": epoch, "warmup_steps": 4}
    found(waiting_for(BurstyLoader(), waits, **trial))


def test_one_worker_has_no_others_and_unknown_workers_are_unchecked():
    assert isinstance(missing(waiting_for(BurstyLoader(), turns(0.2, 0), facts={"num_workers": 1})), NotApplicable)
    assert missing(waiting_for(BurstyLoader(), turns(0.2, 0))).signal == "num_workers"


# -- INP005

PASSES = np.arange(120) // 12
FIRST = np.diff(PASSES, prepend=0) != 0
RESTARTS = {"num_workers": 1, "persistent_workers": False}


def test_a_wait_at_the_begin_of_each_pass_is_the_loaders_restart():
    # 12 steps of 0.1 s, and 0.4 s more before the first: 0.4 of 1.6 s.
    finding = found(waiting_for(EpochRestart(), np.where(FIRST, 0.4, 0.0), columns={"epoch": PASSES}, facts=RESTARTS))
    assert finding.severity is Severity.WARNING
    assert finding.claims == {"data_wait": pytest.approx(0.25)}
    assert changes(finding) == [{"persistent_workers": True}]


def test_workers_that_stay_are_not_told_to():
    kept = RESTARTS | {"persistent_workers": True}
    assert (
        changes(found(waiting_for(EpochRestart(), np.where(FIRST, 0.4, 0.0), columns={"epoch": PASSES}, facts=kept)))
        == []
    )


def test_waits_elsewhere_are_no_restart():
    clear(waiting_for(EpochRestart(), np.full(120, 0.4), columns={"epoch": PASSES}, facts=RESTARTS))
    clear(waiting_for(EpochRestart(), np.zeros(120), columns={"epoch": PASSES}, facts=RESTARTS))


def test_without_passes_there_is_no_begin_of_one():
    assert missing(waiting_for(EpochRestart(), np.zeros(120), facts=RESTARTS)).signal == "epoch"
    missing(waiting_for(EpochRestart(), np.zeros(120), columns={"epoch": 0}, facts=RESTARTS))


# -- INP006


def cold(first_wait, *, read=1e9, epoch=None):
    step = np.arange(90)
    return waiting_for(
        ColdCache(),
        np.where(step < 30, first_wait, 0.0),
        columns={"epoch": step // 30 if epoch is None else epoch},
        quantities={} if read is None else {"read_bytes": read},
    )


def test_a_first_pass_that_reads_from_disk_is_mentioned():
    finding = found(cold(0.05))  # 0.15 against 0.10 s
    assert finding.severity is Severity.INFO
    assert number(finding, "step of the first pass over later ones").value == pytest.approx(1.5)


def test_nothing_read_or_no_slower_is_no_cold_cache():
    clear(cold(0.05, read=0.0))
    clear(cold(0.02))
    assert missing(cold(0.05, read=None)).signal == "read_bytes"
    assert missing(cold(0.05, epoch=0)).signal == "epoch"


# -- INP008


def hand_over(part, **trial):
    """A step of 1 s, 0.3 s of it waiting for data, of which the loop's thread computes ``part``."""
    columns = {"data_wait_cpu_ns": 0.3e9 * part, "epoch": 0} | trial.pop("columns", {})
    return ask_trial(
        WorkerHandOver(), data_wait=0.3, forward=0.7, columns=columns, facts={"num_workers": 2}, noise=0.02, **trial
    )


def test_a_loop_that_computes_while_its_workers_load_takes_over_their_batches():
    finding = found(hand_over(0.9))
    assert finding.severity is Severity.WARNING
    assert finding.claims["data_wait"] == pytest.approx(0.27, rel=0.05)


def test_a_loop_that_waits_for_its_workers_does_not():
    clear(hand_over(0.3))
    clear(hand_over(0.0))


def test_starting_workers_is_not_taking_over_batches():
    # All of the computing lies in the first step of each pass.
    epoch = np.arange(100) // 10
    cpu = np.where(np.diff(epoch, prepend=0) != 0, 0.3e9, 0.0)
    clear(hand_over(0.0, columns={"epoch": epoch, "data_wait_cpu_ns": cpu}))


def test_without_workers_or_cpu_time_nothing_is_taken_over():
    assert isinstance(missing(ask_trial(WorkerHandOver(), facts={"num_workers": 0})), NotApplicable)
    assert missing(ask_trial(WorkerHandOver(), facts={"num_workers": 2})).signal == "data_wait_cpu_ns"


def test_a_device_waits_for_the_exposed_part_only():
    """The host waits at each pass, the device never: nothing is lost."""
    facts = TrialFacts.of(
        trial_of(device="cuda:0", columns={"epoch": np.arange(100) // 10, "host_data_wait_ns": 1e9}, facts=RESTARTS)
    )
    clear(EpochRestart().check(facts))
