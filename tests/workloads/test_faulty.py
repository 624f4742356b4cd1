"""Each planted fault does what it says, when it says, and nothing before."""

from __future__ import annotations

import gc
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from perf_diagnostics.errors import InvalidSettings, WorkloadError
from perf_diagnostics.records import Settings
from perf_diagnostics.workloads import find
from perf_diagnostics.workloads.faulty import between, loading
from tests.workloads.stepping import same_training, steps

SMALL = {"width": 16, "depth": 1, "features": 4, "samples": 64}


def build(settings: Settings | None = None, **options):
    return find("faulty").build(settings or Settings(batch_size=4), options=SMALL | options, seed=0)


class Slept(Exception):
    pass


def test_up_to_its_fault_it_is_an_mlp() -> None:
    mlp = find("mlp").build(Settings(batch_size=4), options=SMALL, seed=0)
    training = build(crash_after=3)
    assert same_training(training, mlp)
    assert steps(training, 3) == steps(mlp, 3)


def test_the_loss_is_nan_from_its_batch_on() -> None:
    losses = steps(build(nan_after=2), 4)
    assert [math.isnan(loss) for loss in losses] == [False, False, True, True]


def test_it_crashes_in_its_batch() -> None:
    training = build(crash_after=2)
    steps(training, 2)
    with pytest.raises(RuntimeError, match="a crash after 2 batches"):
        steps(training, 1)


def test_it_crashes_at_once_after_no_batch() -> None:
    with pytest.raises(RuntimeError, match="a crash after 0 batches"):
        steps(build(crash_after=0), 1)


def test_it_hangs_in_its_batch(monkeypatch) -> None:
    naps = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise Slept

    monkeypatch.setattr(time, "sleep", sleep)
    training = build(hang_after=1)
    steps(training, 1)
    assert naps == []
    with pytest.raises(Slept):
        steps(training, 1)
    assert min(naps) >= 3600  # and again and again


