"""INP001: the wait for data, what it consists of, and what workers could do about it."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from perf_diagnostics.diagnose.facts.facts import TrialFacts
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.loaders.hand_over import HAND_OVER_MOST_S, HAND_OVER_ROOMY_S, SMALL
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.records import ALL_PHASES, CodePath, CodePlace, CodeSamples, Phase
from perf_diagnostics.testing import trial_of
from tests.diagnose.answers import ask_trial, changes, clear, found, missing, number

RULE = InputBound()
MANY_CORES = {"num_workers": 0, "threads": 4, "cpu_count": 16}


def ask(wait, *, cpu=None, facts=MANY_CORES, **trial):
    """A step of 1 s that waits for ``wait`` s, a part ``cpu`` of it computing."""
    columns = {} if cpu is None else {"data_wait_cpu_ns": wait * cpu * 1e9}
    return ask_trial(RULE, data_wait=wait, forward=1 - wait, columns=columns, facts=facts, noise=0.02, **trial)


@pytest.mark.parametrize("wait", [0.0, 0.025])  # 0 and half of the lowest limit
def test_little_waiting_is_clear(wait):
    assert number(clear(ask(wait)), "exposed data wait").value == pytest.approx(100 * wait, rel=0.05)


@pytest.mark.parametrize(
    ("wait", "severity"),
    [(0.07, Severity.INFO), (0.15, Severity.WARNING), (0.25, Severity.CRITICAL), (0.6, Severity.CRITICAL)],
)
def test_waiting_is_graded(wait, severity):
    finding = found(ask(wait))
    assert finding.severity is severity
    assert number(finding, "exposed data wait").value == pytest.approx(100 * wait, rel=0.05)
    assert finding.claims == {"data_wait": pytest.approx(wait, rel=0.05)}


def test_a_share_that_noise_may_have_made_is_only_mentioned():
    # 12 % in the mean, but in a few very long waits: the interval reaches below 5 %.
    waits = np.zeros(40)
    waits[[3, 30]] = 2.7e9
    finding = found(
        ask_trial(RULE, steps=40, columns={"host_data_wait_ns": waits, "host_forward_ns": 1e9, "wall_ns": waits + 1e9})
    )
    assert finding.severity is Severity.INFO
    assert finding.confidence == pytest.approx(0.5 * 0.6)


def test_loading_that_waits_wants_workers():
    # A batch takes 0.7 s of waiting, the rest of the step 0.3 s: 3 workers keep up, 4 are proposed.
    finding = found(ask(0.7, cpu=0.05, facts={"num_workers": 0, "threads": 2, "cpu_count": 2}))
    assert "waiting for disk, network or locks" in finding.summary
    assert number(finding, "workers that would keep up").value == 3
    assert changes(finding) == [{"num_workers": 4, "persistent_workers": True}]
    # Waiting workers need no cores, so all of the wait may go.
    assert finding.recoverable.high == pytest.approx(0.7, abs=0.01)
    assert finding.recoverable.low == pytest.approx(0.2 * 0.7, rel=0.05)


def test_loading_that_computes_wants_as_many_workers_as_there_are_free_cores():
    # 0.6 s of computing a batch against 0.4 s of training: 2 workers keep up, 12 cores are free.
    finding = found(ask(0.6, cpu=0.98))
    assert "nearly all of it computing" in finding.summary
    assert changes(finding) == [{"num_workers": 3, "persistent_workers": True}]
    assert finding.recoverable.high == pytest.approx(0.6, abs=0.01)


def test_without_free_cores_workers_will_not_fix_it_and_a_cheaper_batch_may():
    """Two cores that both train: of the 79 % hardly anything was realised by workers."""
    finding = found(ask(0.79, cpu=0.99, facts={"num_workers": 0, "threads": 2, "cpu_count": 2}))
    assert "No core is free: more workers will not fix it" in finding.summary
    assert changes(finding) == []
    assert "Make a batch cheaper" in finding.remedies[0].says
    # All work on both cores: (0.79 + 2 x 0.21) / 2 = 0.605 of today's step, however it is spread.
    assert finding.recoverable.low == pytest.approx(0.2 * (1 - 0.605), abs=0.01)
    # A batch that costs nothing is not waited for.
    assert finding.recoverable.high == pytest.approx(0.79, abs=0.01)


def test_on_a_single_core_a_cheaper_batch_is_not_said_to_win_nothing():
    """Of 15.3 ms of CPU time a step 3.6 were unpacking: 23 %, and as much was won without."""
    finding = found(ask(0.23, cpu=1.0, facts={"num_workers": 0, "threads": 1, "cpu_count": 1}))
    assert changes(finding) == [] and "cheaper" in finding.remedies[0].says
    assert finding.recoverable.low == 0.0  # today's work takes the only core all day
    assert finding.recoverable.value == pytest.approx(0.6 * 0.23, abs=0.01)  # (1 + 0.2) / 2 of it
    assert finding.recoverable.high == pytest.approx(0.23, abs=0.01)


def test_free_cores_cap_what_is_sure_of_the_gain():
    # 0.8 s of computing on 2 free cores takes 0.4 s: more than the 0.2 s the training needs.
    finding = found(ask(0.8, cpu=1.0, facts={"num_workers": 0, "threads": 2, "cpu_count": 4}))
    assert finding.recoverable.low == pytest.approx(0.2 * 0.6, abs=0.01)
    assert finding.recoverable.high == pytest.approx(0.8, abs=0.01)
    assert "Only 2 cores are free: workers alone will not keep up." in finding.summary
    assert changes(finding)[0]["num_workers"] == 2


def test_running_workers_hide_what_they_do():
    # 2 workers that cannot keep up with 0.45 s of training: a batch takes one of them 2 x 1 s, so 5 keep up.
    finding = found(ask(0.55, cpu=0.05, facts={"num_workers": 2, "threads": 1, "cpu_count": 4}))
    assert "was not measured" in finding.summary
    assert number(finding, "workers that would keep up").value == 5
    assert changes(finding) == [{"num_workers": 6, "persistent_workers": True}]
    # If they compute, 3 free cores take them from 2 to 3 at best: 2/3 of today's step remain.
    assert finding.recoverable.low == pytest.approx(0.2 / 3, abs=0.01)
    assert finding.recoverable.high == pytest.approx(0.55, abs=0.01)


def test_no_worker_is_proposed_on_a_guess_where_no_core_is_free():
    one_core = {"num_workers": 0, "threads": 1, "cpu_count": 1}
    assert changes(found(ask(0.3, facts=one_core))) == []  # nobody knows whether it computes
    assert changes(found(ask(0.3, facts=one_core | {"cpu_count": 2}))) == [
        {"num_workers": 2, "persistent_workers": True}
    ]
    # Measured zero: it waits, and that it can do without a core.
    assert changes(found(ask(0.3, cpu=0.0, facts=one_core))) == [{"num_workers": 2, "persistent_workers": True}]


def test_how_many_workers_is_not_said_where_nobody_knows_how_many_there_are():
    assert changes(found(ask(0.9, facts={"threads": 4, "cpu_count": 16}))) == []


STREAM = MANY_CORES | {"iterable_dataset": True}


@pytest.mark.parametrize(
    ("cpu", "first"), [(0.05, "Wait less"), (0.95, "Make a batch cheaper"), (None, "Make a batch")]
)
def test_a_stream_that_does_not_split_itself_is_not_given_to_workers(cpu, first):
    """Each of them would deliver all of it."""
    finding = found(ask(0.55, cpu=cpu, facts=STREAM | {"splits_stream": False}))
    assert changes(finding) == []
    assert finding.remedies[0].says.startswith(first)
    assert "get_worker_info()" in finding.remedies[1].says
    assert "every worker delivers the whole stream" in finding.remedies[1].says
    # 0.55 s a batch against 0.45 s: 2 keep up, 3 are proposed, and one that splits itself may have them.
    split = found(ask(0.55, cpu=cpu, facts=STREAM | {"splits_stream": True}))
    assert changes(split) == [{"num_workers": 3, "persistent_workers": True}]
    assert split.remedies[0].change and "get_worker_info" not in split.remedies[0].says


def test_workers_of_a_loader_that_is_made_anew_do_not_stay():
    # 4 passes from 4 loaders, or from one: a setting alone keeps no worker of the former.
    finding = found(ask(0.55, cpu=0.05, facts=MANY_CORES | {"passes": 4, "loaders": 4}))
    assert changes(finding) == []
    assert finding.remedies[0].says.startswith("Build the DataLoader once, outside of the loop over the epochs; then")
    assert changes(found(ask(0.55, cpu=0.05, facts=MANY_CORES | {"passes": 4, "loaders": 1})))
    assert changes(found(ask(0.55, cpu=0.05, facts=MANY_CORES | {"passes": 1, "loaders": 1})))


def test_between_computing_and_waiting():
    assert "part computing and part waiting" in found(ask(0.5, cpu=0.55)).summary


def test_without_its_cpu_time_the_wait_has_no_cause_and_less_confidence():
    known, unknown = found(ask(0.5, cpu=0.1)), found(ask(0.5))
    assert "whether it computes or waits was not measured" in unknown.summary
    assert unknown.confidence < known.confidence


def test_a_wait_without_any_computing_is_measured():
    assert "most of it waiting" in found(ask(0.5, cpu=0.0)).summary


def test_on_a_device_only_the_exposed_wait_counts():
    # The host waits 0.9 s, but the queue hides it.
    clear(ask_trial(RULE, device="cuda:0", data_wait=0.0, forward=1.0, host={Phase.DATA_WAIT: 0.9}))
    found(ask_trial(RULE, device="cuda:0", data_wait=0.3, forward=0.7, host={Phase.DATA_WAIT: 0.9}))


def test_an_unmeasured_wait_is_not_zero():
    assert missing(ask_trial(RULE, without=["host_data_wait_ns"])).signal == "host_data_wait_ns"
    missing(ask_trial(RULE, device="cuda:0", without=["starved", *(f"device_{p}_ns" for p in ALL_PHASES)]))


def test_few_steps_lower_the_confidence():
    assert found(ask(0.5, steps=4)).confidence < found(ask(0.5)).confidence


def test_missing_time_lowers_the_confidence():
    whole, less = found(ask(0.5)), found(ask(0.5, quantities={"measured_wall_s": 125.0}))
    assert less.confidence == pytest.approx(whole.confidence * 0.8, rel=0.02)


def quick(wait_us, rest_us, *, workers=0, **trial):
    """Steps of so many µs of waiting, and of training; nobody read the CPU clock around waits as short as these."""
    facts = MANY_CORES | {"num_workers": workers} | trial.pop("facts", {})
    return ask_trial(RULE, data_wait=wait_us / 1e6, forward=rest_us / 1e6, facts=facts, **trial)


def test_batches_that_are_quicker_than_a_hand_over_want_no_workers():
    # 0.1 ms for a batch that a worker would hand over in 0.3 ms.
    finding = found(quick(100, 300))
    assert "Loading a batch takes the loop 100 µs; taking one over from a worker costs" in finding.summary
    assert "costs the loop about 300 µs" in finding.summary
    assert changes(finding) == [] and "whole batches" in finding.remedies[0].says


@pytest.mark.parametrize(
    ("wait_us", "rest_us", "samples", "more", "severity"),
    [
        (500, 4000, 64, {}, Severity.INFO),  # 8 µs a sample
        (500, 4000, 4, {}, Severity.WARNING),  # 125 µs: something is done for each
        (500, 1500, 64, {}, Severity.CRITICAL),
        (500, 4000, 64, {"workers": 2}, Severity.WARNING),
    ],
)
def test_what_a_bare_loader_takes_is_mentioned_where_workers_may_win_nothing(wait_us, rest_us, samples, more, severity):
    """A healthy loop of 5 ms was warned of for fetching 64 rows of a tensor one by one (12 % of it)."""
    finding = found(quick(wait_us, rest_us, batch_size=samples, **more))
    assert finding.severity is severity


MOST_US = round(HAND_OVER_ROOMY_S * 1e6)  # twelve cores are free


def test_first_workers_are_advised_only_where_they_win_more_than_they_may_cost():
    """Six times workers were advised for batches of 1 to 5 ms on two cores, and six times the step became longer."""
    short = found(quick(MOST_US - 100, 2 * MOST_US))
    assert changes(short) == []
    assert f"Having one made by a worker costs the loop {SMALL.costs(12)}: workers may win nothing." in short.summary
    # One worker keeps up with the rest of the step, and one more is advised.
    long = found(quick(MOST_US + 100, 2 * MOST_US))
    assert changes(long) == [{"num_workers": 2, "persistent_workers": True}] and "may win nothing" not in long.summary
    # With one free core it takes more.
    one = {"threads": 1, "cpu_count": 2}
    crowded_us = round(HAND_OVER_MOST_S * 1e6)
    assert changes(found(quick(crowded_us - 100, 2 * crowded_us, facts=one))) == []
    assert changes(found(quick(crowded_us + 100, 2 * crowded_us, facts=one)))[0]["num_workers"] == 2


def test_many_tensors_a_batch_want_no_workers_where_few_would():
    """10 ms for a batch: of two tensors workers win; handing 256 over takes longer than making them."""
    few, many = ({"batch_tensors": tensors, "batch_bytes": 1e5} for tensors in (2, 256))
    assert changes(found(quick(10_000, 20_000, facts=few)))[0]["num_workers"] == 2
    finding = found(quick(10_000, 20_000, facts=many))
    assert changes(finding) == [] and "taking one over from a worker costs the loop about 25.7 ms" in finding.summary


def test_of_running_workers_more_are_advised_all_the_same():
    # Their hand-over is in the step of today. 2 workers, a step of 4.5 ms: a batch takes 9 ms, and the rest 2.8.
    assert changes(found(quick(1700, 2800, workers=2)))[0]["num_workers"] > 2


def test_the_batches_of_an_accumulation_are_handed_over_one_by_one():
    # 8 batches a step wait 0.8 ms together, 0.1 ms each.
    finding = found(quick(800, 3000, facts={"accumulation_steps": 8}))
    assert "Loading the 8 batches of a step takes the loop 800 µs" in finding.summary
    assert changes(finding) == []
    # As many as cost more than workers may, each: 8 times the most.
    wait = 8 * MOST_US
    assert changes(found(quick(wait - 100, 2 * wait, facts={"accumulation_steps": 8}))) == []
    finding = found(quick(wait + 100, 2 * wait, facts={"accumulation_steps": 8}))
    assert "Loading the 8 batches of a step takes the loop" in finding.summary
    assert changes(finding) == [{"num_workers": 2, "persistent_workers": True}]


# -- what the loop was seen to do in its wait


FETCH = ("torch.utils.data._utils.fetch._MapDatasetFetcher.fetch",)
STACKS = (*FETCH, "torch.utils.data._utils.collate.collate_tensor_fn")
DRAWS = ("torch.utils.data.dataloader._BaseDataLoaderIter._next_index", "torch.utils.data.sampler.RandomSampler.f")


def looked(*calls, wait=0.2, facts=None, epoch=None):
    """100 looks at a wait of 0.2 of 1 s, in which this was called; all of it computing."""
    place = CodePlace(file="train.py", line=7, function="main")
    paths = tuple(CodePath(phase="data_wait", places=(0,), looks=looks, calls=called) for looks, called in calls)
    code = CodeSamples(places=(place,), paths=paths, interval_s=0.025, rare_interval_s=0.1, cpu_s=0.0)
    columns = {"data_wait_cpu_ns": wait * 1e9} | ({} if epoch is None else {"epoch": epoch})
    given = trial_of(data_wait=wait, forward=1 - wait, columns=columns, facts=MANY_CORES | (facts or {}))
    return found(RULE.check(TrialFacts.of(dataclasses.replace(given, code=code))))


def test_batches_that_torch_gathers_sample_by_sample_are_better_taken_at_once():
    finding = looked((80, STACKS), (20, ()), facts={"cpu_count": 4})
    assert "For most of it the loader fetches and stacks sample by sample" in finding.summary
    assert number(finding, "gathering sample by sample within the wait").value == pytest.approx(80)
    assert [remedy.says[:27] for remedy in finding.remedies] == ["Take whole batches at once:"]
    # 80 % of 20 %, needs no core; no more is sure than a fifth of what 80 looks of 100 surely are, 71 %.
    assert finding.recoverable.high == pytest.approx(0.2)
    assert finding.recoverable.low == pytest.approx(0.2 * 0.711 * 0.2, rel=0.01)


def test_a_data_set_of_ones_own_is_not_told_to_be_gathered():
    finding = looked((49, STACKS), (51, ("PIL.Image.Image.resize",)))
    assert "sample by sample" not in finding.summary
    assert changes(finding) == [{"num_workers": 2, "persistent_workers": True}]


def test_where_each_step_makes_an_iterator_no_worker_is_advised():
    """next(iter(loader)): workers would be started, or reset, in each step; it went from 8315 to 6302 samples/s."""
    each = {"epoch": np.arange(100), "facts": {"batches_a_pass": 1954}}
    finding = looked((60, DRAWS), (40, STACKS), **each)
    assert "Nearly each step begins a pass over the data anew" in finding.summary
    assert changes(finding) == [] and finding.remedies[0].says.startswith("Make the loader's iterator once")
    # Passes of one batch are what they are: then a batch that is made late is made late.
    assert changes(looked((60, DRAWS), (40, STACKS), **(each | {"facts": {"batches_a_pass": 1}})))


def test_workers_whose_batches_come_close_together_are_tried_without():
    # A step of 1 ms, 0.9 of it waiting for 2 workers: less than 4 hand-overs of 0.3 ms.
    kept = {"num_workers": 2, "persistent_workers": True}
    assert changes(found(quick(900, 100, workers=2))) == [{"num_workers": 0}]
    assert changes(found(quick(900, 100, workers=2, settings=kept))) == [{"num_workers": 0, "persistent_workers": None}]
    # 2 ms are no longer close: 2 workers need 4 ms a batch, 0.6 ms of training and hand-over want 7, and one more.
    assert changes(found(quick(1700, 300, workers=2)))[0]["num_workers"] == 8


@pytest.mark.parametrize(("workers_s", "others_s", "severity"), [
    (15.0, 130.0, Severity.INFO),  # 7.5 s of computing a worker against the loop's own 55 s: it would keep up
    (130.0, 15.0, Severity.CRITICAL),  # 65 s a worker: the loader is slow by itself, whoever else is there
    (15.0, 2.0, Severity.CRITICAL),  # cores were idle: it waits for something else
])  # fmt: skip
def test_a_wait_for_cores_that_others_had_is_only_mentioned(workers_s, others_s, severity):
    """100 steps of 1 s on two cores; of 200 core-seconds the loop's process used 55."""
    counted = {"process_cpu_s": 55.0, "workers_cpu_s": workers_s, "other_cpu_s": others_s}
    finding = found(ask(0.4, facts=MANY_CORES | {"num_workers": 2, "cpu_count": 2, "threads": 1}, quantities=counted))
    assert finding.severity is severity
    assert ("on an idle machine" in finding.summary) is (severity is Severity.INFO)


