"""What the simulated device stands in for, on a real one: ``pytest -m gpu``."""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from perf_diagnostics import attach
from perf_diagnostics.diagnose.trace import diagnose_traces
from perf_diagnostics.diagnose.trace.reader import read_trace
from perf_diagnostics.measure.boards.devices import probe_devices
from perf_diagnostics.measure.boards.lost_context import context_is_lost
from perf_diagnostics.measure.profiler_window import MOST_STEPS
from perf_diagnostics.measure.steps.device_clock import event_source
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import ALL_PHASES, Environment, Length, Outcome, Phase, Settings, Trial
from perf_diagnostics.store.run_folder import RunFolder
from perf_diagnostics.store.trial_folder import TRACE
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.outcome import outcome_of
from perf_diagnostics.trials.sweep import Sweep
from perf_diagnostics.workloads import find
from perf_diagnostics.workloads.workload import BatchCount, Training
from tests.gpu import ON_A_GPU

pytestmark = ON_A_GPU

#: Too little for a rest of the device, which these tests do not ask for, and more than their steps take.
BUDGET_S = 30.0


def matmuls(count: int, size: int = 4096) -> torch.Tensor:
    product = a = torch.ones(size, size, device="cuda", dtype=torch.float16)
    for _ in range(count):
        product = a @ a
    return product


def warm_up() -> None:
    """Memory for the products lies ready, and the clocks of a board that had nothing to do have risen."""
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        matmuls(20)
        torch.cuda.synchronize()


def product_s() -> float:
    """What a product takes, with nothing but waiting around a long row of them."""
    torch.cuda.synchronize()
    began = time.perf_counter()
    matmuls(500)
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / 500


def kernel_times_ns(profile: torch.profiler.profile) -> list[float]:
    """What ran on the device; a wait that the profiler shows there as well is none of it."""
    on_device = [event for event in profile.events() or () if event.device_type == torch.autograd.DeviceType.CUDA]
    return [event.time_range.elapsed_us() * 1e3 for event in on_device if " Sync" not in event.name]


def test_phases_agree_with_the_profilers_kernel_times() -> None:
    """Forward 4 and backward 8 matrix products: the phases' event times against the sum of their kernels."""
    device = torch.device("cuda:0")
    warm_up()
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        matmuls(1)  # the first window of all loads the profiler's library, in the middle of whatever runs
        torch.cuda.synchronize()
    if not kernel_times_ns(profile):
        pytest.skip("the profiler saw no kernel here: CUPTI may be out of reach in this container")
    probe = Probe(events=event_source(device, time.perf_counter_ns))
    with torch.profiler.profile(activities=activities) as profile:
        probe.start()
        for _ in range(20):
            with probe.forward():
                matmuls(4)
            with probe.backward():
                matmuls(8)
            probe.end_step(samples=1)
        probe.end_block()
    table = probe.take()
    kernels_ns = sum(kernel_times_ns(profile))
    phases_ns = sum(float(table.device_ns(phase).sum()) for phase in (Phase.FORWARD, Phase.BACKWARD))
    assert phases_ns == pytest.approx(kernels_ns, rel=0.05)
    ratio = table.device_ns(Phase.BACKWARD)[2:].sum() / table.device_ns(Phase.FORWARD)[2:].sum()
    assert ratio == pytest.approx(2.0, rel=0.1)


def test_the_host_runs_ahead_and_throughput_is_still_the_devices() -> None:
    device = torch.device("cuda:0")
    warm_up()
    before_s = product_s()
    probe = Probe(events=event_source(device, time.perf_counter_ns))
    probe.start()
    for _ in range(50):
        with probe.forward():
            matmuls(20)
        probe.end_step(samples=1)
    probe.end_block()
    table = probe.take()
    truth_s = (before_s + product_s()) / 2  # a board that grows warm slows down
    assert table.wall_ns.mean() / 1e9 == pytest.approx(20 * truth_s, rel=0.1)
    # A block is over when the device is, not when its events have been read, which takes as long as a step.
    assert table.wall_ns.sum() == pytest.approx(probe.blocks_wall_ns[0], rel=1e-3)
    assert table.columns["host_lead_ns"][25] > 0
    assert table.columns["starved"][5:].mean() < 0.1
    drift = probe.clock_drift
    assert drift is not None and abs(drift) < 1e-3


def test_a_starved_device_is_seen() -> None:
    device = torch.device("cuda:0")
    warm_up()
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
    if precision == "tf32" and torch.cuda.get_device_capability(0) < (8, 0):
        pytest.skip("this board has no TF32")
    trial = Trial(workload="mlp", settings=settings, length=Length.exactly(200))
    found = measure(trial, lambda s: find("mlp").build(s, options={}, seed=0), budget_s=BUDGET_S).result
    assert found.outcome is Outcome.COMPLETED, found.reason
    assert found.provenance["device_clock"] == "cuda_event"
    for name in ("memory_bandwidth", "matmul_ceiling", "probe_overhead_s", "copies_in_per_step", "memory_peak_forward"):
        assert found.value(name) is not None, (name, found.gaps)
    for name in ("device_memory", "allocated_bytes", "memory_peaks_by_phase", "model_scan"):
        assert found.gap(name) is None, found.gap(name)
    assert found.value("device_memory_peak_allocated") > 0
    table = found.steps[0].steady
    assert table.wall_ns.sum() / 1e9 == pytest.approx(found.value("measured_wall_s"), rel=0.01)


