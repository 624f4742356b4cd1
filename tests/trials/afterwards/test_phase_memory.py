"""Peaks by phase: each phase's own, not the largest of all, and a gap where the peak cannot be reset."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from perf_diagnostics.measure.observation import Observations, Unreadable
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.records import MEASURED_PHASES, Length, Outcome, Settings, StepTable, Trial
from perf_diagnostics.trials.afterwards import phase_memory
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.phase_memory import (
    PeakCounter,
    PhaseMemory,
    PhasePeaks,
    WarmUpPeaks,
    peak_counter,
)
from perf_diagnostics.trials.measurement import measure
from perf_diagnostics.trials.steps.loop import Loop
from perf_diagnostics.trials.steps.training_step import TrainingStep
from perf_diagnostics.workloads.workload import BatchCount, Training

CPU = torch.device("cpu")


#: More than the C library keeps by itself: it comes from mmap and goes back at once.
LARGE = 256 * 2**20


@pytest.fixture
def nothing_large_is_free() -> Iterator[None]:
    """Tests before this one may have left so much free in the heap, resident, that :data:`LARGE` comes from there."""
    library = ctypes.CDLL(None)
    library.malloc.restype, library.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    taken = [library.malloc(ctypes.c_size_t(LARGE // 2)) for _ in range(64)]  # what is not free there is only promised
    yield
    for block in taken:
        library.free(block)


class Allocator:
    """A device's allocator in plain numbers."""

    def __init__(self) -> None:
        self.now = self.peak = 100
        self.resets = 0

    def counter(self, _device: torch.device = CPU) -> PeakCounter:
        return PeakCounter("fake allocator", self._reset, lambda: self.peak, {"whole": lambda: self.peak})

    def use(self, more: int, *, kept: int = 0) -> None:
        """Hold ``more`` for a moment and keep a part of it."""
        self.peak = max(self.peak, self.now + more)
        self.now += kept

    def _reset(self) -> None:
        self.resets += 1
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
    assert peaks.set_back == {"whole": 530}  # before the backward of the second step the counter stood there


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
@pytest.mark.usefixtures("nothing_large_is_free")
def test_on_a_cpu_the_resident_peak_of_the_greedy_phase_stands_out() -> None:
    found = look(timed(training(LARGE)))
    assert set(found) == {f"memory_peak_{phase}" for phase in MEASURED_PHASES}
    assert found["memory_peak_forward"] - found["memory_peak_optimizer"] > 200 * 2**20


def test_every_quantity_names_its_counter() -> None:
    (first, *_) = look_afterwards(timed(training()), [PhaseMemory(Allocator().counter)])
    assert (first.unit, first.source) == ("bytes", "fake allocator, in 3 steps after the timed ones")


def test_no_time_left_is_a_gap() -> None:
    subject = timed(training(), left_s=2.5)  # three steps of 1 s do not fit
    assert look(subject) == {}
    (gap,) = subject.observations.gaps
    assert gap.signal == "memory_peaks_by_phase"
    assert "does not hold 3 more steps" in gap.why


def test_what_the_warm_up_has_brought_is_not_looked_at_again() -> None:
    subject = dataclasses.replace(timed(training()), peaks_known=True)
    assert look(subject) == {} and subject.observations.gaps == ()
    refused = timed(training())
    refused.observations.note("memory_peaks_by_phase", "the kernel does not let the process reset its peak memory")
    assert look(refused) == {} and len(refused.observations.gaps) == 1


class WarmedUp:
    """A trial's loop on an allocator in plain numbers: its n-th forward takes ``forward[n]``."""

    def __init__(
        self,
        forward: list[int],
        *,
        graphs: list[int] | None = None,
        broken_after: int | None = None,
        device: torch.device = CPU,
    ) -> None:
        self.allocator = Allocator()
        self.probe = Probe()
        self.observations = Observations()
        self.tables: list[StepTable] = []
        self.resets_when_measuring = -1
        self._graphs = graphs
        steps = iter(forward)
        parts = training()

        def loss_of(module: torch.nn.Module, batch: torch.Tensor) -> torch.Tensor:
            self.allocator.use(next(steps, 1))
            loss: torch.Tensor = module(batch).sum()
            return loss

        def counter(device: torch.device) -> PeakCounter:
            whole = self.allocator.counter(device)

            def reset() -> None:
                if broken_after is not None and self.allocator.resets >= broken_after:
                    raise Unreadable("the board is gone")
                whole.reset()

            return dataclasses.replace(whole, reset=reset)

        self.step = TrainingStep(dataclasses.replace(parts, loss_of=loss_of), Settings(batch_size=2), CPU, self.probe)
        self.peaks = WarmUpPeaks(self.step, self.probe, device, self.observations, None if device != CPU else counter)

    def run(self, length: Length) -> Loop:
        loop = Loop(self.step, self.probe, length, on_block=self._block_ended)
        loop.on_measuring = self._measuring
        loop.run()
        return loop

    def _block_ended(self, measured: Any) -> None:
        parts = measured.parts
        if self._graphs is not None:  # as if torch.compile had made so many by the end of each step
            done = sum(len(part) for part in parts[:-1])
            told = np.array([self._graphs[min(i, len(self._graphs) - 1)] for i in range(done, done + len(parts[-1]))])
            parts[-1] = StepTable({**parts[-1].columns, "graphs": told})
        self.peaks.block_ended(parts)

    def _measuring(self) -> None:
        self.peaks.end()
        self.resets_when_measuring = self.allocator.resets

    @property
    def found(self) -> dict[str, float]:
        return {q.name.removeprefix("memory_peak_"): q.value for q in self.peaks.quantities()}


