"""INP002 to INP008: what loading consists of, how many workers it takes, and when the wait comes."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.engine import diagnose
from perf_diagnostics.diagnose.facts.facts import NotApplicable, NotMeasured, TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.loaders.hand_over import HAND_OVER_ROOMY_S, SMALL
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.inp002_slow_batches import SlowBatches
from perf_diagnostics.diagnose.rules.inp003_too_few_workers import TooFewWorkers
from perf_diagnostics.diagnose.rules.inp004_bursty_loader import BurstyLoader
from perf_diagnostics.diagnose.rules.inp005_epoch_restart import EpochRestart
from perf_diagnostics.diagnose.rules.inp006_cold_cache import ColdCache
from perf_diagnostics.diagnose.rules.inp008_worker_hand_over import WorkerHandOver
from perf_diagnostics.records import CodePath, CodePlace, CodeSamples, Length, StepTable
from perf_diagnostics.testing import run_of, trial_of
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
    assert finding.summary == (
        "Keeping up takes 2 workers, and there are none: with 3 a step would take 400 ms at best instead of 1.00 s; "
        "workers that wait need no core of their own."
    )
    assert finding.recoverable.high == pytest.approx(0.6, abs=0.01)


@pytest.mark.parametrize(
    ("wait", "proposed", "why"),
    [
        (0.6, 3, "2 would only just keep up"),  # 0.6 s for a batch against 0.4 s of the rest
        (0.95, 8, "19 would keep up, and 8 are the most to try on these cores"),  # 0.05 s of the rest, 4 for each core
    ],
)
def test_advice_says_why_its_workers_are_not_those_that_would_keep_up(wait: float, proposed: int, why: str):
    for rule, now in ((InputBound(), "now none; "), (TooFewWorkers(), "")):
        finding = found(loading(rule, wait, cpu=0.1, facts={"cpu_count": 2}))
        says = [remedy.says for remedy in finding.remedies if remedy.change.get("num_workers")]
        assert number(finding, "workers that would keep up").value != proposed
        assert says == [f"Load with {proposed} workers that stay alive ({now}{why})."]


def test_more_workers_than_free_cores_will_not_fix_it():
    """One worker that computes on two cores that both train: it realised none of what the wait promised."""
    finding = found(loading(TooFewWorkers(), 0.79, workers=1, workers_cpu_s=95.0, facts={"threads": 2, "cpu_count": 2}))
    # The batch takes 1 s, the rest of the step 0.21 s: 5 workers.
    assert finding.summary == (
        "Keeping up takes 5 workers, but no core is free for workers that compute: more of them will not fix it."
    )
    assert changes(finding) == [] and finding.recoverable is None


def test_whether_the_cores_suffice_is_said_where_loading_computes_or_may():
    # 8 cores of which 2 train: 6 are free for the 3 workers that 0.6 s of computing against 0.4 s of training take.
    assert found(loading(TooFewWorkers(), 0.6, cpu=0.95)).summary.endswith(", and 6 cores are free for them.")
    unknown = found(loading(TooFewWorkers(), 0.6, facts={"threads": 7}))
    assert unknown.summary.endswith(", unless loading computes, for only 1 core is free.")
    assert changes(unknown) and unknown.recoverable.high > 0
    guess = found(loading(TooFewWorkers(), 0.6, facts={"threads": 8}))
    assert guess.summary == (
        "Keeping up takes 2 workers, but no core is free, and whether loading computes was not measured: more of them "
        "may win nothing."
    )
    assert changes(guess) == [] and guess.recoverable is None


def test_the_wait_and_what_it_takes_to_keep_up_are_one_story():
    """INP001 says what the wait consists of, INP003 how many workers it takes, after it and under it."""
    trial = trial_of(
        data_wait=0.6,
        forward=0.4,
        noise=0.02,
        columns={"data_wait_cpu_ns": 0.57e9},
        facts=CORES | {"num_workers": 0},
    )
    diagnosis = diagnose(run_of(trial))
    told = {finding.code: finding for finding in diagnosis.findings}
    assert diagnosis.verdict.code == "INP001" and "INP003" in told["INP001"].explains
    order = [finding.code for finding in diagnosis.findings]
    assert order.index("INP001") < order.index("INP003")
    assert "keep up" not in told["INP001"].summary and "computing" not in told["INP003"].summary


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
    # 1.5 ms for a batch and 2 ms of training: one worker would keep up, and may cost more than it wins.
    may_cost = clear(ask_trial(TooFewWorkers(), data_wait=1.5e-3, forward=2e-3, facts=CORES | {"num_workers": 0}))
    assert (
        f"having a batch made by a worker costs the loop {SMALL.costs(6)}, and it waits 1.50 ms for one"
        in may_cost.summary
    )
    # 11 ms for a batch and 12 ms of training: at best a step takes 12.3 ms, and at worst the most beyond the 12.
    finding = found(ask_trial(TooFewWorkers(), data_wait=11e-3, forward=12e-3, facts=CORES | {"num_workers": 0}))
    assert "a step would take 12.3 ms at best" in finding.summary
    assert finding.recoverable.high == pytest.approx((23 - 12.3) / 23)
    surely = 0.2 * min(1 - (12e-3 + HAND_OVER_ROOMY_S) / 23e-3, 1 - 23 / 2 / 23)
    assert finding.recoverable.low <= surely + 1e-9 and finding.recoverable.low > 0


def test_workers_whose_batches_come_fast_are_not_said_to_wait_for_a_disk():
    # 8 workers that compute for 0.27 of 2.1 ms, of which the loop waits for 1.2: they may wait for the loop as well.
    counted = {"workers_cpu_s": 0.27, "process_cpu_s": 2.0, "other_cpu_s": 0.0}
    facts = CORES | {"num_workers": 8, "cpu_window_s": 2.1}
    fast = {"data_wait": 1.2e-3, "forward": 0.9e-3, "facts": facts, "quantities": counted}
    finding = found(ask_trial(InputBound(), **fast))
    assert "disk" not in finding.summary and "handing them over may be" in finding.summary
    assert changes(finding)[0] == {"num_workers": 0}
    clear(ask_trial(TooFewWorkers(), **fast))
    clear(ask_trial(SlowBatches(), **fast))
    # With a core for each of them they are; and ten times as slow nobody takes so long to hand a batch over.
    roomy = fast | {"facts": facts | {"cpu_count": 16}}
    assert "most of it waiting for disk, network or locks" in found(ask_trial(InputBound(), **roomy)).summary
    slow = fast | {"data_wait": 12e-3, "forward": 9e-3}
    assert "most of it waiting for disk, network or locks" in found(ask_trial(InputBound(), **slow)).summary


def test_taking_batches_over_is_not_hidden_by_more_workers():
    # 2 workers, 0.3 s of waiting, 0.1 s of it the loop's own: the loop needs 0.8 s a step, and a batch takes one 2 s.
    finding = found(loading(TooFewWorkers(), 0.3, cpu=1 / 3, workers=2))
    assert number(finding, "workers that would keep up").value == 3
    assert "a step would take 800 ms at best" in finding.summary
    assert finding.recoverable.high == pytest.approx(0.2, abs=0.01)


def test_where_most_of_the_wait_is_taking_over_no_worker_is_proposed():
    """Of 0.3 s the loop's own thread computes 0.2: its workers may be idle."""
    assert "taking over what its workers made" in clear(loading(TooFewWorkers(), 0.3, cpu=2 / 3, workers=2)).summary
    finding = found(loading(InputBound(), 0.3, cpu=2 / 3, workers=2, workers_cpu_s=20.0))
    assert "the loop itself computes: it takes over what its workers made" in finding.summary
    assert changes(finding)[0]["num_workers"] == 0
    clear(loading(SlowBatches(), 0.3, cpu=2 / 3, workers=2, workers_cpu_s=20.0))
    # Measured zero: then it waits for them. Without workers it makes its batches itself.
    assert "most of it waiting" in found(loading(InputBound(), 0.3, cpu=0.0, workers=2, workers_cpu_s=20.0)).summary
    assert "takes over" not in found(loading(InputBound(), 0.3, cpu=2 / 3)).summary