def test_a_step_after_the_timed_ones_is_looked_through() -> None:
    """Of what the operators move on the device; how long they take there is not seen."""
    trial = Trial(workload="mlp", settings=Settings(batch_size=32, device="cuda:0"), length=Length(max_steps=60))
    found = measure(trial, lambda s: find("mlp").build(s, options={}, seed=0), budget_s=BUDGET_S).result
    assert found.outcome is Outcome.COMPLETED and found.gap("zero_products") is None
    assert found.facts["operators"] > 0 and found.facts["operator_bytes_backward"] > 0  # type: ignore[operator]
    assert found.facts["gradients_nobody_uses"] == 0 and found.facts["unused_parameters"] == 0


def test_a_sweep_over_cpu_and_gpu(tmp_path: Path) -> None:
    devices = probe_devices()
    trials = [
        Trial(
            workload="mlp",
            settings=Settings(batch_size=64, device=name),
            length=Length(min_steps=100, max_steps=400),
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
    Sweep(folder, time_budget_s=40, devices=devices).run()
    results = {result.trial.settings.device: result for result in folder.read().results}
    cpu, gpu = results["cpu"], results["cuda:0"]
    assert (cpu.outcome, gpu.outcome) == (Outcome.COMPLETED, Outcome.COMPLETED), (cpu.reason, gpu.reason)
    # The server that both were forked from has never asked CUDA.
    assert "interpreter of its own" not in (folder.trial_directory(gpu.trial) / "output.txt").read_text()
    assert gpu.series_named("gpu_power") is not None or gpu.gap("gpu_power") is not None
    assert gpu.series_named("gpu_memory_used") is not None or gpu.gap("gpu_memory_used") is not None


def test_out_of_memory_is_an_outcome_and_the_next_trial_runs() -> None:
    """The allocator may use 384 MiB: it refuses in the same words, and the host need not make weights of 140 GiB."""
    total = torch.cuda.get_device_properties(0).total_memory
    settings = Settings(batch_size=8, device="cuda:0")
    options = {"width": 8192, "depth": 2, "samples": 64}  # weights of 264 MiB, and their gradients as much
    trial = Trial(workload="mlp", settings=settings, options=options, length=Length.exactly(3))
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(384 * 2**20 / total, 0)
    try:
        found = measure(trial, lambda s: find("mlp").build(s, options=options, seed=0)).result
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    assert found.outcome is Outcome.OUT_OF_MEMORY_DEVICE, found.reason
    small = Trial(workload="mlp", settings=settings, length=Length.exactly(3))
    assert measure(small, lambda s: find("mlp").build(s, options={}, seed=0)).result.outcome is Outcome.COMPLETED


def test_what_the_board_itself_cannot_hold_is_out_of_memory() -> None:
    total = torch.cuda.get_device_properties(0).total_memory
    with pytest.raises(torch.OutOfMemoryError) as refused:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda:0")
    outcome, reason = outcome_of(refused.value)
    assert outcome is Outcome.OUT_OF_MEMORY_DEVICE
    assert "out of memory" in reason and not context_is_lost(reason)
    assert float(torch.ones(8, device="cuda:0").sum()) == 8  # the context is as good as before


needs_a_compiler = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None
    or not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")),
    reason="torch.compile needs Triton, and Triton a C compiler",
)


@needs_a_compiler
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


@needs_a_compiler
def test_accumulation_in_a_cuda_graph_trains_as_it_does_outside_of_one() -> None:
    """A graph's gradients lie where its next run writes: added to there, all but the last batch would be lost."""

    def build(settings: Settings) -> Training:
        torch.manual_seed(0)
        layers = torch.nn.Linear(32, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)
        model = torch.nn.Sequential(*layers).to(settings.device)
        batches = [torch.randn(16, 32) for _ in range(8)]
        return Training(
            model=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.5),
            batches=batches,
            loss_of=lambda module, batch: (module(batch) - batch.sum(dim=1, keepdim=True).sign()).square().mean(),
            count=lambda batch: BatchCount(len(batch)),
        )

    def losses(mode: str | None) -> Any:
        settings = Settings(batch_size=16, device="cuda:0", accumulation_steps=4, compile_mode=mode)
        trial = Trial(workload="tests.gpu:build", settings=settings, length=Length.exactly(15))
        found = measure(trial, build, budget_s=120.0).result
        assert found.outcome is Outcome.COMPLETED, found.reason
        return found.steps[0].columns["loss"][:15]

    plain = losses(None)
    assert plain[-1] < 0.8 * plain[0]  # it learns, so a wrong gradient would show
    assert losses("reduce-overhead") == pytest.approx(plain, rel=1e-3)


