"""Runs one trial in this process, whoever's process it is, and says what came of it."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from perf_diagnostics.errors import InvalidSettings
from perf_diagnostics.measure.boards.allocator import AllocatorState, allocator_statistics
from perf_diagnostics.measure.boards.devices import model_of
from perf_diagnostics.measure.code.code_watch import CodeWatch
from perf_diagnostics.measure.environment import with_threads_of_now
from perf_diagnostics.measure.host import memory
from perf_diagnostics.measure.host.cpu_time import CpuTime
from perf_diagnostics.measure.host.host_memory import swapped_bytes, tree_footprint
from perf_diagnostics.measure.host.pass_reads import PassReads
from perf_diagnostics.measure.host.run_delay import RunDelay
from perf_diagnostics.measure.host.shared_memory import SharedMemory
from perf_diagnostics.measure.model_scan import scan
from perf_diagnostics.measure.observation import Observations
from perf_diagnostics.measure.steps.device_clock import event_source
from perf_diagnostics.measure.steps.probe import Probe
from perf_diagnostics.measure.steps.step_memory import StepMemory
from perf_diagnostics.records import (
    CodeSamples,
    Environment,
    Json,
    Outcome,
    Quantity,
    Settings,
    StepTable,
    Trial,
    TrialResult,
)
from perf_diagnostics.trials.afterwards.afterwards import Timed, look_afterwards
from perf_diagnostics.trials.afterwards.ceilings import matmul_ceiling, memory_bandwidth
from perf_diagnostics.trials.afterwards.overhead import kept_s
from perf_diagnostics.trials.afterwards.passes import PASSES
from perf_diagnostics.trials.afterwards.phase_memory import WarmUpPeaks
from perf_diagnostics.trials.collector import collector
from perf_diagnostics.trials.idle import rest
from perf_diagnostics.trials.loop import Loop, Measured
from perf_diagnostics.trials.outcome import outcome_of
from perf_diagnostics.trials.training_step import TrainingStep, compiled, on_current_device, process_settings
from perf_diagnostics.workloads.workload import Training


@dataclass
class Measurement:
    """A trial's result as far as the trial's own process can know it, and the window its steady steps took.

    ``window_ns`` is on the host's monotonic clock, which all processes of a machine share, so that whoever sampled
    power meanwhile can cut out the same stretch; ``window_steps`` is the number of steps in it. ``idle_window_ns`` is
    the stretch before the steps in which the device held its context and rested.
    """

    result: TrialResult
    parts: list[StepTable] = field(default_factory=list)
    window_ns: tuple[int, int] | None = None
    window_steps: int = 0
    idle_window_ns: tuple[int, int] | None = None


@dataclass
class _Notes:
    """What is gathered while the trial runs, whatever its end."""

    quantities: list[Quantity] = field(default_factory=list)
    facts: dict[str, Json] = field(default_factory=dict)
    provenance: dict[str, str] = field(default_factory=dict)
    observations: Observations = field(default_factory=Observations)
    code: CodeSamples | None = None

    def quantity(self, name: str, value: float | None, unit: str, source: str) -> None:
        if value is not None:
            self.quantities.append(Quantity(name, float(value), unit, source))


def measure(
    trial: Trial,
    build: Callable[[Settings], Training],
    *,
    budget_s: float | None = None,
    floor_budget_s: float | None = None,
    stop_requested: Callable[[], Outcome | None] = lambda: None,
    on_block: Callable[[list[StepTable]], None] = lambda _parts: None,
    environment: Environment | None = None,
    clock: Callable[[], int] = time.perf_counter_ns,
    directory: Path | None = None,
    deep: bool = False,
    own_code: bool = False,
    on_measured: Callable[[Measurement], None] = lambda _measurement: None,
) -> Measurement:
    """Build the workload, measure it, and return the result; whatever the workload raises becomes the outcome.

    Args:
        trial: what is measured.
        build: makes the training parts for the trial's settings, on the trial's device.
        budget_s: seconds from now, building included, after which no further step is begun.
        floor_budget_s: seconds from now that the least number of steps may take; default: ``budget_s``.
        stop_requested: asked between steps; an outcome ends the trial with it.
        on_block: called between blocks with all finished parts of the step table.
        environment: recorded with the result.
        clock: host clock in ns.
        directory: where passes after the timed steps may write files of their own.
        deep: record a profiler window after the timed steps.
        own_code: look at which lines of the workload's code the steps spend their time.
        on_measured: called with what there is when the timed steps are over and the passes after them begin, so that
            a pass that ends the process, or outlasts its time, loses no more than itself.
    """
    notes = _Notes()
    began = clock()

    def left_s() -> float | None:
        return None if budget_s is None else budget_s - (clock() - began) / 1e9

    measured = Measured()
    idle_window_ns: tuple[int, int] | None = None
    outcome, reason = Outcome.COMPLETED, ""

    def so_far() -> Measurement:
        result = TrialResult(
            trial=trial,
            outcome=outcome,
            reason=reason,
            steps=(measured.table,),
            quantities=(*notes.quantities, *_totals(measured)),
            gaps=notes.observations.gaps,
            facts={**notes.facts, **({"warmup_ended": measured.warmup_ended} if measured.warmup_ended else {})},
            provenance=notes.provenance,
            environment=environment or Environment(),
            stop_reason=measured.stop_reason or str(outcome),
            steady=measured.steady,
            code=notes.code,
        )
        return Measurement(result, measured.parts, measured.window_ns, measured.window_steps, idle_window_ns)

    try:
        device = usable_device(trial.settings.device)
        with (
            on_current_device(device),
            process_settings(trial.settings, device),
            collector(trial.settings) as between_blocks,
        ):
            environment = environment and with_threads_of_now(environment)
            notes.quantity("host_memory_before", memory.rss_bytes(), "bytes", "VmRSS")
            _reset_device_peaks(device, notes.observations)
            training = compiled(build(trial.settings), trial.settings)
            _describe(training, trial.settings, device, notes)
            notes.quantity("setup_s", (clock() - began) / 1e9, "s", "perf_counter_ns")
            idle_window_ns = rest(
                trial, device, notes.observations, left_s=left_s(), stop_requested=stop_requested, clock=clock
            )
            step_memory = StepMemory.of(device, notes.observations)
            probe = Probe(clock=clock, events=event_source(device, clock), memory=step_memory)

            training_step = TrainingStep(training, trial.settings, device, probe)
            peaks = WarmUpPeaks(training_step, probe, device, notes.observations)
            spent_s = (clock() - began) / 1e9
            spent_s += _kept_s(trial, budget_s, spent_s)
            loop = Loop(
                training_step,
                probe,
                trial.length,
                budget_s=None if budget_s is None else budget_s - spent_s,
                floor_budget_s=None if floor_budget_s is None else floor_budget_s - spent_s,
                prefetched=_prefetched(training),
                stop_requested=stop_requested,
                on_block=functools.partial(_block_ended, trial, between_blocks, on_block, peaks),
                clock=clock,
            )
            between_blocks()
            measured = loop.measured
            code = CodeWatch(clock, notes.observations) if own_code else None
            counters = _Counters(
                loop, device, training_step, peaks, probe=probe, code=code, observations=notes.observations
            )
            try:
                loop.run()
            finally:
                step_memory.close()
                counters.finish(notes)
                _clocks(probe, notes)
            if measured.outcome is Outcome.COMPLETED and measured.steady_steps and not trial.role:
                on_measured(so_far())
                timed = Timed(
                    trial=trial,
                    training=training,
                    device=device,
                    step_s=float(measured.table.steady.wall_ns.mean()) / 1e9,
                    left_s=left_s,
                    observations=notes.observations,
                    directory=directory,
                    deep=deep,
                    spent_s=(clock() - began) / 1e9,
                    peaks_known=bool(peaks.quantities()),
                )
                notes.quantities.extend(look_afterwards(timed, PASSES))
                del timed
            del training, training_step, loop, probe, counters, peaks
            notes.quantity("memory_bandwidth", memory_bandwidth(device), "bytes/s", "best of six large copies")
            products = matmul_ceiling(device, trial.settings.precision)
            notes.quantity("matmul_ceiling", products, "1/s", "best of several large products")
        outcome, reason = measured.outcome, measured.reason
    except Exception as error:  # noqa: BLE001 - a workload may raise anything; its end is this trial's outcome
        outcome, reason = outcome_of(error)
    return so_far()


def _kept_s(trial: Trial, budget_s: float | None, spent_s: float) -> float:
    """Seconds of the budget that are no steps': kept for the trial's own cost, which sentinels do not state."""
    return 0.0 if trial.role or budget_s is None else kept_s(budget_s - spent_s)


def _block_ended(
    trial: Trial,
    between_blocks: Callable[[], None],
    on_block: Callable[[list[StepTable]], None],
    peaks: WarmUpPeaks,
    so_far: Measured,
) -> None:
    between_blocks()
    on_block(so_far.parts)
    if not trial.role:
        peaks.block_ended(so_far.parts)


def usable_device(name: str) -> torch.device:
    """The torch device of that name, if this machine has it.

    Raises:
        InvalidSettings: no such device; the text names those there are.
    """
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidSettings(f"device={name!r} is no device name: {str(error).splitlines()[0]}") from None
    if device.type == "cpu":
        return device
    count = _device_count(device.type)
    if (device.index or 0) >= count:
        there = f"{count} {device.type} device{'s' * (count != 1)}" if count else f"no {device.type} device"
        raise InvalidSettings(f"device={name!r}: torch sees {there} on this machine.")
    return device


def _device_count(kind: str) -> int:
    back_end: Any = getattr(torch, kind, None)
    if back_end is None or not getattr(back_end, "is_available", lambda: True)():
        return 0
    return int(back_end.device_count()) if hasattr(back_end, "device_count") else 1


def _prefetched(training: Training) -> int:
    """How many batches the workers of the workload's loader fetch ahead; none where its facts tell of no workers."""
    workers, each = training.facts.get("num_workers"), training.facts.get("prefetch_factor")
    return workers * each if isinstance(workers, int) and isinstance(each, int) else 0