def test_a_stream_has_to_be_split_before_it_is_given_to_workers():
    facts = {"iterable_dataset": True, "splits_stream": False}
    finding = found(loading(TooFewWorkers(), 0.6, cpu=0.1, facts=facts))
    assert changes(finding) == []
    assert finding.remedies[0].says == (
        "Load with 3 workers that stay alive (2 would only just keep up), only if they share the data. The data set is "
        "a stream: workers help only if its __iter__ splits it by torch.utils.data.get_worker_info(); else every "
        "worker delivers the whole stream."
    )
    for cpu in (0.1, 0.95):
        remedies = found(loading(SlowBatches(), 0.6, cpu=cpu, facts=facts)).remedies
        assert [("whole stream" in remedy.says) for remedy in remedies] == [False, True]
        assert not any("Load in workers" in remedy.says or "More workers" in remedy.says for remedy in remedies)
    assert changes(found(loading(TooFewWorkers(), 0.6, cpu=0.1, facts=facts | {"splits_stream": True})))


def restarting(rule, first, others, *, steps=120, facts=None, **trial):
    """Passes of 12 steps of 0.1 s, which wait so long in their first step and in all others."""
    waits = np.where(FIRST[:steps], first, others)
    given = {"num_workers": 2, "persistent_workers": False, "threads": 1, "cpu_count": 16} | (facts or {})
    return waiting_for(rule, waits, columns={"epoch": PASSES[:steps]} | trial.pop("columns", {}), facts=given, **trial)