# -- where the scheduler counted who had no core


def on_one_core(wait, *, wait_cpu, cpu, delay, others_s, **more):
    """100 steps of 1 s without workers on one core; the thread's times are parts of the step."""
    counted = {"process_cpu_s": 100 * cpu, "workers_cpu_s": 0.0, "other_cpu_s": others_s}
    counted |= {
        "loop_cpu_share": cpu,
        "loop_run_delay_share": delay,
        "process_run_delay_share": delay / (cpu + delay) if delay else 0.0,
    }
    return ask_trial(
        RULE,
        data_wait=wait,
        forward=1 - wait,
        columns={"thread_cpu_ns": cpu * 1e9, "data_wait_cpu_ns": wait_cpu * 1e9},
        facts={"threads": 1, "cpu_count": 1, "num_workers": 0},
        quantities=counted,
        **more,
    )


def test_a_loader_that_sleeps_is_a_finding_whoever_has_the_cores():
    # Forward got a third of the core, 0.2 of 0.6 s; the wait of 0.4 s has 0.01 s of CPU time and no delay at all.
    finding = found(on_one_core(0.4, wait_cpu=0.01, cpu=0.21, delay=0.4, others_s=40.0))
    assert finding.severity is Severity.CRITICAL
    assert "most of it waiting for disk, network or locks" in finding.summary
    assert changes(finding)[0]["num_workers"] >= 1