def _reset_device_peaks(device: torch.device, observations: Observations) -> None:
    if device.type == "cuda":
        with observations.guard("device_memory"):  # an allocator that somebody plugged in counts nothing, and raises
            torch.cuda.reset_peak_memory_stats(device)


def _describe(training: Training, settings: Settings, device: torch.device, notes: _Notes) -> None:
    """Plain values about the workload as it was built, and the size of its model."""
    parameters = [p for group in training.optimizer.param_groups for p in group["params"]]
    seen = {id(p): p for p in (*training.model.parameters(), *parameters)}.values()
    notes.quantity("parameters", sum(p.numel() for p in seen), "1", "model.parameters()")
    notes.quantity("trainable_parameters", sum(p.numel() for p in seen if p.requires_grad), "1", "model.parameters()")
    notes.quantity("parameter_bytes", sum(p.numel() * p.element_size() for p in seen), "bytes", "model.parameters()")
    notes.quantity("host_memory_total", memory.memory_limit_bytes(), "bytes", "MemTotal and cgroup limits")
    cpu_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    notes.facts |= {
        "threads": torch.get_num_threads(),
        "cpu_count": cpu_count,
        "accumulation_steps": settings.accumulation_steps or 1,
        "zero_grad_to_none": True,  # so the loop clears gradients
        "device_name": model_of(device),
        **training.facts,
    }
    with notes.observations.guard("model_scan"):
        notes.facts |= scan(training.model, training.optimizer)
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        notes.quantity("device_memory_total", total, "bytes", "torch.cuda.get_device_properties")


