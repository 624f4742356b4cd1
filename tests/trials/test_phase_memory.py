"""Peaks by phase: each phase's own, not the largest of all, and a gap where the peak cannot be reset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.records import MEASURED_PHASES, Settings, Trial
from perf_diagnostics.trials import phase_memory
from perf_diagnostics.trials.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.phase_memory import PeakCounter, PhaseMemory, PhasePeaks, peak_counter
from perf_diagnostics.workloads.workload import BatchCount, Training

CPU = torch.device("cpu")


class Allocator:
    """A device's allocator in plain numbers."""

    def __init__(self) -> None:
        self.now = self.peak = 100

    def counter(self, _device: torch.device = CPU) -> PeakCounter:
        return PeakCounter("fake allocator", self._reset, lambda: self.peak)

    def use(self, more: int, *, kept: int = 0) -> None:
        """Hold ``more`` for a moment and keep a part of it."""
        self.peak = max(self.peak, self.now + more)
        self.now += kept

    def _reset(self) -> None:
        self.peak = self.now


def test_each_phase_has_the_peak_of_what_happened_inside_it() -> None:
    allocator = Allocator()
    peaks = PhasePeaks(allocator.counter())
    for spike in (0, 30, 10):  # three steps; the second batch is the longest
        with peaks.forward():
            allocator.use(400 + spike, kept=300)
        with peaks.backward():
            allocator.use(50)
            allocator.now -= 300
        with peaks.optimizer():
            pass
        peaks.end_step(samples=8)
    # forward: 100 + 430; backward: 100 + 300 + 50; the optimizer only what is there anyway
    assert peaks.by_phase == {"forward": 530, "backward": 450, "optimizer": 100}


def training(forward_bytes: int = 0) -> Training:
    model = torch.nn.Linear(4, 1)

    def loss_of(module: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
        if forward_bytes:
            _ = torch.ones(forward_bytes // 4).sum()
        loss: torch.Tensor = module(batch).sum()
        return loss

    return Training(
        model=model,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        batches=[torch.ones(2, 4)],
        loss_of=loss_of,
        count=lambda batch: BatchCount(len(batch)),
    )


def timed(parts: Training, *, left_s: float | None = None) -> Timed:
    return Timed(
        trial=Trial(workload="mlp", settings=Settings(batch_size=2)),
        training=parts,
        device=CPU,
        step_s=1.0,
        left_s=lambda: left_s,
        observations=Observations(),
    )


def look(subject: Timed, **more: Any) -> dict[str, float]:
    return {q.name: q.value for q in look_afterwards(subject, [PhaseMemory(**more)])}


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_on_a_cpu_the_resident_peak_of_the_greedy_phase_stands_out() -> None:
    # 256 MiB are more than the C library keeps: they come from mmap and go back at once
    found = look(timed(training(256 * 2**20)))
    assert set(found) == {f"memory_peak_{phase}" for phase in MEASURED_PHASES}
    assert found["memory_peak_forward"] - found["memory_peak_optimizer"] > 200 * 2**20


def test_every_quantity_names_its_counter() -> None:
    (first, *_) = look_afterwards(timed(training()), [PhaseMemory(Allocator().counter)])
    assert (first.unit, first.source) == ("bytes", "fake allocator")


def test_no_time_left_is_a_gap() -> None:
    subject = timed(training(), left_s=2.5)  # three steps of 1 s do not fit
    assert look(subject) == {}
    (gap,) = subject.observations.gaps
    assert gap.signal == "memory_peaks_by_phase"
    assert "does not hold 3 more steps" in gap.why


def test_a_kernel_that_does_not_reset_is_a_gap_and_no_peak_copied_to_every_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phase_memory, "reset_peak_rss", lambda: False)
    subject = timed(training())
    assert look(subject) == {}
    assert "does not let the process reset" in subject.observations.gaps[0].why


def test_another_kind_of_device_is_not_guessed() -> None:
    with pytest.raises(Unreadable, match="not known for mps"):
        peak_counter(torch.device("mps"))