def test_a_loader_that_was_robbed_computes():
    # A third of the core throughout: what the wait lacks of it is no waiting for a disk, and the wait would stay.
    finding = found(on_one_core(0.4, wait_cpu=0.4 / 3, cpu=1 / 3, delay=2 / 3, others_s=66.7))
    assert finding.severity is Severity.CRITICAL
    assert "67 % without a core; nearly all of the rest computing" in finding.summary


def test_a_wait_that_was_for_a_core_is_no_wait_for_data():
    # Of 0.4 s of wait 0.38 without a core: without others 0.02 of 0.62 s are left. Its own doing it would be, without.
    robbed = on_one_core(0.4, wait_cpu=0.02, cpu=0.62, delay=0.38, others_s=38.0)
    assert found(robbed).severity is Severity.INFO
    assert "With a core always free, about 3.2 % of a step" in found(robbed).summary
    # 0.02 of 0.62 s of that step are 8 % of the wait of 40 %.
    assert found(robbed).recoverable.high == pytest.approx(0.4 * 0.0323 / 0.4, rel=0.02)
    assert found(on_one_core(0.4, wait_cpu=0.02, cpu=0.62, delay=0.38, others_s=0.0)).severity is Severity.CRITICAL
    # Measured zero: blocked all along.
    assert found(on_one_core(0.4, wait_cpu=0.02, cpu=0.62, delay=0.0, others_s=38.0)).severity is Severity.CRITICAL