@pytest.mark.slow
def test_the_process_is_killed_in_its_batch() -> None:
    program = (
        "from tests.workloads.test_faulty import build, steps\n"
        "training = build(exit_after=1)\n"
        "print(len(steps(training, 1)), flush=True)\n"
        "steps(training, 1)\n"
        "print('alive', flush=True)\n"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout == "1\n"
    assert done.returncode == -signal.SIGKILL


def test_the_loader_sleeps_over_each_sample(monkeypatch) -> None:
    naps = []
    monkeypatch.setattr(loading.time, "sleep", naps.append)
    training = build(sleep_per_item_ms=2.5)
    next(iter(training.batches))
    assert naps == [0.0025] * 4
    mlp = find("mlp").build(Settings(batch_size=4), options=SMALL, seed=0)
    assert same_training(build(sleep_per_item_ms=2.5), mlp)  # slower, but the same samples in the same order


def test_sleeping_happens_in_workers_where_there_are_some(monkeypatch) -> None:
    naps = []
    monkeypatch.setattr(loading.time, "sleep", naps.append)
    training = build(Settings(batch_size=32, num_workers=1), sleep_per_item_ms=1)
    assert sum(training.count(batch).samples for batch in training.batches) == 64
    assert naps == []


@pytest.mark.parametrize("batch_size", [5, 8])
def test_a_batch_above_its_limit_does_not_fit(batch_size: int) -> None:
    training = build(Settings(batch_size=batch_size), oom_above=4)
    with pytest.raises(torch.OutOfMemoryError, match=f"a batch of {batch_size}, more than 4"):
        steps(training, 1)


def test_a_batch_at_its_limit_fits() -> None:
    assert len(steps(build(oom_above=4), 2)) == 2


def test_faults_go_together() -> None:
    training = build(nan_after=1, crash_after=2)
    assert [math.isnan(loss) for loss in steps(training, 2)] == [False, True]
    with pytest.raises(RuntimeError):
        steps(training, 1)


def test_without_a_fault_it_names_those_there_are() -> None:
    with pytest.raises(WorkloadError, match="give one of sleep_per_item_ms, burn_per_item_ms"):
        build()


def test_it_refuses_in_its_own_name() -> None:
    with pytest.raises(InvalidSettings, match="cannot be honoured by faulty"):
        build(Settings(batch_size=4, sequence_length=8), nan_after=1)


def test_burning_takes_processor_time() -> None:
    before = time.thread_time()
    next(iter(build(burn_per_item_ms=5).batches))
    assert time.thread_time() - before >= 4 * 0.005  # 4 samples


def test_only_the_first_worker_is_slow(monkeypatch) -> None:
    naps = []
    monkeypatch.setattr(loading.time, "sleep", naps.append)
    monkeypatch.setattr(loading, "get_worker_info", lambda: SimpleNamespace(id=1))
    loading.sleep_in_first_worker(0.5)
    monkeypatch.setattr(loading, "get_worker_info", lambda: None)
    loading.sleep_in_first_worker(0.5)
    assert naps == []
    monkeypatch.setattr(loading, "get_worker_info", lambda: SimpleNamespace(id=0))
    loading.sleep_in_first_worker(0.5)
    assert naps == [0.5]


def test_lengths_cycle_and_are_counted() -> None:
    training = build(length_cycle=3)
    batches = list(training.batches)[:4]
    counts = [training.count(batch) for batch in batches]
    assert [(c.samples, c.tokens, c.padding_tokens) for c in counts] == [(4, 4, 0), (4, 8, 0), (4, 12, 0), (4, 4, 0)]
    assert len(steps(training, 3)) == 3


def test_stalls_saves_and_drift_come_when_they_are_due(monkeypatch) -> None:
    naps, writes = [], []
    monkeypatch.setattr(between.time, "sleep", naps.append)
    monkeypatch.setattr(between.os, "fsync", writes.append)
    training = build(stall_every=2, stall_ms=50, save_every=3, save_ms=7, drift_ms=1)
    batch = next(iter(training.batches))
    for _ in range(3):
        training.count(batch)
    # Batch 1 drifts by 1 ms; batch 2 stalls and drifts by 2; batch 3 drifts by 3 and saves.
    assert naps == [0.001, 0.05, 0.002, 0.003, 0.007]
    assert len(writes) == 1


def test_each_batch_is_written_and_preprocessed(monkeypatch) -> None:
    writes = []
    monkeypatch.setattr(between.os, "fsync", writes.append)
    training = build(fsync_kb=4, preprocess_ms=5, fresh_mb=0.5)
    batch = next(iter(training.batches))
    before = time.thread_time()
    assert training.count(batch).samples == 4
    assert time.thread_time() - before >= 0.005 and len(writes) == 1


def test_objects_are_kept_and_collected() -> None:
    training = build(collect_every=2, heap_objects=100, kept_objects=10, leak_kb=1)
    batch = next(iter(training.batches))
    before = gc.get_stats()[2]["collections"]
    for _ in range(4):
        training.count(batch)
        training.loss_of(training.model, batch)
    assert gc.get_stats()[2]["collections"] - before >= 2
    assert len(training.count.heap) == 100 and [len(kept) for kept in training.count.kept] == [10] * 4
    assert [kept.numel() * 4 for _, kept in training.loss_of.kept] == [1024] * 4


def test_checkpointing_runs_the_forward_again() -> None:
    training = build(checkpoint_segments=2, depth=3)
    calls = []
    training.model[0].register_forward_hook(lambda *_: calls.append(1))
    batch = next(iter(training.batches))
    training.loss_of(training.model, batch).backward()
    assert len(calls) == 2


def test_the_learning_rate_and_anomaly_mode_are_set() -> None:
    try:
        training = build(learning_rate=1e30, anomaly_mode=True)
        assert torch.is_anomaly_enabled()
    finally:
        torch.autograd.set_detect_anomaly(False)
    assert not all(math.isfinite(loss) for loss in steps(training, 6))