@pytest.mark.parametrize("facts", [{}, {"persistent_workers": True, "passes": 10, "loaders": 10}])
def test_what_workers_take_to_start_is_no_work_that_more_of_them_share(facts):
    # Of 1.2 + 1.2 s of a pass 1.2 are waited for in its first step: 50 %, and none of it for a batch to be made.
    reply = clear(restarting(TooFewWorkers(), 1.2, 0.0, facts=facts))
    assert "workers are started, anew for each pass" in reply.summary
    clear(restarting(SlowBatches(), 1.2, 0.0, facts=facts, quantities={"workers_cpu_s": 1.0}))
    finding = found(restarting(InputBound(), 1.2, 0.0, facts=facts))
    assert "the loader's workers are started, anew for each pass" in finding.summary
    assert not any("num_workers" in change for change in changes(finding))
    # Workers that stay are not started: then it is the batches that come late.
    assert changes(found(restarting(InputBound(), 1.2, 0.0, facts={"persistent_workers": True})))[0]["num_workers"] > 2


def test_what_the_loop_does_to_begin_a_pass_no_worker_does_for_it():
    # A sampler that sorts for 3.4 s before each pass of 12 steps of 0.1 s, each of which loads for 0.1 s besides.
    alone = {"num_workers": 0, "persistent_workers": False}
    reply = clear(restarting(TooFewWorkers(), 3.5, 0.1, facts=alone))
    assert "a pass over the data is begun: its sampler, or the data set's __iter__" in reply.summary
    assert number(reply, "a batch takes one worker").value == pytest.approx(100, rel=0.01)
    finding = found(restarting(InputBound(), 3.5, 0.1, facts=alone))
    assert changes(finding) == []
    assert [remedy.says[:22] for remedy in finding.remedies] == ["Make passes longer, or", "Look for expensive wor"]
    # Where the begin is the smaller part (9 times 0.4 s, beside 120 steps of 0.2 s), workers win what they can: of 111
    # other steps 0.1 s each, less the hand-over of 0.3 ms.
    both = found(restarting(TooFewWorkers(), 0.5, 0.1, facts=alone))
    assert both.recoverable.high == pytest.approx(111 * 0.0997 / 27.6, rel=0.001)


