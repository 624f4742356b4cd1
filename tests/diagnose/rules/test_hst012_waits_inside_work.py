"""HST012: the loop's thread is blocked inside forward, backward or the optimizer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from perf_diagnostics.diagnose.code.blocked import blocked
from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.diagnose.rules.hst012_waits_inside_work import WaitsInsideWork
from perf_diagnostics.records import Phase
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, clear, facts_of, found, missing, number
from tests.planted.made_up import robbed

RULE = WaitsInsideWork()


def loop(*, ran: float | Sequence[float], delayed: float = 0.0, own: float = 0.0, own_delayed: float = 0.0, **trial):
    """Steps of 1 s: 0.5 forward, 0.3 backward, 0.1 optimizer, 0.06 waiting for data (in which it runs) and 0.04 other.

    In parts of the step: for how long the loop's thread ``ran`` in all, and was ``delayed``, without a core; and how
    many other threads of its process ran (``own``) or were delayed, at a mean moment.
    """
    mean = float(np.mean(ran))
    process = mean + own
    late = delayed + own_delayed
    counted = {
        "loop_cpu_share": mean,
        "loop_run_delay_share": delayed,
        "process_cpu_share": process,
        "process_run_delay_share": late / (late + process),
    }
    given = {"thread_cpu_ns": np.asarray(ran) * 1e9, "data_wait_cpu_ns": 0.06e9}
    phases = {"forward": 0.5, "backward": 0.3, "optimizer": 0.1, "data_wait": 0.06, "other": 0.04}
    return (
        phases
        | trial
        | {"columns": given | trial.get("columns", {}), "quantities": counted | trial.get("quantities", {})}
    )


def ask(**trial):
    return ask_trial(RULE, **loop(**trial))


def test_a_forward_that_sleeps_for_half_of_the_step():
    # It ran for 0.46 of the step, 0.06 of it in the wait for data: 0.9 - 0.4 of its work it did not run.
    finding = found(ask(ran=0.46, facts={"num_workers": 0}))
    assert finding.severity is Severity.CRITICAL
    assert number(finding, "blocked in forward, backward and optimizer, surely").value == pytest.approx(50)
    assert number(finding, "not running in forward, backward and optimizer").value == pytest.approx(50)
    assert finding.summary.startswith("For 50 % of each step at least, the loop's thread was blocked inside forward")
    assert finding.claims == pytest.approx({"forward": 0.5 * 5 / 9, "backward": 0.5 * 3 / 9, "optimizer": 0.5 / 9})
    # If it ran in all of the 0.04 outside of the phases, it was blocked for 0.54, which leaves the rest 8 % colder.
    assert finding.recoverable.high == pytest.approx(0.54)
    assert finding.recoverable.low == pytest.approx(0.3 * 0.5)
    assert "in the loader's workers with the batch" in finding.remedies[1].says


@pytest.mark.parametrize(
    ("share", "severity"), [(0.11, Severity.WARNING), (0.24, Severity.WARNING), (0.26, Severity.CRITICAL)]
)
def test_both_sides_of_each_limit(share, severity):
    assert found(ask(ran=0.96 - share)).severity is severity
    clear(ask(ran=0.96 - 0.09))


def test_what_straddles_a_limit_is_only_mentioned():
    # 12 % on average, but some stretches of steps have hardly any.
    ran = 0.96 - np.repeat([0.02, 0.22, 0.04, 0.2, 0.02, 0.2, 0.06, 0.22, 0.02, 0.2], 10)
    finding = found(ask(ran=ran))
    assert finding.severity is Severity.INFO
    assert finding.confidence == pytest.approx(0.7 * 0.6)


def test_one_pause_of_many_steps_counts_by_all_time():
    # A tenth of the steps is blocked for 0.9 of it, which is 9 % of all time.
    ran = np.where(np.arange(100) % 10 == 9, 0.06, 0.96)
    assert number(clear(ask(ran=ran)), "blocked in forward, backward and optimizer, surely").value == pytest.approx(9)


@pytest.mark.parametrize("delayed", [0.3, 0.5, 0.6])
def test_a_thread_that_lacked_a_core_was_not_blocked(delayed):
    # It ran for 0.46 and had no core for all that it lacks, or more than that, or all but 0.2.
    reply = ask(ran=0.46, delayed=delayed)
    blocked_for = max(0.0, 50 - 100 * delayed)
    seen = found(reply) if delayed == 0.3 else clear(reply)
    assert number(seen, "blocked in forward, backward and optimizer, surely").value == pytest.approx(blocked_for)
    assert number(seen, "ready and without a core").value == pytest.approx(100 * delayed)
    if delayed == 0.5:
        assert "did not run for 50 %, had no core for 50 %" in seen.summary


def test_a_lack_of_a_core_that_fits_nowhere_else_is_no_wait():
    # Of 0.3 without a core at most 0.1 lie outside of the work: it was blocked there for 0.54 - 0.2 at most.
    assert found(ask(ran=0.46, delayed=0.3)).recoverable.high == pytest.approx(0.34)
    assert found(ask(ran=0.46, delayed=0.05)).recoverable.high == pytest.approx(0.54)


def test_threads_of_its_own_process_that_compute_meanwhile_may_be_what_it_waits_for():
    # A team of four, three of which run half of the time: it may have waited for one of them at any time.
    clear(ask(ran=0.46, own=1.5, facts={"threads": 4}))
    # A sampler that runs for 0.02 of the time hides no more than that.
    assert number(found(ask(ran=0.46, own=0.02)), "blocked in forward, backward and optimizer, surely").value == (
        pytest.approx(48)
    )


def test_a_team_that_lacks_cores_is_waited_for_as_well():
    # Another thread runs for 0.1 and has no core for 0.45: the loop's own waits at the end of each operation.
    clear(ask(ran=0.46, own=0.1, own_delayed=0.45))
    assert found(ask(ran=0.46, own=0.1, own_delayed=0.0)).severity is Severity.CRITICAL


@pytest.mark.parametrize("seed", range(6))
def test_a_healthy_loop_among_others_is_not_blocked(seed):
    # Each step loses a time slice of 0.06 s on average, all of which the scheduler counts.
    table = robbed(seed).steps[0].steady
    ran = float((table.columns["thread_cpu_ns"].sum()) / table.wall_ns.sum())
    counted = {"loop_cpu_share": ran, "loop_run_delay_share": 1 - ran, "process_run_delay_share": 1 - ran}
    seen = blocked(TrialFacts.of(robbed(seed, quantities=counted | {"process_cpu_share": ran})))
    assert seen.not_running.value > 0.1 and seen.sure.value == 0.0


def test_unread_waits_are_taken_as_run_elsewhere_for_the_most_only():
    # Without the clock around the waits its 0.46 may all lie in the work: 0.9 - 0.46 is sure, and 0.54 the most.
    facts = facts_of(**loop(ran=0.46), without=["data_wait_cpu_ns"])
    seen = blocked(facts)
    assert (seen.sure.value, seen.at_most) == pytest.approx((0.44, 0.54))


def test_a_loop_that_marks_its_forward_only():
    facts = facts_of(**loop(ran=0.46), without=["host_backward_ns", "host_optimizer_ns"])
    # All of the 0.4 may lie in the 0.5 of forward.
    assert blocked(facts).sure.value == pytest.approx(0.1)
    assert found(RULE.check(facts)).claims == pytest.approx({"forward": 0.1})


def test_where_it_does_not_arise():
    assert isinstance(missing(ask(ran=0.46, device="cuda:0")), NotApplicable)
    ranks = missing(ask(ran=0.46, facts={"ranks": 2}))
    assert isinstance(ranks, NotApplicable) and "exchanges" in ranks.why
    assert found(ask(ran=0.46, facts={"ranks": 1}))


@pytest.mark.parametrize(
    "signal", ["loop_run_delay_share", "loop_cpu_share", "process_cpu_share", "process_run_delay_share"]
)
def test_without_the_scheduler_s_count_it_is_not_told(signal):
    given = loop(ran=0.46)
    del given["quantities"][signal]
    assert missing(ask_trial(RULE, **given)).signal == signal


def test_steps_too_short_for_the_thread_s_clock_are_not_told():
    given = loop(ran=0.46, gaps={"thread_cpu_ns": "steps of 90 us are too short to read the thread's clock in each"})
    reply = missing(ask_trial(RULE, **given, without=["thread_cpu_ns"]))
    assert reply.signal == "thread_cpu_ns" and "too short" in reply.why
    assert missing(ask_trial(RULE, **loop(ran=0.46), without=[f"host_{p}_ns" for p in Phase if p != Phase.OTHER]))


def test_it_is_the_verdict_and_the_model_s_time_is_no_longer_called_work():
    diagnosis = diagnose(run_of(trial_of(**loop(ran=0.46))))
    assert diagnosis.verdict.code == "HST012"
    bound = next(one for one in diagnosis.findings if one.code == "CMP002")
    # Forward and backward are 0.8, of which all of the 0.4 can have run.
    assert "80 % of a step of 1.00 s lies in forward and backward (50 % in the forward and 30 %" in bound.summary
    assert "for at least 40 % of the step the loop's thread was blocked there" in bound.summary
    assert "own work" not in bound.summary


def test_it_is_why_little_is_computed_and_a_disk_is_why_it_waits():
    given = loop(ran=0.46, quantities={"flops_per_step": 0.05e12, "matmul_ceiling": 1e12})
    (finding,) = (one for one in diagnose(run_of(trial_of(**given))).findings if one.code == "HST012")
    assert finding.explains == ("CMP005",)
    # 3,000 pages a step are read back from swap, a tenth of a millisecond each at best.
    swapping = {"major_faults": 300_000.0, "swapped_bytes": 1e9}
    diagnosis = diagnose(run_of(trial_of(**loop(ran=0.46, quantities=swapping))))
    (disk,) = (one for one in diagnosis.findings if one.code == "MEM006")
    assert disk.explains == ("HST012",) and diagnosis.verdict.code == "MEM006"


def test_a_wait_that_may_be_for_other_threads_is_no_work_of_the_loop_s_thread():
    # 0.4 of both passes it did not run, and had no core for 0.1; meanwhile one other thread ran all the time.
    says = found(ask_trial(ComputeBound(), **loop(ran=0.46, delayed=0.1, own=1.0))).summary
    assert "at least 30 % of the step the loop's thread waited there, perhaps for others of its process" in says
    assert "own work" in found(ask_trial(ComputeBound(), **loop(ran=0.46, delayed=0.35, own=1.0))).summary


def test_a_tenth_of_the_passes_is_what_the_word_work_bears():
    # 0.8 of the step in both passes; the thread ran for 0.71 and 0.73 outside of the waits.
    waits, works = (found(ask_trial(ComputeBound(), **loop(ran=0.06 + ran))).summary for ran in (0.71, 0.73))
    assert "at least 9.0 % of the step the loop's thread was blocked" in waits
    assert "is the CPU's own work" in works


# -- what looks at the thread saw


def spinning(seen, *, ran=0.66, own=0.9, phase="forward"):
    """Blocked for 0.3 of the step while another thread spins for 0.9 of it; ``seen`` by the looks in one phase."""
    return ask(ran=ran, own=own, facts={"threads": 2, "waits_seen": {phase: seen, "data_wait": {"sleep": 500}}})


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("sleep", "in a sleep"),
        ("file", "on a file"),
        ("socket", "on a socket"),
        ("pipe", "on a pipe, for another process"),
        ("lock", "for a lock, while no thread of its process worked"),
    ],
)
def test_a_wait_that_was_seen_is_none_for_threads_that_spin(kind, words):
    finding = found(spinning({kind: 60, "runs": 120, "late": 20}))
    # Of 60 of 60 at least 94 % are such waits (Wilson), which is 28.2 % of the step; of 200 looks 60, at least 24.1 %,
    # of the 0.9 that the phases take.
    assert number(finding, "blocked in forward, backward and optimizer, surely").value == pytest.approx(21.7, abs=0.1)
    assert finding.severity is Severity.WARNING
    assert finding.summary.endswith(f"Of 60 looks at the blocked thread 60 saw it like that, mostly {words}.")
    assert number(finding, "looks that saw it wait for no other thread of its process").value == 60
    # The same without a look: all of it may be a wait for the other thread.
    clear(ask(ran=0.66, own=0.9, facts={"threads": 2}))


def test_what_was_blocked_in_all_is_the_most_that_looks_can_say():
    # Looks say 0.6 of the time, but the thread did not run for 0.3 of the step only.
    finding = found(spinning({"sleep": 120, "runs": 80}))
    assert number(finding, "blocked in forward, backward and optimizer, surely").value == pytest.approx(29.1, abs=0.1)


@pytest.mark.parametrize("kind", ["team", "python", "lock, and others work", "memory", "other"])
def test_waits_for_its_own_threads_are_none_of_these(kind):
    clear(spinning({kind: 60, "runs": 140}))


def test_a_mixture_counts_by_its_part():
    # 30 of 60 such waits: at least 37.7 % of the 0.3.
    finding = found(spinning({"sleep": 30, "team": 30, "runs": 20}))
    assert number(finding, "blocked in forward, backward and optimizer, surely").value == pytest.approx(11.3, abs=0.1)
    clear(spinning({"sleep": 6, "team": 54, "runs": 20}))


def test_few_looks_say_little_and_late_ones_nothing():
    clear(spinning({"sleep": 3, "runs": 7}))
    clear(spinning({"sleep": 20, "runs": 20, "late": 160}))
    # The looks for which there was no core are none: of 20 of 20 while blocked at least 83.9 %, of 0.3.
    finding = found(spinning({"sleep": 20, "runs": 20, "no core": 160}))
    assert number(finding, "blocked in forward, backward and optimizer, surely").value == pytest.approx(25.2, abs=0.1)


def test_without_spinning_threads_the_larger_bound_counts():
    finding = found(ask(ran=0.46, facts={"waits_seen": {"forward": {"sleep": 30, "team": 30, "runs": 40}}}))
    assert number(finding, "blocked in forward, backward and optimizer, surely").value == pytest.approx(50)


@pytest.mark.parametrize(
    "told", [None, 3, [], {"forward": 3}, {"forward": {"sleep": "many", "lock": True, "file": -1}}]
)
def test_an_odd_record_of_looks_is_no_look(told):
    clear(ask(ran=0.66, own=0.9, facts={"waits_seen": told}))