class _Counters:
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
        self._loop = loop
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
        self._began_ns: int | None = None
        loop.on_measuring = self.begin
        self._shared = SharedMemory()
        self._reads = PassReads()
        self._reads.pass_begins()  # the first one begins with the first step
        training_step.on_pass = self._reads.pass_begins
        loop.on_steady_block = self._delay.begin, self._block_ended

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

    def _block_ended(self) -> None:
        self._delay.end()
        if self._code is not None:
            self._code.block_ended(self._probe, counts=True)
        self._shared.look()

    def finish(self, notes: _Notes) -> None:
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


def _clocks(probe: Probe, notes: _Notes) -> None:
    notes.provenance |= {"host_clock": "perf_counter_ns", "device_clock": probe.device_clock}
    notes.quantity("clock_drift", probe.clock_drift, "1", "two synchronised anchors a block")
    notes.quantity("forced_syncs", probe.forced_syncs, "1", "event ring")


def _totals(measured: Measured) -> list[Quantity]:
    found = []
    if measured.first_step_s is not None:
        found.append(Quantity("first_step_s", measured.first_step_s, "s", "perf_counter_ns"))
    if measured.steady_wall_ns:
        source = "perf_counter_ns around each block"
        found.append(Quantity("measured_wall_s", measured.steady_wall_ns / 1e9, "s", source))
    return found