def test_more_workers_win_in_the_steps_between_starts_alone():
    # Steps of 0.1 s wait 0.1 s more for 2 workers, and 0.5 s in the first of 12: 11 x 0.2 of 2.8 s. 2 x 0.2 s a batch
    # against 0.1 s with the hand-over want 4 workers, 5 are proposed, and a step takes 0.1 s: 1.1 of 2.8 s are won.
    finding = found(restarting(TooFewWorkers(), 0.5, 0.1))
    assert changes(finding) == [{"num_workers": 5, "persistent_workers": True}]
    assert "a step would take 100 ms at best instead of 200 ms" in finding.summary
    assert finding.recoverable.high == pytest.approx(1.1 / 2.8, rel=0.03)
    # As one whole: 2 x 0.233 s a batch would be 5 workers to keep up, and 0.133 of 0.233 s won.
    kept = found(restarting(TooFewWorkers(), 0.5, 0.1, facts={"persistent_workers": True}))
    assert number(finding, "workers that would keep up").value == 4
    assert number(kept, "workers that would keep up").value == 5
    assert kept.recoverable.high > finding.recoverable.high
    # Where every step begins a pass each of them starts the workers anew: more of them start no sooner.
    every = {"columns": {"epoch": np.arange(120)}}
    reply = clear(restarting(TooFewWorkers(), 0.5, 0.1, **every))
    assert "a pass over the data is begun, in nearly each step (INP005)" in reply.summary
    # Unless a pass is known to have but one batch.
    assert "instead of" in found(restarting(TooFewWorkers(), 0.5, 0.1, facts={"batches_a_pass": 1}, **every)).summary


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


@pytest.mark.parametrize(("ahead", "one"), [(4.5, True), (4.4, False), (None, True)])
def test_workers_that_deliver_together_are_not_one_slow_worker(ahead: float | None, one: bool) -> None:
    """Four workers in step look like one slow one, but for what the others have made by the time it comes."""
    counted = {} if ahead is None else {"loader_parts": {"rows": [], "ahead": [1_000, ahead * 1_000]}}
    answer = waiting_for(BurstyLoader(), turns(0.2, 0.002), facts={"num_workers": 4, **counted})
    (found if one else clear)(answer)


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


def ramp(rule, second, third, *, facts=None):
    """Two workers with two batches each ahead: 0.4 s for the first batch of a pass, then these, then 0.01 s each."""
    place = np.arange(120) % 12
    waits = np.select([FIRST, place == 1, place == 2], [0.4, second, third], 0.01)
    given = RESTARTS | {"num_workers": 2, "prefetch_factor": 2, "cpu_count": 16, "threads": 1} | (facts or {})
    return waiting_for(rule, waits, columns={"epoch": PASSES}, facts=given)


def test_waits_while_the_queue_is_filled_are_of_the_restart():
    # Of a pass of 1.2 + 0.4 + 0.0 + 0.3 + 9 x 0.01 = 1.99 s the start takes 0.39 + 0.29; the second wait is short.
    finding = found(ramp(EpochRestart(), 0.0, 0.3))
    assert finding.claims == {"data_wait": pytest.approx(0.68 / 1.99, rel=0.01)}
    assert number(finding, "extra wait at a pass's begin").value == pytest.approx(680)
    assert "begins with 680 ms of waiting" in finding.summary
    # 0.68 of 0.79 s of waiting: no worker more makes that less.
    clear(ramp(TooFewWorkers(), 0.0, 0.3))
    # Workers that stay have no queue to fill: what comes behind the first batch is not the restart's.
    kept = found(ramp(EpochRestart(), 0.0, 0.3, facts={"persistent_workers": True}))
    assert kept.claims == {"data_wait": pytest.approx(0.39 / 1.99, rel=0.01)}