@pytest.mark.parametrize(("workers_s", "delayed", "severity"), [
    (4.0, 0.3, Severity.CRITICAL),  # 2 % of its time computing and 0.9 % without a core: they sleep
    (40.0, 0.75, Severity.INFO),  # 20 % computing, 60 % without a core: a batch would take 0.4 of a step, and they
    #                               would keep up with the 0.6 s of the rest
    (40.0, 0.0, Severity.CRITICAL),  # measured zero: they had their cores
])  # fmt: skip
def test_workers_that_had_no_core_are_told_from_those_that_sleep(workers_s, delayed, severity):
    """100 steps of 1 s, 0.4 of it waiting for 2 workers; two cores, of which others used 1.3."""
    counted = {"process_cpu_s": 55.0, "workers_cpu_s": workers_s, "other_cpu_s": 130.0}
    counted |= {
        "loop_cpu_share": 0.55,
        "loop_run_delay_share": 0.0,
        "process_run_delay_share": 0.0,
        "worker_run_delay_share": delayed,
    }
    facts = MANY_CORES | {"num_workers": 2, "cpu_count": 2, "threads": 1}
    finding = found(ask(0.4, facts=facts, quantities=counted))
    assert finding.severity is severity
    assert ("would be waiting" in finding.summary) is (severity is Severity.INFO)