def test_warm_up_steps_after_the_first_bring_the_peaks_and_timed_ones_none() -> None:
    trial = WarmedUp([9000, 400, 430, 8000])
    loop = trial.run(Length.exactly(10, warmup_steps=3))
    # 100 are there; the first step's 9000 set things up, and the fourth step is timed.
    assert trial.found == dict.fromkeys(MEASURED_PHASES, 100) | {"forward": 530}
    assert trial.peaks.quantities()[0].source == "fake allocator, in 2 warm-up steps"
    assert trial.allocator.resets == trial.resets_when_measuring == 2 * len(MEASURED_PHASES)
    assert loop.measured.steady_steps == 10
    assert loop.measured.table.get("host_forward_ns") is not None  # the steps themselves lost nothing
    assert trial.peaks.whole_peak("whole", 8100) == 9100  # what resets have set back is not forgotten
    assert trial.peaks.whole_peak("whole", None) is None
    assert trial.peaks.whole_peak("never set back", 7) == 7


def test_enough_steps_are_enough() -> None:
    trial = WarmedUp([0] * 20)
    trial.run(Length.exactly(5, warmup_steps=12))
    # The second step alone, then up to ten in one block.
    assert 3 * len(MEASURED_PHASES) <= trial.allocator.resets < 12 * len(MEASURED_PHASES)
    assert "warm-up steps" in trial.peaks.quantities()[0].source


def test_a_warm_up_of_one_step_brings_none_and_leaves_the_pass_to_do_it() -> None:
    trial = WarmedUp([0] * 20)
    trial.run(Length.exactly(5, warmup_steps=1))
    assert trial.found == {} and trial.allocator.resets == 0
    assert trial.observations.gaps == ()


def test_steps_in_which_something_compiles_are_left_out() -> None:
    trial = WarmedUp([0, 5000, 40, 50], graphs=[1, 2, 2, 2])
    trial.run(Length.exactly(5, warmup_steps=3))
    # The second step compiled. The third is quiet, and so are the two that the loop waits for then.
    assert trial.found["forward"] == 150
    assert trial.peaks.quantities()[0].source.endswith("in 3 warm-up steps")


def test_a_counter_that_fails_leaves_a_gap_and_the_step_as_it_is() -> None:
    trial = WarmedUp([0] * 20, broken_after=7)  # in the third step
    loop = trial.run(Length.exactly(5, warmup_steps=3))
    assert loop.measured.outcome is Outcome.COMPLETED and loop.measured.steady_steps == 5
    assert trial.found == {}
    (gap,) = trial.observations.gaps
    assert (gap.signal, gap.why) == ("memory_peaks_by_phase", "the board is gone")


def test_a_device_without_such_a_counter_is_asked_once() -> None:
    trial = WarmedUp([0] * 20, device=torch.device("mps"))
    trial.run(Length.exactly(5, warmup_steps=6))
    (gap,) = trial.observations.gaps
    assert gap.why == "peaks by phase are not known for mps devices"


def test_the_epoch_goes_on_counting_through_the_warm_up() -> None:
    trial = WarmedUp([0] * 20)  # one batch a pass: each step is an epoch of its own
    loop = trial.run(Length.exactly(4, warmup_steps=3))
    assert loop.measured.table.columns["epoch"].tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux")
@pytest.mark.usefixtures("small_ceilings", "nothing_large_is_free")
def test_a_trial_without_a_second_to_spare_has_its_peaks_by_phase() -> None:
    trial = Trial(workload="w", settings=Settings(batch_size=2), length=Length.exactly(3, warmup_steps=2))
    result = measure(trial, lambda _settings: training(LARGE), budget_s=0.0).result
    if result.outcome is not Outcome.SKIPPED_OVER_TIME_BUDGET:
        pytest.fail(f"the budget was to be none at all: {result}")
    peaks = {phase: result.value(f"memory_peak_{phase}") for phase in MEASURED_PHASES}
    assert peaks["forward"] - peaks["optimizer"] > 200 * 2**20
    # The forward's spike is gone from VmHWM since the phase after it was begun, and still is the process's peak.
    assert result.value("host_memory_peak") >= peaks["forward"]


def test_a_kernel_that_does_not_reset_is_a_gap_and_no_peak_copied_to_every_phase(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(phase_memory, "reset_peak_rss", lambda: False)
    subject = timed(training())
    assert look(subject) == {}
    assert "does not let the process reset" in subject.observations.gaps[0].why


def test_on_cuda_what_a_reset_sets_back_is_kept_and_nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = Allocator()
    reserved = [700]
    asked: list[str] = []

    def told(name: str, value: Any) -> Any:
        def call(device: torch.device) -> Any:
            asked.append(name)
            assert device == torch.device("cuda:1")
            return value()

        return call

    def reset() -> None:
        allocator._reset()
        reserved[0] = 600

    monkeypatch.setattr(torch.cuda, "max_memory_allocated", told("allocated", lambda: allocator.peak))
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", told("reserved", lambda: reserved[0]))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", told("reset", reset))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: pytest.fail("the device was waited for"))
    peaks = PhasePeaks(peak_counter(torch.device("cuda:1")))
    allocator.use(500)
    with peaks.forward():
        allocator.use(50)
    assert asked == ["allocated", "reserved", "reset", "allocated"]
    assert peaks.by_phase == {"forward": 150}
    # 100 + 500 before the forward, and the blocks that the allocator held then.
    assert peaks.set_back == {"device_memory_peak_allocated": 600, "device_memory_peak_reserved": 700}


def test_another_kind_of_device_is_not_guessed() -> None:
    with pytest.raises(Unreadable, match="not known for mps"):
        peak_counter(torch.device("mps"))