def test_waits_as_all_others_behind_a_first_one_are_no_restart():
    finding = found(ramp(EpochRestart(), 0.01, 0.01))
    assert finding.claims == {"data_wait": pytest.approx(0.39 / (1.2 + 0.4 + 11 * 0.01), rel=0.01)}


def test_a_start_that_is_a_part_of_the_wait_is_mended_before_there_are_more_workers():
    # Of 120 waits of 0.1 s, nine are 0.4 s longer: 3.6 of 15.6 s are the starts.
    finding = found(restarting(InputBound(), 0.5, 0.1))
    assert "23 % of that is starting the loader's workers, anew for each pass over the data." in finding.summary
    assert changes(finding)[0] == {"persistent_workers": True}
    assert "starting" not in found(restarting(InputBound(), 0.1, 0.1)).summary


def test_what_a_restart_leaves_cold_may_be_won_as_well():
    # Of 1.6 s that a pass takes, the wait is 0.4; its first step also computes 0.05 s longer, its second 0.03.
    forward = 1e8 + np.where(FIRST, 0.05e9, 0.0) + np.where(np.roll(FIRST, 1), 0.03e9, 0.0)
    waits = np.where(FIRST, 0.4, 0.0)
    columns = {"epoch": PASSES, "host_forward_ns": forward, "wall_ns": forward + waits * 1e9}
    finding = found(waiting_for(EpochRestart(), waits, columns=columns, facts=RESTARTS))
    assert finding.claims == {"data_wait": pytest.approx(0.4 / 1.68)}
    assert finding.recoverable.high == pytest.approx(0.48 / 1.68, rel=0.01)
    assert finding.recoverable.low == pytest.approx(0.2 * 0.4 / 1.68, rel=0.01)


def test_workers_that_stay_are_not_told_to():
    kept = RESTARTS | {"persistent_workers": True}
    assert (
        changes(found(waiting_for(EpochRestart(), np.where(FIRST, 0.4, 0.0), columns={"epoch": PASSES}, facts=kept)))
        == []
    )


def test_a_loader_that_is_made_for_each_pass_has_no_workers_to_keep():
    """Measured: persistent_workers alone 207 to 206 and 228 ms a step; one loader, and persistent, 151 and 123 ms."""

    def ask(**facts):
        waits = np.where(FIRST, 0.4, 0.0)
        return found(waiting_for(EpochRestart(), waits, columns={"epoch": PASSES}, facts=RESTARTS | facts))

    for persistent in (False, True):
        finding = ask(persistent_workers=persistent, passes=10, loaders=10)
        assert changes(finding) == []
        assert finding.remedies[0].says.startswith(
            "Build the DataLoader once, outside of the loop over the epochs, with"
        )
        assert "persistent_workers=True" in finding.remedies[0].says
        assert finding.summary.endswith("are started anew, for each pass has a DataLoader of its own.")
    assert changes(ask(passes=10, loaders=1)) == [{"persistent_workers": True}]
    # Without workers it is not they that start.
    alone = ask(num_workers=0, passes=10, loaders=10)
    assert "workers" not in alone.summary and "Build the DataLoader once" in alone.remedies[0].says


def test_waits_elsewhere_are_no_restart():
    clear(waiting_for(EpochRestart(), np.full(120, 0.4), columns={"epoch": PASSES}, facts=RESTARTS))
    clear(waiting_for(EpochRestart(), np.zeros(120), columns={"epoch": PASSES}, facts=RESTARTS))


def test_without_passes_there_is_no_begin_of_one():
    assert missing(waiting_for(EpochRestart(), np.zeros(120), facts=RESTARTS)).signal == "epoch"
    missing(waiting_for(EpochRestart(), np.zeros(120), columns={"epoch": 0}, facts=RESTARTS))


