"""Advice that several rules give fits the trial it is about."""

from __future__ import annotations

import numpy as np

from perf_diagnostics.diagnose.rule_parts.advice import cheaper_batches, less_host_memory, less_memory, similar_lengths
from perf_diagnostics.diagnose.rules.cmp002_compute_bound import ComputeBound
from perf_diagnostics.diagnose.rules.cmp004_padding_waste import PaddingWaste
from perf_diagnostics.diagnose.rules.hst005_collector_pauses import CollectorPauses
from perf_diagnostics.diagnose.rules.hst007_recompiles import Recompiles
from perf_diagnostics.diagnose.rules.inp001_input_bound import InputBound
from perf_diagnostics.diagnose.rules.inp002_slow_batches import SlowBatches
from perf_diagnostics.diagnose.rules.inp003_too_few_workers import TooFewWorkers
from perf_diagnostics.diagnose.rules.mem001_memory_pressure import MemoryPressure
from perf_diagnostics.diagnose.wording import times
from tests.diagnose.answers import ask_trial, changes, facts_of, found

LENGTHS = {"tokens": np.arange(100) + 1}
NEARLY_FULL = {"host_memory_total": 10e9, "host_memory_peak": 9.5e9}


def changed(remedies):
    return [dict(remedy.change) for remedy in remedies]


def test_batches_are_sorted_by_length_where_lengths_differ_and_are_not_sorted_yet():
    assert changed(similar_lengths(facts_of(columns=LENGTHS))) == [{"length_bucketing": True}]
    assert changed(similar_lengths(facts_of())) == [{}]
    assert similar_lengths(facts_of(columns=LENGTHS, settings={"length_bucketing": True})) == ()


def test_a_batch_of_one_cannot_be_halved():
    assert changed(less_memory(facts_of(batch_size=1))) == [{"gradient_checkpointing": True}]
    assert changed(less_memory(facts_of(batch_size=8, settings={"gradient_checkpointing": True}))) == [
        {"batch_size": 4, "accumulation_steps": 2}
    ]


def test_a_full_host_beside_a_device_is_the_loaders():
    loader = {"num_workers": 8, "prefetch_factor": 4}
    finding = found(ask_trial(MemoryPressure(), device="cuda:0", facts=loader, quantities=NEARLY_FULL))
    assert changes(finding) == [{"num_workers": 4}, {"prefetch_factor": 2}]
    assert "retried" not in finding.summary
    assert len(less_host_memory(facts_of(device="cuda:0"))) == 1
    on_cpu = found(ask_trial(MemoryPressure(), batch_size=8, quantities=NEARLY_FULL))
    assert {"gradient_checkpointing": True} in changes(on_cpu)


def test_a_graph_for_each_length_is_cured_by_a_setting_only_where_lengths_are_known():
    graphs = {"graphs": np.arange(100)}
    assert {"length_bucketing": True} not in changes(found(ask_trial(Recompiles(), columns=graphs)))
    assert {"length_bucketing": True} in changes(found(ask_trial(Recompiles(), columns=graphs | LENGTHS)))


def test_what_is_done_already_is_not_advised():
    padded = {"tokens": 100, "padding_tokens": 50}
    sorted_by_length = {"length_bucketing": True}
    assert changes(found(ask_trial(PaddingWaste(), columns=padded))) == [sorted_by_length]
    assert changes(found(ask_trial(PaddingWaste(), columns=padded, settings=sorted_by_length))) == []
    pauses = {"gc_ns": 0.3e9}
    assert {"freeze_gc": True} in changes(found(ask_trial(CollectorPauses(), columns=pauses)))
    assert changes(found(ask_trial(CollectorPauses(), columns=pauses, settings={"freeze_gc": True}))) == []


def test_what_a_cpu_cannot_do_is_not_advised():
    slow = {"data_wait": 0.6, "forward": 0.4, "facts": {"num_workers": 0, "threads": 2, "cpu_count": 2}}
    computing = {"data_wait_cpu_ns": 0.6e9}
    for rule in (InputBound(), SlowBatches(), TooFewWorkers()):
        said = " ".join(remedy.says for remedy in found(ask_trial(rule, **slow, columns=computing)).remedies)
        assert "decode less" in said
        assert "device" not in said
    assert "decode on the device" in cheaper_batches(facts_of(device="cuda:0")).says


def test_more_threads_than_cores_are_said_as_such():
    crowd = {"threads": 16, "cpu_count": 2}
    assert "with 16 threads on 2 cores" in found(ask_trial(ComputeBound(), facts=crowd)).summary
    assert "on 2 of 4 cores" in found(ask_trial(ComputeBound(), facts={"threads": 2, "cpu_count": 4})).summary


def test_mean_counts_in_words():
    assert [times(mean, "wait") for mean in (1.0, 1.5, 20.0)] == ["1 wait", "1.5 waits", "20 waits"]
