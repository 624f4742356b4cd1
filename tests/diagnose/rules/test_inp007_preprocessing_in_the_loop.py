"""INP007: what a loop does between a batch and its forward."""

from __future__ import annotations

import numpy as np
import pytest

from perf_diagnostics.diagnose import diagnose
from perf_diagnostics.diagnose.finding import Severity
from perf_diagnostics.diagnose.loaders.hand_over import HAND_OVER_MOST_S
from perf_diagnostics.diagnose.rules.inp007_preprocessing_in_the_loop import PreprocessingInTheLoop
from perf_diagnostics.records import Phase
from perf_diagnostics.testing import run_of, trial_of
from tests.diagnose.answers import ask_trial, clear, found, missing, number

RULE = PreprocessingInTheLoop()
SHARE = "between a batch and its forward"
MS = 1_000_000
STEPS = 100


def on_cpu(prepare_ms, *, computing=1.0, other_ms=None, columns=None, **trial):
    """Steps of 100 ms on the CPU; of what is prepared this part is CPU time of the loop's thread."""
    other = prepare_ms if other_ms is None else other_ms
    busy = 100 - other + computing * np.asarray(prepare_ms)
    return {
        "forward": (100 - other) / 1e3,
        "other": other / 1e3,
        "columns": {
            "prepare_ns": np.rint(np.asarray(prepare_ms) * MS).astype(np.int64),
            "thread_cpu_ns": np.rint(busy * MS).astype(np.int64),
            "data_wait_cpu_ns": 0,
        }
        | (columns or {}),
        "facts": {"threads": 1, "cpu_count": 2},
    } | trial


@pytest.mark.parametrize(
    ("prepare_ms", "severity"),
    [(0, None), (9, None), (11, Severity.WARNING), (19, Severity.WARNING), (21, Severity.CRITICAL)],
)
def test_computing_on_batches_is_graded(prepare_ms, severity):
    answer = ask_trial(RULE, **on_cpu(prepare_ms))
    assert number(answer, SHARE).value == pytest.approx(prepare_ms)
    if severity is None:
        clear(answer)
    else:
        finding = found(answer)
        assert finding.severity is severity
        assert finding.recoverable.high == pytest.approx(prepare_ms / 100)
        assert finding.recoverable.low == pytest.approx(0.2 * prepare_ms / 100)


def test_a_share_whose_interval_reaches_below_the_limit_is_an_info():
    scattered = 10.4 + 8 * np.random.default_rng(1).standard_normal(STEPS).clip(-1, 1)
    finding = found(ask_trial(RULE, **on_cpu(scattered, other_ms=30, columns={"thread_cpu_ns": 100 * MS})))
    assert finding.severity is Severity.INFO and finding.evidence[0].low < 10 < finding.evidence[0].value


@pytest.mark.parametrize(("computing", "fires"), [(0.65, False), (0.75, True)])
def test_only_computing_counts_waiting_is_somebody_elses(computing, fires):
    answer = ask_trial(RULE, **on_cpu(30, computing=computing))
    assert number(answer, "of it surely computing").value == pytest.approx(100 * computing)
    assert bool(found(answer)) if fires else clear(answer)


def test_where_others_had_the_processor_computing_and_waiting_cannot_be_told_apart():
    """Steps of 100 ms with 30 ms of computing on batches, of which the thread ran for half throughout."""
    columns = {"thread_cpu_ns": 50 * MS}
    assert "cannot be told apart" in missing(ask_trial(RULE, **on_cpu(30, columns=columns))).why


@pytest.mark.parametrize(("others_s", "fires"), [(1.9, False), (2.1, True)])  # of 2 cores for 10 s
def test_nor_where_others_used_the_cores_and_none_was_idle(others_s, fires):
    quantities = {"process_cpu_s": 16.5, "workers_cpu_s": 0, "other_cpu_s": others_s}
    trial = on_cpu(30, computing=0.3, quantities=quantities)
    trial["facts"] = trial["facts"] | {"cpu_window_s": 10}
    answer = ask_trial(RULE, **trial)
    assert missing(answer) if fires else clear(answer)


