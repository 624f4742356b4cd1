"""What the simulated device stands in for, on a real one: ``pytest -m gpu``."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.measure.boards.devices import probe_devices
from perf_diagnostics.measure.steps.device_clock import event_source
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import Environment, Length, Outcome, Phase, Settings, Trial
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.sweep import Sweep
from perf_diagnostics.workloads import find
from perf_diagnostics.workloads.workload import Training

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device"),
]


def matmuls(count: int, size: int = 4096) -> torch.Tensor:
    product = a = torch.ones(size, size, device="cuda", dtype=torch.float16)
    for _ in range(count):
        product = a @ a
    return product


def test_phases_agree_with_the_profilers_kernel_times() -> None:
    """Forward 4 and backward 8 matrix products: the phases' event times against the sum of their kernels."""
    device = torch.device("cuda:0")
    matmuls(10)
    probe = Probe(events=event_source(device, time.perf_counter_ns))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        probe.start()
        for _ in range(10):
            with probe.forward():
                matmuls(4)
            with probe.backward():
                matmuls(8)
            probe.end_step(samples=1)
        probe.end_block()
    table = probe.take()
    kernels_ns = sum(event.self_device_time_total for event in profile.key_averages()) * 1e3
    phases_ns = sum(float(table.device_ns(phase).sum()) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert phases_ns == pytest.approx(kernels_ns, rel=0.05)
    ratio = table.device_ns(Phase.BACKWARD)[2:].sum() / table.device_ns(Phase.FORWARD)[2:].sum()
    assert ratio == pytest.approx(2.0, rel=0.1)


def test_the_host_runs_ahead_and_throughput_is_still_the_devices() -> None:
    device = torch.device("cuda:0")
    matmuls(10)
    torch.cuda.synchronize()
    began = time.perf_counter()
    matmuls(200)
    torch.cuda.synchronize()
    truth_s = (time.perf_counter() - began) / 200
    probe = Probe(events=event_source(device, time.perf_counter_ns))
    probe.start()
    for _ in range(50):
        with probe.forward():
            matmuls(4)
        probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    assert table.wall_ns.mean() / 1e9 == pytest.approx(4 * truth_s, rel=0.1)
    assert table.wall_ns.sum() == pytest.approx(probe.blocks_wall_ns[0], rel=1e-3)
    assert table.columns["host_lead_ns"][25] > 0
    assert table.columns["starved"][5:].mean() < 0.1


def test_a_starved_device_is_seen() -> None:
    device = torch.device("cuda:0")
    matmuls(10)
    probe = Probe(events=event_source(device, time.perf_counter_ns))
    probe.start()
    for _ in range(20):
        with probe.data_wait():
            time.sleep(0.05)
        with probe.forward():
            matmuls(1)
        probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    assert table.columns["starved"][1:].mean() > 0.95
    share = table.device_ns(Phase.DATA_WAIT).sum() / table.wall_ns.sum()
    assert share > 0.8


@pytest.mark.parametrize("precision", ["float32", "tf32", "bfloat16", "float16"])
def test_every_precision_trains(precision: str) -> None:
    settings = Settings(batch_size=64, device="cuda:0", precision=precision)  # type: ignore[arg-type]
    trial = Trial(workload="mlp", settings=settings, length=Length.exactly(20))
    found = measure(trial, lambda s: find("mlp").build(s, options={}, seed=0)).result
    assert found.outcome is Outcome.COMPLETED, found.reason
    assert found.provenance["device_clock"] == "cuda_event"
    assert found.value("device_memory_peak_allocated") > 0
    table = found.steps[0].steady
    assert table.wall_ns.sum() / 1e9 == pytest.approx(found.value("measured_wall_s"), rel=0.01)


def test_a_sweep_over_cpu_and_gpu_with_energy(tmp_path: Path) -> None:
    devices = probe_devices()
    trials = [
        Trial(
            workload="mlp",
            settings=Settings(batch_size=64, device=name),
            length=Length(min_steps=4000, max_steps=20000),
        )
        for name in ("cpu", "cuda:0")
    ]
    folder = RunFolder.create(
        tmp_path,
        "run",
        planned=trials,
        command="test",
        environment=Environment(),
        tool_version="0",
        now=datetime.now(UTC),
    )
    Sweep(folder, time_budget_s=60, devices=devices).run()
    results = {result.trial.settings.device: result for result in folder.read().results}
    gpu = results["cuda:0"]
    assert gpu.outcome is Outcome.COMPLETED, gpu.reason
    assert gpu.series_named("gpu_power") is not None or gpu.gap("gpu_power") is not None
    energy = gpu.value("energy_device")
    assert energy is None or 1 < energy / gpu.value("energy_device_window_s") < 2000  # watts


def test_out_of_memory_is_an_outcome_and_the_next_trial_runs(tmp_path: Path) -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    width = int((total / 4) ** 0.5 * 1.2)  # one weight matrix larger than the device
    settings = Settings(batch_size=8, device="cuda:0")
    options = {"width": width, "depth": 2, "samples": 64}
    trial = Trial(workload="mlp", settings=settings, options=options, length=Length.exactly(3))
    found = measure(trial, lambda s: find("mlp").build(s, options=options, seed=0)).result
    assert found.outcome in (Outcome.OUT_OF_MEMORY_DEVICE, Outcome.OUT_OF_MEMORY_HOST), found.reason
    small = Trial(workload="mlp", settings=settings, length=Length.exactly(3))
    assert measure(small, lambda s: find("mlp").build(s, options={}, seed=0)).result.outcome is Outcome.COMPLETED


@pytest.mark.parametrize("accumulation_steps", [1, 2])
def test_a_loss_that_a_cuda_graph_returned_can_be_read_when_the_block_is_over(accumulation_steps: int) -> None:
    settings = Settings(
        batch_size=8, device="cuda:0", compile_mode="reduce-overhead", accumulation_steps=accumulation_steps
    )
    trial = Trial(workload="tiny-transformer", settings=settings, length=Length.exactly(10))
    found = measure(trial, lambda s: find("tiny-transformer").build(s, options={}, seed=0)).result
    assert found.outcome is Outcome.COMPLETED, found.reason
    losses = found.steps[0].columns["loss"]
    assert np.isfinite(losses).all() and len(set(losses.tolist())) > 1


def test_a_copy_ahead_on_a_stream_of_its_own_holds_no_step_up() -> None:
    device, copies = torch.device("cuda:0"), torch.cuda.Stream()
    large = torch.ones(2**28, dtype=torch.uint8).pin_memory()
    matmuls(10)
    probe = Probe(events=event_source(device, time.perf_counter_ns))
    probe.start()
    for _ in range(10):
        with probe.transfer(), torch.cuda.stream(copies):
            ahead = large.to(device, non_blocking=True)
        with probe.forward():
            matmuls(1, size=1024)
        probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    assert ahead.is_cuda
    for name, values in table.columns.items():
        assert not name.startswith("device_") or (values >= 0).all(), name
    # 256 MiB take at least 4 ms over any link, and the loop's own stream waits for none of it.
    assert table.device_ns(Phase.TRANSFER).mean() < 2e6


def test_waits_of_the_allocator_are_counted() -> None:
    def counted(empties: bool) -> float | None:
        def build(settings: Settings) -> Training:
            training = find("mlp").build(settings, options={}, seed=0)

            def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
                if empties:
                    torch.cuda.empty_cache()
                return training.loss_of(model, batch)

            return dataclasses.replace(training, loss_of=loss_of)

        trial = Trial(workload="mlp", settings=Settings(batch_size=64, device="cuda:0"), length=Length.exactly(10))
        return measure(trial, build).result.value("alloc_syncs")

    if counted(False) is None:
        pytest.skip("this torch does not count them")
    assert counted(False) == 0
    assert (counted(True) or 0) >= 10  # one in each step


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_the_second_board_is_the_current_one_while_its_trial_runs() -> None:
    current: list[int] = []

    def build(settings: Settings) -> Training:
        current.append(torch.cuda.current_device())
        return find("mlp").build(settings, options={}, seed=0)

    before = torch.cuda.memory_reserved(0)
    trial = Trial(workload="mlp", settings=Settings(batch_size=64, device="cuda:1"), length=Length.exactly(5))
    found = measure(trial, build).result
    assert (found.outcome, current, torch.cuda.current_device()) == (Outcome.COMPLETED, [1], 0)
    assert torch.cuda.memory_reserved(0) == before