def each_step(begins=60, others=40, *, wait=0.3, **facts):
    """100 steps of 1 s that each begin a pass; of the looks at their wait so many are at its begin."""
    draws = ("torch.utils.data.dataloader._BaseDataLoaderIter._next_index", "torch.utils.data.sampler.RandomSampler.f")
    paths = tuple(
        CodePath(phase="data_wait", places=(0,), looks=looks, calls=calls)
        for looks, calls in ((begins, draws), (others, ("torch.utils.data._utils.collate.default_collate",)))
    )
    place = CodePlace(file="train.py", line=7, function="main")
    trial = trial_of(
        data_wait=wait,
        forward=1 - wait,
        columns={"epoch": np.arange(100)},
        facts=CORES | {"num_workers": 0, "batches_a_pass": 1954} | facts,
    )
    code = CodeSamples(places=(place,), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    return ask_of(EpochRestart(), dataclasses.replace(trial, code=code))


def ask_of(rule, result):
    try:
        return rule.check(TrialFacts.of(result))
    except NotMeasured as why:
        return why


def test_an_iterator_that_each_step_makes_costs_what_was_seen_of_it():
    finding = found(each_step())
    assert finding.severity is Severity.WARNING
    assert number(finding, "beginning passes over the data").value == pytest.approx(18)  # 60 % of 30 %
    assert number(finding, "batches that a pass would have").value == 1954
    assert "drops the rest of its 1954 batches: beginning takes 18 % (15 % to 21 %) of all time" in finding.summary
    # It is the cause of all of the wait that INP001 speaks of, which may all go away; its own part surely begins.
    assert finding.claims == {"data_wait": pytest.approx(0.3)}
    assert finding.recoverable.high == pytest.approx(0.3)
    assert finding.recoverable.low == pytest.approx(0.2 * 0.3 * 0.502, abs=0.001)  # Wilson's lower end of 60 of 100
    assert [remedy.says.split(":")[0] for remedy in finding.remedies] == [
        "Make the loader's iterator once and take all of its batches"
    ]


def test_a_cheap_iterator_is_clear_and_an_unknown_pass_unchecked():
    clear(each_step(10, 90))  # 3 % of all time
    assert missing(each_step(batches_a_pass=None)).signal == "batches_a_pass"
    assert "no other wait" in missing(each_step(batches_a_pass=1)).why  # a pass is one batch
    assert "not seen often enough" in missing(each_step(8, 8)).why


def test_workers_that_each_step_starts_are_all_of_its_wait():
    finding = found(each_step(num_workers=2, persistent_workers=False))
    assert "with workers that are started for it" in finding.summary
    assert finding.recoverable.high == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("phase", "each", "causes"),
    [("data_wait", True, ("INP005",)), ("data_wait", False, ()), ("forward", True, ())],
)
def test_the_collectors_pauses_are_those_of_an_iterator_that_each_step_makes(phase, each, causes):
    pauses = np.where(np.arange(100) % 3 == 1, 1e8, 0.0)
    took = {"data_wait": 3e8, "forward": 7e8}
    trial = trial_of(
        data_wait=0.3,
        forward=0.7,
        columns={
            "epoch": np.arange(100) if each else np.zeros(100),
            **{f"host_{name}_ns": ns + (pauses if name == phase else 0.0) for name, ns in took.items()},
            "wall_ns": 1e9 + pauses,
            "gc_ns": pauses,
        },
        facts=CORES | {"num_workers": 0, "batches_a_pass": 1954},
    )
    assert found(ask_of(CollectorPauses(), trial)).symptom_of == causes


# -- INP006


#: 30 steps a pass, of which the first one reads 1 MB a step and the others nothing.
READ = {"read_bytes_first_pass": 33e6, "read_bytes_later_passes": 0.0}