@pytest.mark.parametrize(("delayed", "idle"), [(0.88, True), (0.0, False)])
def test_workers_that_others_may_have_held_up_are_not_said_to_wait_for_a_disk(delayed, idle):
    """100 steps of 1 s, 0.08 of it waiting for 2 workers, which compute 4 % of their time; others used 1.3 cores.

    Without a core for 30 % of it they lost more than the wait: for the rest they may have had nothing to do.
    """
    counted = {"process_cpu_s": 85.0, "workers_cpu_s": 8.0, "other_cpu_s": 130.0}
    counted |= {
        "loop_cpu_share": 0.85,
        "loop_run_delay_share": 0.0,
        "process_run_delay_share": 0.0,
        "worker_run_delay_share": delayed,
    }
    finding = found(ask(0.08, facts=MANY_CORES | {"num_workers": 2, "cpu_count": 2, "threads": 1}, quantities=counted))
    assert ("Loading a batch takes one worker 2.00 s at most," in finding.summary) is idle
    assert ("waiting for disk" in finding.summary) is not idle
    assert ("workers that would keep up" in [one.metric for one in finding.evidence]) is not idle
    assert bool(changes(finding)) is not idle  # to load with more workers


def with_batches_ready(counted):
    """Of a step of 1 s the loop waits 0.3 s for 8 workers."""
    return ask_trial(
        RULE,
        data_wait=0.3,
        forward=0.7,
        columns={"thread_cpu_ns": 0.1e9},
        facts={"threads": 1, "cpu_count": 1, "num_workers": 8},
        quantities=counted,
    )