@pytest.mark.parametrize(("delay", "fires"), [(0.0, False), (0.025, False), (0.1, True)])
def test_what_the_scheduler_counted_says_whether_it_had_its_core(delay, fires):
    """Others used the cores and none was idle, but that says nothing where it is known what the thread lacked."""
    quantities = {"process_cpu_s": 16.5, "workers_cpu_s": 0, "other_cpu_s": 2.1, "loop_run_delay_share": delay}
    trial = on_cpu(30, computing=0.3, quantities=quantities)
    trial["facts"] = trial["facts"] | {"cpu_window_s": 10}
    answer = ask_trial(RULE, **trial)
    assert missing(answer) if fires else clear(answer)


def test_where_the_cpu_clock_was_not_read_it_is_found_with_less_confidence():
    finding = found(ask_trial(RULE, **on_cpu(30, without=["thread_cpu_ns"])))
    assert finding.confidence == pytest.approx(0.5 / 0.7 * found(ask_trial(RULE, **on_cpu(30))).confidence)


def test_what_happens_now_and_then_is_no_preparation():
    """A stall of 200 ms in every tenth step, in the same place."""
    prepare = np.where(np.arange(STEPS) % 10 == 0, 200.0, 0.0)
    answer = clear(ask_trial(RULE, **on_cpu(prepare, other_ms=20)))
    assert number(answer, SHARE).value == 0


def test_pauses_of_the_collector_are_taken_off():
    clear(ask_trial(RULE, **on_cpu(30, columns={"gc_ns": 25 * MS})))


def test_a_few_microseconds_of_a_short_step_are_no_fault():
    tiny = {"prepare_ns": 40_000, "thread_cpu_ns": 100_000, "data_wait_cpu_ns": 0}
    clear(ask_trial(RULE, forward=60e-6, other=40e-6, columns=tiny, facts={"threads": 1, "cpu_count": 2}))
    tiny = {"prepare_ns": 60_000, "thread_cpu_ns": 100_000, "data_wait_cpu_ns": 0}
    found(ask_trial(RULE, forward=40e-6, other=60e-6, columns=tiny, facts={"threads": 1, "cpu_count": 2}))


def test_on_the_cpu_moving_a_batch_is_preparing_it():
    columns = {"prepare_ns": 0, "thread_cpu_ns": 100 * MS, "data_wait_cpu_ns": 0}
    finding = found(ask_trial(RULE, forward=0.08, transfer=0.02, columns=columns, facts={"threads": 1, "cpu_count": 2}))
    assert finding.claims == {"other": 0.0, "transfer": pytest.approx(0.2)}


def quickly(each_us, *, batch=50, cores=1, **trial):
    """A batch of 50 samples, each of which takes so many µs, 30 % of a step on one core."""
    ns = each_us * batch * 1000
    columns = {"prepare_ns": ns, "thread_cpu_ns": int(ns / 0.3), "data_wait_cpu_ns": 0}
    seconds = ns / 1e9
    facts = {"threads": 1, "cpu_count": cores}
    return ask_trial(
        RULE, forward=seconds * 7 / 3, other=seconds, columns=columns, facts=facts, batch_size=batch, **trial
    )


def test_work_on_whole_batches_that_no_worker_would_take_over_is_only_mentioned():
    finding = found(quickly(40))
    assert finding.severity is Severity.INFO and finding.recoverable.low == 0.0
    assert "40.0 µs for each of its samples, as work on the whole batch at once may take" in finding.summary
    assert not any("sample by sample" in remedy.says or "workers" in remedy.says for remedy in finding.remedies)
    single = found(quickly(60))
    assert single.severity is Severity.CRITICAL and "whole batch at once may" not in single.summary
    assert single.remedies[0].says.startswith("If it goes through the batch sample by sample")


def test_what_others_took_is_no_time_of_a_sample():
    """100 µs a sample by the clock; forward takes 0.7 of a step, and the thread ran for 0.28 of it: for 0.4 of both."""
    trial = {"quantities": {"loop_cpu_share": 0.28}, "without": ["thread_cpu_ns"]}
    finding = found(quickly(100, **trial))
    assert number(finding, "the same a sample").value == pytest.approx(40)
    assert finding.severity is Severity.INFO
    trial["quantities"] = {"loop_cpu_share": 0.7}  # it ran throughout
    assert found(quickly(100, **trial)).severity is Severity.CRITICAL


