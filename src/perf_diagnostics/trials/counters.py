"""Counters of a trial's process and of its device's allocator, read around the measured steps."""

from __future__ import annotations

import os
import time

import torch

from perf_diagnostics.measure.boards.allocator import AllocatorState, allocator_statistics
from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.host.cpu_time import CpuTime
from perf_diagnostics.measure.host.host_memory import swapped_bytes, tree_footprint
from perf_diagnostics.measure.host.page_faults import LoopFaults
from perf_diagnostics.measure.host.pass_reads import PassReads
from perf_diagnostics.measure.host.run_delay import RunDelay
from perf_diagnostics.measure.host.shared_memory import SharedMemory
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.trials.afterwards.phase_memory import WarmUpPeaks
from perf_diagnostics.trials.notes import Notes
from perf_diagnostics.trials.steps.loop import Loop
from perf_diagnostics.trials.steps.training_step import TrainingStep


def reset_device_peaks(device: torch.device, observations: Observations) -> None:
    if device.type == "cuda":
        with observations.guard("device_memory"):  # an allocator that somebody plugged in counts nothing, and raises
            torch.cuda.reset_peak_memory_stats(device)


class Counters:
    """Counters of the process and of the device's allocator, from the last warm-up step to the end."""

    def __init__(
        self,
        loop: Loop,
        device: torch.device,
        training_step: TrainingStep,
        peaks: WarmUpPeaks,
        *,
        probe: Probe,
        code: CodeWatch | None,
        observations: Observations,
    ) -> None:
        self._observations = observations
        self._code = code
        self._probe = probe
        self._device = device
        self._before: memory.ProcessCounters | None = None
        self._allocator_before: AllocatorState | None = None
        self._training_step = training_step
        self._peaks = peaks
        self._scale_before: float | None = None
        self._cpu = CpuTime()
        self._delay = RunDelay()
        self._faults = LoopFaults(observations)
        self._began_ns: int | None = None
        loop.on_measuring = self.begin
        self._shared = SharedMemory()
        self._reads = PassReads()
        self._reads.pass_begins()  # the first one begins with the first step
        training_step.on_pass = self._reads.pass_begins
        loop.on_steady_block = self._block_begins, self._block_ended

    def begin(self) -> None:
        self._peaks.end()
        self._before = memory.ProcessCounters.now() if os.name == "posix" else None
        with self._observations.guard("device_memory"):
            self._allocator_before = self._allocator()
        self._scale_before = self._training_step.loss_scale
        self._reads.begin()
        self._began_ns = time.perf_counter_ns()
        self._cpu.begin()
        if self._code is not None:
            self._code.begin()

    def _block_begins(self) -> None:
        self._delay.begin()
        self._faults.begin()

    def _block_ended(self) -> None:
        self._faults.end()
        self._delay.end()
        if self._code is not None:
            self._code.block_ended(self._probe, counts=True)
        self._shared.look()

    def finish(self, notes: Notes) -> None:
        if self._code is not None:
            self._code.end()
            notes.code = self._code.samples()
            notes.facts |= self._code.waits()
        if notes.facts.get("num_workers"):
            notes.quantities.extend(self._shared.quantities(notes.observations))
        if self._began_ns is not None:
            with notes.observations.guard("process_cpu_s"):
                notes.quantities.extend(self._cpu.finish(notes.observations))
            notes.quantities.extend(self._reads.quantities(notes.observations))
            # Steps found to be warm-up afterwards are in the counters, so their window is not that of the steady steps.
            notes.facts["cpu_window_s"] = (time.perf_counter_ns() - self._began_ns) / 1e9
            with notes.observations.guard("loop_run_delay_share"):
                notes.quantities.extend(self._delay.finish(notes.observations))
            notes.quantities.extend(self._faults.finish())
        if self._before is not None:
            notes.quantities.extend((memory.ProcessCounters.now() - self._before).quantities())
        if self._scale_before is not None:
            with notes.observations.guard("loss_scale_after"):
                notes.facts |= {
                    "loss_scale_before": self._scale_before,
                    "loss_scale_after": self._training_step.loss_scale,
                }
        peaks = self._peaks
        notes.quantities.extend(peaks.quantities())
        resident = peaks.whole_peak("host_memory_peak", memory.vm_hwm_bytes())
        notes.quantity("host_memory_peak", resident, "bytes", "VmHWM")
        with notes.observations.guard("host_memory_uss", "host_memory_pss"):
            notes.quantities.extend(tree_footprint(os.getpid()).quantities())
        with notes.observations.guard("swapped_bytes"):
            notes.quantity("swapped_bytes", swapped_bytes(os.getpid()), "bytes", "VmSwap of the process tree")
        if self._device.type != "cuda":
            return
        with notes.observations.guard("device_memory"):
            for name, read in (
                ("device_memory_peak_allocated", torch.cuda.max_memory_allocated),
                ("device_memory_peak_reserved", torch.cuda.max_memory_reserved),
            ):
                peak = peaks.whole_peak(name, int(read(self._device)))
                notes.quantity(name, peak, "bytes", f"torch.cuda.{read.__name__}")
            state = self._allocator()
            if state is not None:
                split = state.inactive_split_bytes
                notes.quantity("device_memory_inactive_split", split, "bytes", "torch.cuda.memory_stats")
                notes.quantities.extend(state.failures_since(self._allocator_before))

    def _allocator(self) -> AllocatorState | None:
        statistics = allocator_statistics(self._device)
        return None if statistics is None else AllocatorState.of(statistics())