def test_batches_that_lay_ready_are_said_to():
    # 8 workers and the loop on one core, nobody else: of 0.3 s of wait the loop was ready without a core for all.
    counted = {"process_cpu_s": 10.0, "workers_cpu_s": 90.0, "other_cpu_s": 0.0, "loop_run_delay_share": 0.9}
    counted |= {"loop_cpu_share": 0.1, "process_run_delay_share": 0.9, "worker_run_delay_share": 0.85}
    finding = found(with_batches_ready(counted))
    assert "a batch lay ready, and the loop had no core" in finding.summary
    assert "disk" not in finding.summary
    assert changes(finding) == []  # nor does anybody wait for more workers
    # That is no more than the time of 8 workers for a step of 1 s, and not what a batch takes them.
    assert "Loading a batch takes one worker 8.00 s at most" in finding.summary
    assert not any(shown.metric == "workers that would keep up" for shown in finding.evidence)


def test_workers_that_compute_less_than_the_loop_waits_for_a_core_may_go():
    # As above, but the 8 workers compute for 0.1 s a step, and the loop waits for a core for 0.3 s to take it over.
    counted = {"process_cpu_s": 60.0, "workers_cpu_s": 10.0, "other_cpu_s": 30.0, "loop_run_delay_share": 0.9}
    counted |= {"loop_cpu_share": 0.1, "process_run_delay_share": 0.9, "worker_run_delay_share": 0.1}
    finding = found(with_batches_ready(counted))
    assert "a batch lay ready" in finding.summary
    assert number(finding, "workers' CPU time a step").value == pytest.approx(100, rel=0.01)
    assert changes(finding) == [{"num_workers": 0}]
    assert finding.remedies[0].says.startswith("Try no workers, or fewer")