def test_it_warns_where_workers_would_surely_win():
    long = round(1.1 * HAND_OVER_MOST_S * 1e6 / 200)
    assert found(quickly(long, batch=200, cores=2)).severity is Severity.CRITICAL
    assert found(quickly(long, batch=200, cores=1)).severity is Severity.INFO  # which have no core
    assert found(quickly(round(0.9 * long), batch=200, cores=2)).severity is Severity.INFO  # or cost as much


def test_augmentation_is_not_told_to_be_stored():
    says = [remedy.says for remedy in found(quickly(60)).remedies]
    assert any("random augmentation" in one and "cannot be stored" in one for one in says)


def test_what_is_only_mentioned_here_is_no_fault_of_time_outside_the_phases():
    """Both are about the same seconds."""
    ns = 40 * 50 * 1000
    columns = {"prepare_ns": ns, "thread_cpu_ns": int(ns / 0.3), "data_wait_cpu_ns": 0}
    trial = trial_of(
        forward=ns / 1e9 * 7 / 3, other=ns / 1e9, columns=columns, facts={"threads": 1, "cpu_count": 1}, batch_size=50
    )
    found_here = {
        one.code: one.severity for one in diagnose(run_of(trial)).findings if one.code in ("INP007", "HST006")
    }
    assert found_here == {"INP007": Severity.INFO, "HST006": Severity.INFO}


@pytest.mark.parametrize(("cores", "low"), [(1, 0.0), (2, 0.2 * 0.3)])
def test_without_a_free_core_workers_may_win_nothing(cores, low):
    finding = found(ask_trial(RULE, **on_cpu(30, facts={"threads": 1, "cpu_count": cores})))
    assert finding.recoverable.low == pytest.approx(low)


def on_device(prepare_ms, lag_ms, **trial):
    """Steps of 100 ms of a device that ends each so long after the host; the wait for data takes 5 ms."""
    host = {Phase.DATA_WAIT: 0.005, Phase.FORWARD: 0.05, Phase.OTHER: prepare_ms / 1e3}
    columns = {"prepare_ns": prepare_ms * MS, "host_lead_ns": lag_ms * MS, "block": 0}
    return {"device": "cuda:0", "forward": 0.1, "host": host, "columns": columns} | trial


@pytest.mark.parametrize(
    ("lag_ms", "exposed"),
    [(0, 30), (5, 30), (20, 15), (35, 0), (200, 0)],  # 5 ms of waiting and 30 of preparing, less the lag
)
def test_on_a_device_only_what_exceeds_its_lag_is_exposed(lag_ms, exposed):
    answer = ask_trial(RULE, **on_device(30, lag_ms))
    assert number(answer, SHARE).value == pytest.approx(exposed)
    assert bool(found(answer)) if exposed else clear(answer)


def test_a_block_begins_with_the_device_at_rest():
    trial = on_device(30, 200)
    trial["columns"]["block"] = np.arange(STEPS) // 2  # every second step is the first of its block
    assert number(ask_trial(RULE, **trial), SHARE).value == pytest.approx(30 * 49 / 99)


def test_several_batches_a_step_leave_the_queue_between_them_unknown():
    assert "several batches" in missing(ask_trial(RULE, **on_device(30, 0, settings={"accumulation_steps": 2}))).why


@pytest.mark.parametrize("column", ["prepare_ns", "host_data_wait_ns", "host_forward_ns"])
def test_without_its_records_it_is_not_measured(column):
    missing(ask_trial(RULE, **on_cpu(30, without=[column])))


def test_without_the_devices_lag_it_is_not_measured():
    trial = on_device(30, 0)
    trial["columns"].pop("host_lead_ns")
    missing(ask_trial(RULE, **trial))


def test_it_explains_the_time_outside_the_phases_and_comes_first():
    diagnosis = diagnose(run_of(trial_of(**on_cpu(30))))
    codes = [finding.code for finding in diagnosis.findings]
    assert codes.index("INP007") < codes.index("HST006")
    assert diagnosis.verdict is not None and diagnosis.verdict.code == "INP007"