def cold(first_wait, *, read=READ, epoch=None, **trial):
    """3 warm-up steps and 30 of a first pass, which waits so long in each, then two passes without a wait."""
    step = np.arange(90)
    return waiting_for(
        ColdCache(),
        np.where(step < 30, first_wait, 0.0),
        columns={"epoch": step // 30 if epoch is None else epoch},
        quantities=read,
        **trial,
    )


def reads(first, later):
    """So many bytes a step: of 33 steps in the first pass, and of 60 in later ones."""
    return {"read_bytes_first_pass": 33 * first, "read_bytes_later_passes": 60 * later}


def test_a_first_pass_that_reads_from_disk_is_mentioned():
    finding = found(cold(0.05))  # 0.15 against 0.10 s
    assert finding.severity is Severity.INFO
    assert number(finding, "step of the first pass over later ones").value == pytest.approx(1.5)
    assert number(finding, "read from storage a step of the first pass").value == pytest.approx(1e6)
    assert finding.summary == (
        "In the first pass over the data a step takes 1.5 times as long as later, 100 % of the difference waiting for "
        "data: 1.0 MB a step were read from storage then, 0 MB in later passes."
    )


def test_nothing_read_or_no_slower_is_no_cold_cache():
    nothing = clear(cold(0.05, read=reads(0.0, 0.0)))
    assert "hardly read anything from storage" in nothing.summary
    clear(cold(0.05, read=reads(4000.0, 0.0)))  # less than a page a step
    found(cold(0.05, read=reads(4200.0, 0.0)))
    clear(cold(0.02))
    reply = missing(cold(0.05, read={}, gaps={"read_bytes_first_pass": "/proc/<pid>/io cannot be read"}))
    assert (reply.signal, reply.why) == ("read_bytes_first_pass", "/proc/<pid>/io cannot be read")
    assert missing(cold(0.05, epoch=0)).signal == "epoch"


@pytest.mark.parametrize("times", [0.5, 1.0, 2.9])
def test_a_loader_that_reads_as_much_in_each_pass_is_slow_and_not_cold(times):
    reply = clear(cold(0.05, read=reads(1e6, 1e6 / times)))
    assert "does not stay in memory" in reply.summary
    assert number(reply, "read from storage a step of the first pass").limit == pytest.approx(3e6 / times)


def test_three_times_the_bytes_are_a_cold_cache():
    assert "0.33 MB in later passes" in found(cold(0.05, read=reads(1e6, 1e6 / 3.05))).summary


def test_a_first_pass_that_was_cut_off_as_warm_up_is_still_told():
    """A cold pass looks like a long warm-up; what was asked for as such, and compiling, are left out all the same."""
    step = np.arange(93)  # three of warm-up
    waits = np.where(step < 33, 0.05, 0.0)
    waits[:3], waits[7] = 5.0, 9.0
    columns = {
        "wall_ns": 1e8 + waits * 1e9,
        "host_data_wait_ns": waits * 1e9,
        "epoch": np.maximum(0, step - 3) // 30,
        "graphs": (step >= 7).astype(int),
        "warmup": step < 40,
    }
    result = trial_of(steps=53, warmup_steps=40, facts=CORES, quantities=READ)
    table = StepTable({**result.steps[0].columns, **{name: np.asarray(values) for name, values in columns.items()}})
    length = Length.exactly(53, warmup_steps=3)
    result = dataclasses.replace(result, steps=(table,), trial=dataclasses.replace(result.trial, length=length))
    finding = found(ColdCache().check(TrialFacts.of(result)))
    assert number(finding, "step of the first pass over later ones").value == pytest.approx(1.5)


def test_bytes_without_waiting_are_no_cold_cache():
    clear(cold(0.0, read=reads(1e9, 0.0)))


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
    clear(ask_trial(WorkerHandOver(), columns={"data_wait_cpu_ns": 0, "epoch": 0}, facts={"num_workers": 2}))


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