def test_a_copy_ahead_on_a_stream_of_its_own_holds_no_step_up() -> None:
    device, copies = torch.device("cuda:0"), torch.cuda.Stream()
    large = torch.ones(2**28, dtype=torch.uint8).pin_memory()
    warm_up()
    with torch.cuda.stream(copies):
        for _ in range(2):  # room for two: taking it from the driver may wait for the copy that is under way
            ahead = large.to(device, non_blocking=True)
    torch.cuda.synchronize()
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

    healthy = counted(False)
    if healthy is None:
        pytest.skip("this torch does not count them")
    assert healthy == 0
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


def test_the_profilers_window_is_read_with_what_ran_on_the_device(tmp_path: Path) -> None:
    trial = Trial(workload="mlp", settings=Settings(batch_size=64, device="cuda:0"), length=Length.exactly(20))
    build = find("mlp").build
    found = measure(
        trial, lambda s: build(s, options={}, seed=0), budget_s=BUDGET_S, directory=tmp_path, deep=True
    ).result
    assert found.outcome is Outcome.COMPLETED, found.reason
    assert found.gap("deep_window") is None
    trace = read_trace(tmp_path / TRACE)
    assert {"data_wait", "transfer", "forward", "backward", "optimizer"} <= set(trace.names)
    if not len(trace.device):
        pytest.skip("the profiler saw nothing on the device: CUPTI may be out of reach in this container")
    (waterfall,) = diagnose_traces([tmp_path / TRACE]).waterfalls
    assert waterfall is not None and waterfall.on_device
    assert (waterfall.steps, waterfall.marked) == (MOST_STEPS, True)
    assert sum(ns for _, ns, _ in waterfall.parts) == waterfall.wall_ns
    assert sum(row.device_ns for row in waterfall.kernels) > 0


def test_a_loop_of_ones_own_is_timed_on_the_device(tmp_path: Path) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1)).to("cuda:0")
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.randn(64 * 60, 512), torch.randn(64 * 60, 1))
    loader = DataLoader(data, batch_size=64)
    with attach(model, optimizer, loader, name="gpu", results_dir=tmp_path, quiet=True) as diagnostics:
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x.to("cuda:0")), y.to("cuda:0"))
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    assert diagnostics.run is not None
    (result,) = diagnostics.run.results
    assert result.outcome is Outcome.COMPLETED, result.reason
    assert result.trial.settings.device == "cuda:0"
    assert result.provenance["device_clock"] == "cuda_event"
    table = result.steps[0]
    assert len(table) == 59  # the first one ended before it was known where the training runs
    steady = table.steady
    for phase in (Phase.TRANSFER, Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        assert steady.device_ns(phase).sum() > 0, phase
    phases_ns = sum(steady.device_ns(phase) for phase in ALL_PHASES)
    assert phases_ns == pytest.approx(steady.wall_ns, abs=len(ALL_PHASES))
    assert np.isfinite(table.columns["allocated_bytes"]).any()
    assert result.value("device_memory_total") == torch.cuda.get_device_properties(0).total_memory


def test_what_crosses_in_a_loop_of_ones_own_is_counted_with_its_lines(tmp_path: Path) -> None:
    """Two reads, a wait and five numbers copied in each step, and a batch of 1 MiB that is pinned."""
    model = torch.nn.Linear(512, 512).to("cuda:0")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(512, 512).pin_memory()
    until = time.perf_counter() + 2.0
    with attach(model, optimizer, name="crossings", results_dir=tmp_path, quiet=True) as diagnostics:
        while time.perf_counter() < until:
            x = batch.to("cuda:0", non_blocking=True)
            numbers = [torch.tensor(float(number)).to("cuda:0") for number in range(5)]
            loss = (model(x) * sum(numbers)).square().mean()
            loss.backward()
            torch.cuda.synchronize()
            optimizer.step()
            optimizer.zero_grad()
            (loss.item(), model.bias.detach().sum().item())
    assert diagnostics.run is not None
    (result,) = diagnostics.run.results
    assert result.gap("copies_in_per_step") is None
    counted = {name: result.value(f"{name}_per_step") for name in ("copies_in", "small_copies", "reads_back", "waits")}
    assert counted == {"copies_in": 6, "small_copies": 5, "reads_back": 2, "waits": 3}
    assert result.value("copies_in_pinned_bytes") == result.value("copies_in_large_bytes") == 512 * 512 * 4
    assert result.value("copies_in_transfer_bytes") == 512 * 512 * 4 + 5 * 4
    assert 0 < (result.value("reads_back_idle_s") or 0.0) < 0.01
    told = result.facts["crossings_at"]
    assert isinstance(told, list)
    kinds = [(one["kind"], one["calls"]) for one in told if isinstance(one, dict)]
    assert kinds == [("read", 2.0), ("wait", 1.0), ("small copy", 5.0)]
